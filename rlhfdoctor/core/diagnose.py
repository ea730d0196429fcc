"""What a session read -> Incident, in one readable function."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rlhfdoctor.axes import Axes
from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.core.coverage import TIE, TIE_OF_LOG, find_coverage, trusted
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.calibrate import load_curve
from rlhfdoctor.engine.catalogue import load_catalogue, load_rules
from rlhfdoctor.engine.rank import diagnose, treatments
from rlhfdoctor.engine.rivals import is_decided, shares
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.evidence.axes import place_on_axes
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.collect import explain_bytes, find_evidence
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.evidence.ending import EXITS, find_good_end, find_unrecognised, is_in_another_log
from rlhfdoctor.evidence.host import find_manager
from rlhfdoctor.evidence.ledger import make_ledger
from rlhfdoctor.evidence.setup import machine_of, make_inputs
from rlhfdoctor.explanation import Explanation
from rlhfdoctor.faults import PATIENCE_S, isolated
from rlhfdoctor.i18n.message import say
from rlhfdoctor.patch.effect import Counterfactual, make_counterfactual
from rlhfdoctor.patch.merge import unapplied
from rlhfdoctor.patch.plan import Configuration, plan_patches
from rlhfdoctor.patch.size import size_treatments
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.report.sanitize import shell_path
from rlhfdoctor.settings.force import find_differences
from rlhfdoctor.types import Death, Event, Evidence, Finding, Gap, Incident, Part, Patch, RuledOut, Verdict
from rlhfdoctor.vocabulary import EVENT, FACT
from rlhfdoctor.vocabulary.names import Fact, Kind
from rlhfdoctor.vocabulary.run import AXES

_TIMELINE_COUNT = 40
_TREATED_SCORE = -1.1
"""Below (log-odds), a finding is a remote possibility, and a patch for it would be a guess."""


def analyze(
    paths: Paths,
    *,
    configs: Paths = (),
    framework: str | None = None,
    rules: Paths = (),
    engine: str = "auto",
    since: float | None = None,
    until: float | None = None,
    min_confidence: float = 0.0,
    progress: Callable[[str, int], None] | None = None,
) -> Incident:
    """Reads what a run left behind and determines what ended it.

    Example:
        >>> incident = analyze("samples/openrlhf-save-kill/run")
        >>> print(incident)
        cause: Container or job memory limit is too low (host-container-limit, confidence 0.98)
        >>> incident.death.killer, incident.death.phase, incident.best.patches[0].spelled
        ('kernel-oom-cgroup', 'checkpoint', '--memory')

    Args:
        paths: folders, files, archives, or `-`; one of them, or several, of one run.
        configs: configuration files in addition to the paths.
        framework: `NAME` or `NAME==VERSION`, to override detection.
        rules: folders of rules in addition to the bundled ones.
        engine: of the scanner, `auto`, `hyperscan` or `re`.
        since, until: Unix seconds; events outside are ignored.
        progress: called with the source's name and the bytes read so far.

    Raises:
        SourceError: nothing could be read.
        RuleError: a rule has faults; each line names file and line.
    """
    catalogue = load_catalogue(*map(Path, listed(rules)))
    with Session(
        paths, configs=configs, framework=framework, since=since, until=until, engine=engine, progress=progress
    ) as session:
        return make_incident(session, catalogue, min_confidence)


def make_incident(session: Session, rules: Sequence[Rule] | None = None, min_confidence: float = 0.0) -> Incident:
    """The same for a session that was opened already.

    Args:
        rules: all that are asked; by default the bundled ones. A draft is not asked, and is a gap.

    Raises:
        RuleError: the catalogue has faults.
    """
    case = session.case
    known = rules if rules is not None else load_rules()
    catalogue = [rule for rule in known if not rule.is_draft]
    session.gaps += [_unfinished(rule) for rule in known if rule.is_draft]
    death, findings, excluded, ledger, explained, axes = conclude(session, catalogue)
    elsewhere = death is not None and death.event is not None and is_in_another_log(case, death.event)
    untied = elsewhere or (death is not None and any(event is death.event for event in session.untied))
    decided = is_decided(findings) and not untied
    coverage = find_coverage(session)
    findings = [replace(f, confidence=trusted(f.confidence, death, coverage, untied)) for f in findings]
    if death is not None and untied:
        death = replace(death, certain=False)
        tie = TIE_OF_LOG if elsewhere else TIE
        findings = [replace(f, missing=(tie, *f.missing)) for f in findings[:1]] + findings[1:]
    findings = [f for f in findings if f.confidence >= min_confidence]
    kept = {f.cause for f in findings}
    findings = [f for f in findings if f.explained_by is None or f.explained_by in kept]
    unrecognised = find_unrecognised(case)
    verdict: Verdict = "cause" if decided else "undecided"
    if death is None:
        good = find_good_end(case)
        proven = good is not None and (good.kind in EXITS or not session.is_end_in_doubt)
        verdict = "healthy" if proven else "undecided" if unrecognised else "inconclusive"
    return Incident(
        sources=session.paths,
        verdict=verdict,
        death=death,
        framework=case.framework,
        findings=tuple(findings),
        ruled_out=tuple(excluded),
        ledger=ledger,
        explained=explained,
        gaps=tuple(session.gaps),
        timeline=tuple(_timeline(case, death)),
        settings=tuple(s for s in case.settings if s.framework),
        axes=axes,
        coverage=coverage,
        unrecognised=_untold(case, death, unrecognised) if verdict in ("undecided", "inconclusive") else (),
        differences=find_differences(s for s in case.settings if s.framework),
    )


def _unfinished(rule: Rule) -> Gap:
    return Gap(
        what=say("rule {cause}", cause=rule.id),
        why=say(
            "not used: it is still a draft. What is left to fill in: doctor rules test {folder}",
            folder=shell_path(str(rule.path.parent)),
        ),
    )


def conclude(
    session: Session, rules: Sequence[Rule]
) -> tuple[Death | None, list[Finding], list[RuledOut], tuple[Part, ...], Explanation | None, Axes]:
    """The first death over all hosts, what the rules say to the facts of its host, its ledger, its bytes, the axes.

    All conditions of one rule meet on one host: lines of other hosts are left out, lines without
    a host belong to every host.
    """
    case = session.case
    death, own, facts, explained = gather(session)
    findings, excluded = diagnose(rules, facts, session.gaps)
    by_id = {rule.id: rule for rule in rules}
    level = facts.evidence.get(FACT.kernel.limit_level)
    manager = find_manager(case, "" if level is None else str(level.value))
    configuration = Configuration(session.texts, case.settings, case.framework, case.versions, manager)
    ledger: tuple[Part, ...] = ()
    with isolated(say("the ledger"), session.gaps, PATIENCE_S):
        ledger = tuple(make_ledger(own, death))
    counterfactual = None
    with isolated(say("the estimate"), session.gaps, PATIENCE_S):
        counterfactual = _foresee(case, death, facts, ledger)

    def patches(cause: str) -> tuple[Patch, ...]:
        with isolated(say("patches of {cause}", cause=cause), session.gaps):
            return tuple(unapplied(planned(cause), session.applied))
        return ()

    def planned(cause: str) -> tuple[Patch, ...]:
        chosen = treatments(by_id[cause], facts)
        if counterfactual is None:
            return tuple(plan_patches(chosen, facts, configuration))
        sized = size_treatments(chosen, facts, configuration, counterfactual)
        changes = (counterfactual.effect(patch) for patch in plan_patches(*sized, configuration))
        return tuple(patch for patch in changes if patch is not None)

    complete = [
        replace(f, patches=patches(f.cause)) if f.explained_by is None and f.score >= _TREATED_SCORE else f
        for f in findings
    ]
    axes = place_on_axes(death, facts, explained)
    if axes.limit is not None:
        curve = load_curve()
        axes = replace(axes, candidates={axis: shares(findings, axis, curve) for axis in AXES})
    return death, complete, excluded, ledger, explained, axes


def _foresee(case: Case, death: Death | None, facts: Facts, ledger: Sequence[Part]) -> Counterfactual | None:
    """The budget of the run that died, with what was measured."""
    if death is None:
        return None
    limits = [
        facts.evidence[name].value for name in (FACT.host.limit_bytes, FACT.host.total_bytes) if name in facts.evidence
    ]
    return make_counterfactual(
        make_inputs(case, machine_of(case)),
        death.phase,
        of_host=death.killer not in ("cuda-oom", "collective-timeout"),
        measured_bytes=sum(part.bytes for part in ledger) or None,
        limit_bytes=min((size for size in limits if isinstance(size, int)), default=None),
    )


def gather(session: Session) -> tuple[Death | None, Case, Facts, Explanation | None]:
    """The first death, what belongs to its host, the facts that rules use, and what explains its processes' bytes."""
    case = session.case
    death = find_death(case)
    hosts = sorted({e.origin.host for e in case.events if e.origin.host and classify(e) is not None})
    own = case
    if death is not None and death.node is not None and len(hosts) > 1:
        own = replace(case, events=[e for e in case.events if e.origin.host in (None, death.node)])
    explained = explain_bytes(own, death, session.gaps)
    return death, own, make_facts(own, find_evidence(own, death, session.gaps, explained)), explained


def make_facts(case: Case, evidence: Mapping[Fact, Evidence]) -> Facts:
    """Events by kind, evidence by name, the settings in force by canonical name."""
    events: dict[Kind, list[Event]] = {}
    for event in case.events:
        events.setdefault(event.kind, []).append(event)
    return Facts(events=events, evidence=evidence, settings=case.in_force(), traits=case.traits())


def _untold(case: Case, death: Death | None, unrecognised: Sequence[Event]) -> tuple[Event, ...]:
    """Without the lines of which another pattern has shown the death."""
    known = {e.origin for e in case.events if e.kind != EVENT.job.unrecognised and classify(e)} if death else set()
    return tuple(event for event in unrecognised if event.origin not in known)


def _timeline(case: Case, death: Death | None) -> list[Event]:
    """Marks and failures for the timeline, in order, repeated marks of one kind only once."""
    shown: list[Event] = []
    for event in case.events:
        failure = classify(event) is not None or (death is not None and event is death.event)
        mark = event.kind.startswith(("phase.", "deepspeed.checkpoint", "deepspeed.optimizer"))
        if not failure and not mark:
            continue
        if shown and shown[-1].kind == event.kind and shown[-1].origin.file == event.origin.file:
            continue
        shown.append(event)
    return shown[-_TIMELINE_COUNT:]
