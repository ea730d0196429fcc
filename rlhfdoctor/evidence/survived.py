"""Failures that the run outlived: its log shows further steps behind them, and no start in between.

A handled error is no death, and a model can write any message of a failure into its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from rlhfdoctor.evidence.case import Case, whole
from rlhfdoctor.evidence.ending import find_good_end
from rlhfdoctor.evidence.steps import STEPS
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.run import Failure

_STARTS = (
    EVENT.phase.load,
    EVENT.phase.checkpoint_load,
    EVENT.config.argv,
    EVENT.config.command,
    EVENT.config.dump,
    EVENT.config.overrides,
    EVENT.phase.finished,
)
"""What a program writes as it starts, or at its end."""
_STEPS_COUNT = 5
"""Judgement: so many later steps are neither what was flushed late nor what other processes had begun."""
_STEPS_BEFORE_GOOD_END_COUNT = 2
"""The same where the run's end is shown, and it is a good one."""


def without_survived(case: Case, shown: Sequence[tuple[Event, Failure]]) -> list[tuple[Event, Failure]]:
    """The failures behind which the run did not go on, by the log in which each of them stands."""
    least = _STEPS_COUNT if find_good_end(case) is None else _STEPS_BEFORE_GOOD_END_COUNT
    logs = {event.origin.file for event, _ in shown}
    steps = {file: _steps(case, file) for file in logs}
    return [item for item in shown if _later_steps_count(item[0], *steps[item[0].origin.file]) < least]


def _steps(case: Case, file: str) -> tuple[list[tuple[int, int]], list[int]]:
    """(line, step) of each step of a log, and the lines at which a program started."""
    here = [event for event in case.of(*STEPS, *_STARTS) if event.origin.file == file]
    steps = [(event.origin.line or 0, whole(event, FIELD.step)) for event in here if event.kind in STEPS]
    starts = sorted(event.origin.line or 0 for event in here if event.kind in _STARTS)
    return sorted((line, step) for line, step in steps if step is not None), starts


def _later_steps_count(event: Event, steps: Sequence[tuple[int, int]], starts: Sequence[int]) -> int:
    line = event.origin.line or 0
    at = bisect_right(steps, (line, 1 << 62))
    before = max((step for _, step in steps[:at]), default=-1)
    number = bisect_right(starts, line)
    end = starts[number] if number < len(starts) else None
    later = {step for there, step in steps[at:] if step > before and (end is None or there < end)}
    return len(later)
