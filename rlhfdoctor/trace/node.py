"""What one recorder wrote, in bounded memory: thinned where there is more, its ends kept."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import StoredEvent
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.types import Gap

_MOST_FIGURES, _LEAST_FIGURES = 16 << 20, 1 << 16
"""128 MiB for all nodes together; a day of 64 processes, thinned for a verdict, has a tenth of it. No node gets less
than the least.
"""
_MOST_EVENTS, _LEAST_EVENTS = 20_000, 500
"""Kept from the start, and as many from the end, likewise."""
_MOST_LETTERS, _LEAST_LETTERS = 6 << 20, 1 << 16
"""Of these events, likewise."""


@dataclass(slots=True)
class Columns:
    """One table of a trace, column by column; row i belongs to `times_ns[i]` and `keys[i]`."""

    names: tuple[str, ...]
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Wall clock, Unix nanoseconds."""
    mono_ns: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("q"))
    values: dict[str, array[int]] = field(default_factory=dict)
    """`schema.NULL` means None; `schema.scale_of` what to divide by."""


@dataclass(slots=True)
class NodeTrace:
    """What one recorder wrote."""

    folder: str
    node: str
    run: Mapping[str, Any]
    """run.json, or empty."""
    header: Mapping[str, Any]
    """Of the last segment."""
    tables: dict[str, Columns]
    events: list[StoredEvent]
    """In order of time; each has `kind`, `wall_ns`, `mono_ns`."""
    gaps: list[Gap]
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Wall clock of every sample that was read."""
    path: str = ""
    """Where the segments lie; `folder` is its name for the user, which differs while an archive is unpacked."""


class Held:
    """Fills a trace within these bounds."""

    def __init__(self, trace: NodeTrace, after_ns: int, share: int = 1) -> None:
        """
        Args:
            after_ns: samples from this wall-clock time on are thinned last.
            share: how many traces are held at once.
        """
        self._trace, self._after_ns = trace, after_ns
        self._most_figures = max(_MOST_FIGURES // share, _LEAST_FIGURES)
        self._most_events = max(_MOST_EVENTS // share, _LEAST_EVENTS)
        self._most_letters = max(_MOST_LETTERS // share, _LEAST_LETTERS)
        self._figures = 0
        self._counts: dict[str, list[tuple[int, int]]] = {}
        """Table -> time and rows of each sample, in their order."""
        self._every = 1
        """Which one of so many samples is kept."""
        self._letters = 0
        self._last: deque[tuple[StoredEvent, int]] = deque()
        self._last_letters = 0
        self._dropped = 0

    def add_sample(self, sample: Sample, columns: Mapping[str, Sequence[str]]) -> None:
        """All of its tables; `columns` as the segment's header names them."""
        self._trace.times_ns.append(sample.wall_ns)
        for name, (keys, values) in sample.tables.items():
            self._counts.setdefault(name, []).append((sample.wall_ns, len(keys)))
            self._figures += _append(self._trace.tables, name, columns[name], keys, values, sample)
        while self._figures > self._most_figures and len(self._trace.times_ns) > 1:
            self._halve()

    def _halve(self) -> None:
        """Leaves every other sample out; of those that count most only where it is not enough."""
        trace, before = self._trace, self._figures
        kept = {time for time in trace.times_ns if time >= self._after_ns} | set(trace.times_ns[::2])
        if len(kept) > 0.9 * len(trace.times_ns):
            kept = set(trace.times_ns[::2])
        trace.times_ns = array("q", [time for time in trace.times_ns if time in kept])
        self._figures = 0
        for name, table in trace.tables.items():
            for rows in (table.times_ns, table.mono_ns, table.keys, *table.values.values()):
                rows[:] = self._rows_of(name, rows, kept)
            self._counts[name] = [one for one in self._counts[name] if one[0] in kept]
            self._figures += len(table.keys) * (len(table.values) + 3)
        self._every *= 2
        if self._figures >= before:  # all of them at one time
            trace.tables.clear()
            self._counts.clear()
            trace.times_ns, self._figures = array("q"), 0

    def _rows_of(self, name: str, rows: array[int], kept: Collection[int]) -> array[int]:
        """A column with the rows of these samples only."""
        found, place = array("q"), 0
        for time, count in self._counts[name]:
            if time in kept:
                found.extend(rows[place : place + count])
            place += count
        return found

    def add_event(self, event: StoredEvent) -> None:
        """An event, if it is among the first or the last ones."""
        size = _letters(event)
        fits = len(self._trace.events) < self._most_events and self._letters + size <= self._most_letters
        if not self._last and fits:
            self._trace.events.append(event)
            self._letters += size
            return
        self._last.append((event, size))
        self._last_letters += size
        while len(self._last) > self._most_events or self._last_letters > self._most_letters:
            self._last_letters -= self._last.popleft()[1]
            self._dropped += 1

    def finish(self) -> None:
        """Behind the last one; what was left out is a gap."""
        self._trace.events.extend(event for event, _ in self._last)
        what = quoted(self._trace.folder)
        if self._every > 1:
            why = say(
                "holds more samples than fit in memory: one in {every} was read, of its end more", every=self._every
            )
            self._trace.gaps.append(Gap(what=what, why=why))
        if self._dropped:
            why = say("holds more events than fit in memory: {count} in its middle were left out", count=self._dropped)
            self._trace.gaps.append(Gap(what=what, why=why))


def _letters(event: StoredEvent) -> int:
    """About the memory that an event takes, in bytes: letters, and some for each value however deep it lies."""
    size, left = 100, list(event.values())
    while left:
        value = left.pop()
        size += len(value) if isinstance(value, str) else 8
        if isinstance(value, (list, tuple)):
            left.extend(value)
        elif isinstance(value, dict):
            left.extend((*value, *value.values()))
    return size


def _append(
    tables: dict[str, Columns],
    name: str,
    columns: Sequence[str],
    keys: Sequence[int],
    values: Sequence[Sequence[int]],
    sample: Sample,
) -> int:
    """One table of a sample; how many figures that were."""
    table = tables.get(name)
    if table is None:
        table = tables[name] = Columns(tuple(columns), values={c: array("q") for c in columns})
    count = len(keys)
    before = len(table.keys)
    table.times_ns.extend(array("q", [sample.wall_ns]) * count)
    table.mono_ns.extend(array("q", [sample.mono_ns]) * count)
    table.keys.extend(keys)
    for column, numbers in zip(columns, values):
        if column not in table.values:  # a segment of a newer recorder
            table.values[column] = array("q", [NULL] * before)
        table.values[column].extend(numbers)
    for numbers_so_far in table.values.values():
        if len(numbers_so_far) < before + count:
            numbers_so_far.extend([NULL] * (before + count - len(numbers_so_far)))
    table.names = tuple(table.values)
    return count * (len(table.values) + 3)
