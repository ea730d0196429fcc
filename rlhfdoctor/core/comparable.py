"""Whether two runs can show that a change helped.

They are of the same job, and the second one came as far as the first one died. The same job: one framework (or one
recorded command), the same models, and no other value of a setting, but for those that a patch of the first run changes
and those by which a rule cures something without effect on what is learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.evidence.steps import last_step
from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.patch.suggest import MORE_NODES, REMEDIES
from rlhfdoctor.settings.force import is_same
from rlhfdoctor.settings.read import read_configuration
from rlhfdoctor.types import Incident, Setting
from rlhfdoctor.vocabulary.run import PHASES, Phase


@dataclass(frozen=True, slots=True)
class Run:
    """What of a run says which job it was, and how far it came."""

    incident: Incident
    models: dict[str, Setting]
    """Canonical name -> a setting that names a model."""
    argv: tuple[str, ...] | None
    """The command, if it was recorded."""
    patched: frozenset[str]
    """Settings that the doctor has changed in its files since."""
    step: int | None
    phase: Phase | None
    ran_s: float | None
    """From its first sign of life to its last or its death."""


def look_at(session: Session, incident: Incident) -> Run:
    """What a session has read of that."""
    case, death = session.case, incident.death
    commands = [trace.node.run.get("argv") for trace in session.traces]
    argv = next((tuple(map(str, words)) for words in commands if isinstance(words, list)), None)
    times = [event.time for event in case.events if event.time is not None]
    for trace in session.traces:
        times += [trace.seconds(at) for at in (*trace.node.times_ns[:1], *trace.node.times_ns[-1:])]
    end = death.time if death is not None and death.time is not None else max(times, default=None)
    return Run(
        incident=incident,
        models={setting.name: setting for setting in case.models()},
        argv=argv,
        patched=frozenset(_patched(session)),
        step=death.step if death is not None and death.step is not None else last_step(case),
        phase=death.phase if death is not None else None,
        ran_s=max(end - min(times), 0.0) if times and end is not None else None,
    )


def _patched(session: Session) -> Iterator[str]:
    framework = session.case.framework
    for name, applied in session.applied.items():
        data = applied.after().decode("utf-8", "surrogateescape")
        for setting in read_configuration(name, data, framework.name if framework is not None else None)[0]:
            before = [s.value for s in session.case.settings if s.name == setting.name and s.origin.file == name]
            if setting.value not in before:
                yield setting.name


def find_doubts(one: Run, two: Run) -> Iterator[Message]:
    """Why the second run does not show whether a change helped; nothing if it does."""
    yield from _other_job(one, two)
    if (
        one.incident.death is not None
        and two.incident.verdict != "inconclusive"
        and not _alike(one.incident, two.incident)
    ):
        yield from _not_as_far(one, two)


def _alike(one: Incident, two: Incident) -> bool:
    """Whether both died of the same; then it does not matter which of them came further."""
    deaths = [(i.death.killer, i.best.cause if i.best is not None else None) for i in (one, two) if i.death is not None]
    return len(deaths) == 2 and deaths[0] == deaths[1]


def _other_job(one: Run, two: Run) -> Iterator[Message]:
    names = [run.incident.framework.name if run.incident.framework is not None else None for run in (one, two)]
    if None in names:
        if one.argv is None or one.argv != two.argv:
            yield say("nothing shows that they are runs of the same job")
            return
    elif names[0] != names[1]:
        yield say("different frameworks: {one} and {two}", one=names[0] or "", two=names[1] or "")
        return
    for name, model in one.models.items():
        other = two.models.get(name)
        if other is not None and not is_same(model.value, other.value):
            yield say(
                "different models: {spelled} is {one} and {two}",
                spelled=model.spelled,
                one=str(model.value),
                two=str(other.value),
            )
    learned = tuple(setting.spelled for setting in _of_the_job(one, two))
    if learned:
        yield say(
            "settings differ that change the job, and that no patch of the first run changes: {names:, }", names=learned
        )


def _of_the_job(one: Run, two: Run) -> Iterator[Setting]:
    """Settings with different values that neither a patch of this run nor a cure without effect on learning changes."""
    harmless = {cure.setting for rule in load_rules() for cure in rule.remediation if cure.safety != "show"}
    harmless |= {remedy.setting for remedy in (*REMEDIES, *MORE_NODES)}
    harmless |= {patch.setting for finding in one.incident.findings for patch in finding.patches}
    harmless |= {*one.patched, *one.models, *two.models}
    rows = [{setting.name: setting for setting in run.incident.settings} for run in (one, two)]
    for name, setting in rows[0].items():
        other = rows[1].get(name)
        if other is not None and name not in harmless and not is_same(setting.value, other.value):
            yield setting


def _not_as_far(one: Run, two: Run) -> Iterator[Message]:
    """That the second run ended before the place where the first one died: by step, else by phase, else by time."""
    ended_well = two.incident.verdict == "healthy"
    if one.step is not None and two.step is not None:
        if two.step < one.step:
            yield say(
                "the second run came to step {two} only, the first one died at step {one}", one=one.step, two=two.step
            )
        if two.step != one.step or ended_well:
            return
    if ended_well:
        return  # a job that is over came as far as it goes
    if None not in (one.phase, two.phase) and (one.step is None) == (two.step is None):
        if _place(two.phase) < _place(one.phase):
            yield say(
                "the second run died in the {two} phase, before the {one} phase",
                one=_word(one.phase),
                two=_word(two.phase),
            )
        return
    if one.phase == "load" and two.step is not None:
        return
    if one.ran_s is None or two.ran_s is None:
        yield say("nothing shows that the second run came as far as the first one")
    elif two.ran_s < one.ran_s:
        yield say(
            "the second run lasted {two:s}, the first one died after {one:s}",
            one=round(one.ran_s),
            two=round(two.ran_s),
        )


def _place(phase: Phase | None) -> int:
    return PHASES.index(phase) if phase is not None else -1


def _word(phase: Phase | None) -> Message:
    return term((phase or "").replace("_", " "))
