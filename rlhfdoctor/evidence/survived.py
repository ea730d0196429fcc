"""Failures that the run outlived: its log shows further steps behind them without a start in between.

A handled error is no death, and a model can write any message of a failure into its answer.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate

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
_LOOKED_AT_COUNT = 100
"""Lines of steps: each rank may write one, and bars are drawn more than once."""
_STEPS_BEFORE_GOOD_END_COUNT = 2
"""The same where the run's end is shown, and it is a good one."""


def without_survived(case: Case, shown: Sequence[tuple[Event, Failure]]) -> list[tuple[Event, Failure]]:
    """The failures behind which the run did not go on, by the log in which each of them stands."""
    least = _STEPS_COUNT if find_good_end(case) is None else _STEPS_BEFORE_GOOD_END_COUNT
    logs = _logs(case)
    return [
        (event, found)
        for event, found in shown
        if event.origin.file not in logs or logs[event.origin.file].later_steps(event.origin.line or 0) < least
    ]


def later_steps(case: Case, event: Event) -> int:
    """How many steps the log of a failure shows behind it."""
    log = _logs(case).get(event.origin.file)
    return 0 if log is None else log.later_steps(event.origin.line or 0)


def _logs(case: Case) -> dict[str, _Log]:
    logs: dict[str, list[Event]] = {}
    for event in case.of(*STEPS, *_STARTS):
        logs.setdefault(event.origin.file, []).append(event)
    return {file: _Log(events) for file, events in logs.items()}


class _Log:
    """The steps of one log, in order of lines, with the lines at which a program started."""

    def __init__(self, events: Iterable[Event]) -> None:
        self._steps: list[tuple[int, int]] = []
        """Line and number of each."""
        self._starts: list[int] = []
        for event in sorted(events, key=lambda event: event.origin.line or 0):
            line, step = event.origin.line or 0, whole(event, FIELD.step)
            if event.kind not in STEPS:
                self._starts.append(line)
            elif step is not None:
                self._steps.append((line, step))
        self._highest = [-1, *accumulate((step for _, step in self._steps), max)]
        """Of the first n steps."""

    def later_steps(self, line: int) -> int:
        """How many steps with higher numbers follow a line before a program starts again."""
        at, number = bisect_right(self._steps, (line, 1 << 62)), bisect_right(self._starts, line)
        end = self._starts[number] if number < len(self._starts) else 1 << 62
        later = set[int]()
        for there, step in self._steps[at : at + _LOOKED_AT_COUNT]:
            if there < end and step > self._highest[at]:
                later.add(step)
        return len(later)
