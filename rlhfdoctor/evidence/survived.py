"""Failures that the run outlived: its log shows further steps behind them without another program's start in between.

A handled error is no death, and a model can write any message of a failure into its answer. A start that resumes, or
of the same command line, is another attempt at the same run. What the kernel killed while a log with times went on was
not the run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
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
_LATER_S = 60.0
"""A step so long after a kill in another file came after it: the times of `dmesg -T` may be inaccurate."""
_COMMANDS = (EVENT.config.argv, EVENT.config.command, EVENT.config.overrides)
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
        if (event.origin.file not in logs or logs[event.origin.file].later_steps(event.origin.line or 0) < least)
        and not _goes_on(event, logs.values())
    ]


def _goes_on(event: Event, logs: Collection[_Log]) -> bool:
    """Whether every log of steps goes on with times long after a kill that the kernel reports in another file."""
    if event.kind.scope != "kernel" or event.time is None or not logs:
        return False
    return all(log.goes_on_after(event.time) for log in logs)


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
        self._times: list[tuple[float, int]] = []
        """Unix seconds and number of those with a time."""
        self._starts: list[int] = []
        """Of other programs."""
        commands = set[str]()
        attempts = list[int]()
        for event in sorted(events, key=lambda event: event.origin.line or 0):
            line, step = event.origin.line or 0, whole(event, FIELD.step)
            if event.kind not in STEPS:
                self._starts.append(line)
                if event.kind == EVENT.phase.checkpoint_load or (event.kind in _COMMANDS and event.text in commands):
                    attempts.append(line)
                if event.kind in _COMMANDS:
                    commands.add(event.text)
            elif step is not None:
                self._steps.append((line, step))
                if event.time is not None:
                    self._times.append((event.time, step))
        self._starts = [line for line in self._starts if not self._is_attempt(line, attempts)]
        self._highest = [-1, *accumulate((step for _, step in self._steps), max)]
        """Of the first n steps."""

    def _is_attempt(self, start: int, attempts: Sequence[int]) -> bool:
        """Whether a start belongs to one that resumes: no step stands between the two."""
        at = bisect_right(self._steps, (start, 1 << 62))
        first = self._steps[at - 1][0] if at else -1
        end = self._steps[at][0] if at < len(self._steps) else 1 << 62
        number = bisect_right(attempts, first)
        return number < len(attempts) and attempts[number] < end

    def goes_on_after(self, time: float) -> bool:
        """Whether enough steps with higher numbers follow a time."""
        at = bisect_right(self._times, (time + _LATER_S, 0))
        highest = max((step for _, step in self._times[:at]), default=None)
        later = {step for _, step in self._times[at:] if highest is not None and step > highest}
        return len(later) >= _STEPS_COUNT and self._times == sorted(self._times)

    def later_steps(self, line: int) -> int:
        """How many steps with higher numbers follow a line before a program starts again."""
        at, number = bisect_right(self._steps, (line, 1 << 62)), bisect_right(self._starts, line)
        end = self._starts[number] if number < len(self._starts) else 1 << 62
        later = set[int]()
        for there, step in self._steps[at : at + _LOOKED_AT_COUNT]:
            if there < end and step > self._highest[at]:
                later.add(step)
        return len(later)
