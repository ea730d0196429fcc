"""Whether a step had finished: shown by a step, by a bar that stood still, by loading that lasted to the end.

That no step was recognised is no evidence: every framework has its own words, and a script has any.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.bars import is_still
from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.evidence.ending import saves_behind
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.i18n.message import NOTHING
from rlhfdoctor.types import Death, Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

STEPS = (EVENT.phase.step, EVENT.phase.episode)
_MAY_BE_STEPS = (*STEPS, EVENT.progress.bar, EVENT.progress.long)
_UNREAD_LINES = 200
"""So many lines behind the last sign of loading belong to it: settings that are printed, tracebacks, NCCL."""
_UNREAD_S = 1800
"""Weights of hundreds of gigabytes load within half an hour."""


def find_first_step(case: Case, death: Death) -> Iterator[Evidence]:
    """`death.before_first_step`, only where the case shows it either way."""
    done = _stepped(case)
    if done is not None:
        yield fact(FACT.death.before_first_step, False, NOTHING, done)
        return
    still = next((e for e in case.events if _waits(e)), None)
    loading = still or _loading(case, death)
    if loading is not None:
        yield fact(FACT.death.before_first_step, True, NOTHING, loading)


def find_after_training(case: Case, death: Death) -> Iterator[Evidence]:
    """`death.after_training`: the trainer's last words came before the failure, and no step after them.

    A full bar is drawn anew when it is closed, so behind the words.
    """
    over = next((e for e in reversed(case.events) if e.kind == EVENT.phase.finished), None)
    if over is None:
        return
    later = [
        e
        for e in case.of(*STEPS, EVENT.phase.rollout, EVENT.phase.update)
        if e.origin.file == over.origin.file and (e.origin.line or 0) > (over.origin.line or 0) and "100%" not in e.text
    ]
    # without a save behind it, a worker that disappears may be one that was let go
    is_death = death.certain or saves_behind(case, over.origin)
    if not later and not _precedes(death.event, over) and is_death:
        yield fact(FACT.death.after_training, True, NOTHING, over)


def _precedes(one: Event | None, other: Event) -> bool:
    """Whether a line is before another by place or time; no where neither can be compared."""
    if one is None:
        return False
    if one.origin.file == other.origin.file:
        return (one.origin.line or 0) < (other.origin.line or 0)
    return one.time is not None and other.time is not None and one.time < other.time


def last_step(case: Case, death: Event | None = None) -> int | None:
    """The number of the last step that a line of the log shows, or that a mark of the trace does; None if none does.

    Of the steps of the log that the death stands in, only those before it: another attempt may follow.
    """
    steps = [e for e in case.of(*STEPS) if whole(e, FIELD.step) is not None]
    before = [e for e in steps if death and e.origin.file == death.origin.file and _precedes(e, death)]
    shown = [whole(e, FIELD.step) for e in before or steps]
    marked = [step for e in case.of(EVENT.trace.mark) if (step := whole(e, FIELD.step)) is not None and step >= 0]
    return next(iter([*shown[-1:], *marked[-1:]]), None)


def _stepped(case: Case) -> Event | None:
    """What shows that a step had finished, or that the second had begun by a mark of the trainer."""
    kinds = (*STEPS, EVENT.phase.update, EVENT.phase.finished)
    for event in case.events:
        if event.kind in kinds and not is_still(event):
            return event
        if event.kind == EVENT.trace.mark and whole(event, FIELD.step) not in (None, -1, 0):
            return event
    return None


def _waits(event: Event) -> bool:
    """Whether steps are readable and none is over: a bar at its beginning, a mark of the trainer for step 0."""
    if event.kind == EVENT.trace.mark:
        return whole(event, FIELD.step) in (-1, 0)
    return event.kind in STEPS and is_still(event)


def _loading(case: Case, death: Death) -> Event | None:
    """The last sign of loading, if nothing but loading is shown and the failure came soon after it."""
    if case.first(*_MAY_BE_STEPS) is not None:
        return None
    marks = [e for e in case.events if _phase_of(e) is not None]
    last = marks[-1] if marks else None
    if last is None or any(_phase_of(mark) != "load" for mark in marks):
        return None
    end = death.event
    at, ended = last.time, death.time
    if at is not None and ended is not None and not -60 <= ended - at <= _UNREAD_S:
        return None
    here = end is not None and end.origin.file == last.origin.file
    until = (end.origin.line if end is not None and here else case.line_counts.get(last.origin.file)) or 0
    return last if until - (last.origin.line or 0) <= _UNREAD_LINES else None


def _phase_of(event: Event) -> str | None:
    if event.kind == EVENT.trace.mark:
        phase = event.fields.get(FIELD.phase)
        return str(phase) if phase else None
    return MARKS.get(event.kind)
