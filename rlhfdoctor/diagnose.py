"""The pipeline in one readable function: paths -> Incident."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, tzinfo
from pathlib import Path

from rlhfdoctor.budget.told import Machine
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.match import Facts
from rlhfdoctor.engine.rank import diagnose, is_decided, treatments
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.errors import SourceError
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.collect import find_evidence
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.evidence.killer import classify
from rlhfdoctor.evidence.ledger import make_ledger
from rlhfdoctor.evidence.setup import make_told
from rlhfdoctor.logs.events import PATTERNS, order_events, read_events
from rlhfdoctor.logs.flight import MOST_BYTES, rank_of_dump, read_dump
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.patch.apply import find_original
from rlhfdoctor.patch.effect import Counterfactual, make_counterfactual
from rlhfdoctor.patch.plan import Configuration, plan_patches
from rlhfdoctor.patch.size import size_treatments
from rlhfdoctor.settings.framework import find_framework, find_versions
from rlhfdoctor.settings.read import is_configuration, is_source, read_configuration, read_logged
from rlhfdoctor.trace.events import Recorded, drop_foreign
from rlhfdoctor.trace.run import find_runs, read_run
from rlhfdoctor.types import Death, Event, Evidence, Finding, Framework, Gap, Incident, Patch, RuledOut, Setting
from rlhfdoctor.units import show_count

CONFIG_LIMIT_BYTES = 2 * 1024**2
_SAID_BY_SOURCES = ("config.", "framework.", "version.", "host.note")
_TIMELINE_COUNT = 40
_TREATED_SCORE = -1.1
"""Below (log-odds), a finding is a remote possibility, and a patch for it would be a guess."""


@dataclass
class Reading:
    """What was read of the paths before anything is concluded."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Configuration files whole, by name."""
    originals: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Text before the doctor patched a file, and when it did."""
    newest_s: float = 0.0
    """When a log was last written to."""
    gaps: list[Gap] = field(default_factory=list)
    traces: list[Recorded] = field(default_factory=list)
    """What recorders wrote."""
    shown_only: set[str] = field(default_factory=set)
    """Configuration that tells settings and is not the user's to edit."""
    places: dict[str, tuple[str | None, tzinfo]] = field(default_factory=dict)
    """Log of a recorded run -> its node and time zone."""
    source_count: int = 0
    byte_count: int = 0


def analyze(
    paths: Sequence[str],
    *,
    configs: Sequence[str] = (),
    framework: str | None = None,
    rules: Sequence[Rule] | None = None,
    engine: str = "auto",
    since: float | None = None,
    until: float | None = None,
    min_confidence: float = 0.0,
    progress: Callable[[str, int], None] | None = None,
) -> Incident:
    """Reads what a run left behind and says what ended it.

    Args:
        paths: folders, files, archives, or `-`.
        configs: configuration files beside the paths.
        framework: `NAME` or `NAME==VERSION`, where the user knows better.
        rules: the catalogue; by default the bundled one.
        engine: of the scanner, `auto`, `hyperscan` or `re`.
        since, until: Unix seconds; events outside are ignored.
        progress: called with the source's name and the bytes read so far.

    Raises:
        SourceError: nothing could be read.
        RuleError: the catalogue has faults.
    """
    catalogue = tuple(rules) if rules is not None else load_rules()
    reading = read_all([*paths, *configs], engine=engine, progress=progress)
    events = [e for e in order_events(reading.events) if _within(e, since, until)]
    events, foreign = drop_foreign(events, reading.traces)
    if foreign:
        reading.gaps.append(
            Gap(what="kernel log", why=f"{show_count(foreign, 'kill')} of other jobs on this node left out")
        )
    case = make_case(events, reading, framework)
    death, findings, excluded = conclude(case, catalogue, reading)
    decided = is_decided(findings)
    findings = [f for f in findings if f.confidence >= min_confidence]
    kept = {f.cause for f in findings}
    findings = [f for f in findings if f.explained_by is None or f.explained_by in kept]
    verdict = "healthy" if death is None else "cause" if decided else "undecided"
    return Incident(
        sources=tuple(str(path) for path in paths),
        verdict=verdict,  # type: ignore[arg-type]
        death=death,
        framework=case.framework,
        findings=tuple(findings),
        ruled_out=tuple(excluded),
        ledger=tuple(make_ledger(case, death)),
        gaps=tuple(reading.gaps),
        timeline=tuple(_timeline(case, death)),
        settings=tuple(s for s in case.settings if s.framework),
    )


def read_all(
    paths: Sequence[str], *, engine: str = "auto", progress: Callable[[str, int], None] | None = None
) -> Reading:
    """One pass over all sources: events of the logs, texts of the configuration files."""
    reading = Reading()
    scanner = Scanner(PATTERNS, engine)
    seen: set[bytes] = set()
    for source in find_sources(_open_runs(paths, reading), reading.gaps):
        reading.source_count += 1
        alike = (
            source.fingerprint is None or rank_of_dump(source.name) is not None
        )  # ranks may have written the same bytes
        mark = b"" if alike or source.fingerprint is None else source.fingerprint()
        if mark in seen:
            reading.gaps.append(Gap(what=source.name, why="a copy of a file that was read already"))
            continue
        seen.update({mark} - {b""})
        if is_configuration(source.name):
            data = source.read(CONFIG_LIMIT_BYTES)
            if len(data) == CONFIG_LIMIT_BYTES:
                reading.gaps.append(
                    Gap(what=source.name, why=f"configuration of more than {CONFIG_LIMIT_BYTES >> 20} MiB; cut there")
                )
            reading.texts[source.name] = data.decode("utf-8", "surrogateescape")
            original = find_original(Path(source.name))
            if original is not None:
                reading.originals[source.name] = original
            source = replace(source, stream=lambda data=data: iter((data,)))  # type: ignore[misc]
        if rank_of_dump(source.name) is not None:
            data = replace(source, stream=_counting(source, reading, progress)).read(MOST_BYTES)
            reading.events.extend(read_dump(data, source.name, reading.gaps))
            continue
        if not is_configuration(source.name):
            reading.newest_s = max(reading.newest_s, source.modified or 0.0)
        host, zone = reading.places.get(source.name, (None, UTC))
        counted = replace(source, stream=_counting(source, reading, progress), host=host, zone=zone)
        found = read_events(counted, scanner, reading.gaps)
        if is_source(source.name):  # a program that can raise an error has not raised it
            found = (event for event in found if event.kind.startswith(_SAID_BY_SOURCES))
        reading.events.extend(found)
    if not reading.byte_count:
        why = "; ".join(f"{gap.what}: {gap.why}" for gap in reading.gaps[:3]) or "no files, or all of them empty"
        raise SourceError(
            f"nothing to read in {', '.join(map(str, paths))} ({why}).\n"
            "Give the folder of a Ray session (for example /tmp/ray/session_latest/logs), the job's log, dmesg, "
            "and the launch script."
        )
    return reading


def _open_runs(paths: Sequence[str], reading: Reading) -> list[str]:
    """The folders that `doctor watch` wrote are taken apart; what is left is read as text."""
    rest: list[str] = []
    for path in paths:
        runs = find_runs(path)
        if not runs or runs[0] != Path(path):
            rest.append(path)
        for folder in runs:
            run = read_run(folder)
            reading.traces.extend(run.traces)
            reading.events.extend(run.events)
            reading.gaps.extend(run.gaps)
            reading.shown_only |= run.shown_only
            reading.places |= run.places
            reading.byte_count += sum(len(trace.node.times_ns) for trace in run.traces)
            if runs[0] == Path(path):
                rest.extend(run.files)
    return list(dict.fromkeys(rest))


def _counting(
    source: Source, reading: Reading, progress: Callable[[str, int], None] | None
) -> Callable[[], Iterator[bytes]]:
    def stream() -> Iterator[bytes]:
        for block in source.stream():
            reading.byte_count += len(block)
            if progress is not None:
                progress(source.name, reading.byte_count)
            yield block

    return stream


def make_case(events: list[Event], reading: Reading, given: str | None) -> Case:
    """Events and configuration texts -> a case with settings, framework and versions."""
    versions = find_versions(events)
    prefer = given.partition("==")[0].lower() if given else None
    framework: Framework | None = None
    settings: list[Setting] = []
    for _ in range(2):  # the second time with the framework known, whose table then wins
        settings = []
        for name, text in reading.texts.items():
            found, gaps = read_configuration(name, text, prefer)
            settings.extend(
                replace(s, form="argv", span=None) for s in found
            ) if name in reading.shown_only else settings.extend(found)
            reading.gaps.extend(gap for gap in gaps if gap not in reading.gaps)
        for event in events:
            if event.kind.startswith("config."):
                settings.extend(read_logged(event, prefer))
        framework = find_framework(events, settings, versions, given)
        if framework is None or framework.name == prefer:
            break
        prefer = framework.name
    return Case(events, settings, framework, versions, reading.traces)


def conclude(case: Case, rules: Sequence[Rule], reading: Reading) -> tuple[Death | None, list[Finding], list[RuledOut]]:
    """The first death over all hosts, and what the rules say to the facts of its host.

    All conditions of one rule meet on one host: lines of other hosts are left out, lines without
    a host belong to every host.
    """
    death, own, facts = gather(case, reading)
    findings, excluded = diagnose(rules, facts)
    by_id = {rule.id: rule for rule in rules}
    configuration = Configuration(
        reading.texts, case.settings, case.framework, case.versions, _before_the_run(case, death, reading)
    )
    counterfactual = _foresee(case, own, death, facts)

    def patches(cause: str) -> tuple[Patch, ...]:
        chosen = treatments(by_id[cause], facts)
        if counterfactual is None:
            return tuple(plan_patches(chosen, facts, configuration))
        sized = size_treatments(chosen, facts, configuration, counterfactual)
        return tuple(counterfactual.effect(patch) for patch in plan_patches(*sized, configuration))

    complete = [
        replace(f, patches=patches(f.cause)) if f.explained_by is None and f.score >= _TREATED_SCORE else f
        for f in findings
    ]
    return death, complete, excluded


def _foresee(case: Case, own: Case, death: Death | None, facts: Facts) -> Counterfactual | None:
    """The budget of the run that died, beside what was measured of it."""
    if death is None:
        return None
    limits = [facts.evidence[name].value for name in ("host.limit_bytes", "host.total_bytes") if name in facts.evidence]
    return make_counterfactual(
        make_told(case, _machine(case)),
        death.phase,
        of_host=not death.killer.startswith(("cuda", "collective")),
        measured_bytes=sum(part.bytes for part in make_ledger(own, death)) or None,
        limit_bytes=min((size for size in limits if isinstance(size, int)), default=None),
    )


def _before_the_run(case: Case, death: Death | None, reading: Reading) -> list[Setting]:
    """Settings as the run had them, of files that the doctor has patched since it."""
    ran_s = death.time if death is not None and death.time is not None else reading.newest_s
    prefer = case.framework.name if case.framework is not None else None
    found: list[Setting] = []
    for name, (text, patched_s) in reading.originals.items():
        if ran_s < patched_s:
            found.extend(read_configuration(name, text, prefer)[0])
    return found


def gather(case: Case, reading: Reading) -> tuple[Death | None, Case, Facts]:
    """The first death, what belongs to its host, and the facts that rules ask."""
    death = find_death(case)
    hosts = sorted({e.origin.host for e in case.events if e.origin.host and classify(e) is not None})
    own = case
    if death is not None and death.node is not None and len(hosts) > 1:
        own = replace(case, events=[e for e in case.events if e.origin.host in (None, death.node)])
    return death, own, make_facts(own, find_evidence(own, death, reading.gaps))


def _machine(case: Case) -> Machine:
    """A recorded run of the bundled trainer on a node without GPUs computes in host memory."""
    no_gpu = bool(case.traces) and not any("gpu" in trace.node.tables for trace in case.traces)
    return Machine(
        gpus_per_node=0 if no_gpu and case.framework is not None and case.framework.name == "rlhfdoctor" else None
    )


def make_facts(case: Case, evidence: Mapping[str, Evidence]) -> Facts:
    """Events by kind, evidence by name, the settings in force by canonical name."""
    events: dict[str, list[Event]] = {}
    for event in case.events:
        events.setdefault(event.kind, []).append(event)
    return Facts(events=events, evidence=evidence, settings=case.in_force())


def _within(event: Event, since: float | None, until: float | None) -> bool:
    if event.time is None:
        return True
    return (since is None or event.time >= since) and (until is None or event.time <= until)


def _timeline(case: Case, death: Death | None) -> list[Event]:
    """The marks and failures that tell the story, in order, each kind of mark once in a row."""
    told: list[Event] = []
    for event in case.events:
        failure = classify(event) is not None or (death is not None and event is death.event)
        mark = event.kind.startswith(("phase.", "deepspeed.checkpoint", "deepspeed.optimizer"))
        if not failure and not mark:
            continue
        if told and told[-1].kind == event.kind and told[-1].origin.file == event.origin.file:
            continue
        told.append(event)
    return told[-_TIMELINE_COUNT:]
