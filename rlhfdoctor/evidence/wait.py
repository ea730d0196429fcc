"""The wait before a collective's timeout: which lines belong to it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD

_NEAR_LINES = 200
_BAR_LINES = 40
_MOST_WAITS = 6
"""Work that would take longer than this multiple of the limit is the training itself."""
_STACK_LINES = 40
_STEPS = (EVENT.phase.step, EVENT.phase.episode, EVENT.phase.update)
_ERRORS = (EVENT.python.error, EVENT.python.bare_error)


def find_busy(case: Case, first: Event, limit_s: float) -> Event | None:
    """A progress bar of work that one rank did while the others waited.

    It began about when the wait began, and is near the report. Ignores the overall training bar: it has hours
    remaining, or steps end while it runs.
    """
    for bar in reversed(case.of(EVENT.progress.long)):
        elapsed, left = (read_elapsed(str(bar.fields.get(key) or "")) for key in (FIELD.elapsed_text, FIELD.left_text))
        lines = (first.origin.line or 0) - (bar.origin.line or 0)
        near = bar.origin.file != first.origin.file or abs(lines) <= _BAR_LINES
        fits = 0.9 <= elapsed / max(limit_s, 1) <= 1.5 and elapsed + left <= _MOST_WAITS * max(limit_s, 1)
        if near and fits and is_near(bar, first, limit_s) and not _stepped(case, bar, max(lines, 1)):
            return bar
    return None


def _stepped(case: Case, bar: Event, lines: int) -> bool:
    """Whether steps of the training ended shortly before a bar, on its own line, or within this many lines after it."""
    line = bar.origin.line or 0
    return case.index.has(_STEPS, bar.origin.file, line - _BAR_LINES, line + lines - 1)


def without_stacks_of(frames: Sequence[Event], waits: Iterable[Event]) -> list[Event]:
    """Frames that are in no stack with one that waits: a rank that gathers the rewards waits, it does not score."""
    lines: dict[tuple[object, ...], list[int]] = {}
    for wait in waits:
        lines.setdefault(_stack(wait), []).append(wait.origin.line or 0)
    for found in lines.values():
        found.sort()

    def is_behind(frame: Event) -> bool:
        found, line = lines.get(_stack(frame), []), frame.origin.line or 0
        next_to = bisect_left(found, line - _STACK_LINES)
        return next_to < len(found) and found[next_to] <= line + _STACK_LINES

    return [frame for frame in frames if not is_behind(frame)]


def _stack(frame: Event) -> tuple[object, ...]:
    """Who writes it, and where."""
    return frame.origin.file, frame.origin.rank, frame.origin.pid


def is_over(case: Case, frame: Event, timeout: Event) -> bool:
    """Whether the traceback of a frame ended in an error of its own before the timeout."""
    start, end = frame.origin.line or 0, timeout.origin.line or 0
    same = frame.origin.file == timeout.origin.file
    return same and case.index.has(_ERRORS, frame.origin.file, start + 1, end - 1)


def is_near(one: Event, timeout: Event, limit_s: float) -> bool:
    """Whether a line belongs to the time of the timeout: in the wait before it, or in the report after it."""
    if one.time is not None and timeout.time is not None:
        return -limit_s - 300 <= one.time - timeout.time <= 300
    same = one.origin.file == timeout.origin.file
    return not same or abs((one.origin.line or 0) - (timeout.origin.line or 0)) <= _NEAR_LINES


def read_elapsed(text: str) -> float:
    """Seconds of tqdm's elapsed time: `09:11`, `1:02:03`."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part.isdecimal() and len(part) < 10 else 0)
    return seconds
