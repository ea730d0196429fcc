"""Events sorted once by kind, by file, by line, so that no question walks all of them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary.names import Kind

Placed = tuple[int, Event]
"""An event with its place in the order of time."""


class Index:
    """The events of a case."""

    def __init__(self, events: Sequence[Event]) -> None:
        self._events = events

    @cached_property
    def _by_kind(self) -> dict[Kind, list[Placed]]:
        found: dict[Kind, list[Placed]] = {}
        for place, event in enumerate(self._events):
            found.setdefault(event.kind, []).append((place, event))
        return found

    @cached_property
    def _by_line(self) -> dict[str, tuple[list[int], list[Placed]]]:
        """File -> lines in order, and the events on them; an event without a line is on line 0."""
        found: dict[str, list[Placed]] = {}
        for place, event in enumerate(self._events):
            found.setdefault(event.origin.file, []).append((place, event))
        return {file: _by_line(rows) for file, rows in found.items()}

    @cached_property
    def _lines(self) -> dict[tuple[str, Kind], list[int]]:
        """Lines of each file with events of a kind, in order."""
        found: dict[tuple[str, Kind], list[int]] = {}
        for file, (lines, rows) in self._by_line.items():
            for line, (_, event) in zip(lines, rows):
                found.setdefault((file, event.kind), []).append(line)
        return found

    @cached_property
    def longest(self) -> dict[str, int]:
        """File -> characters of the longest line of which there is an event."""
        return {file: max(len(event.text) for _, event in rows) for file, (_, rows) in self._by_line.items()}

    def of(self, kinds: Iterable[Kind]) -> list[Event]:
        """Events of these kinds, in order of time."""
        groups = [rows for kind in dict.fromkeys(kinds) if (rows := self._by_kind.get(kind))]
        if len(groups) == 1:
            return [event for _, event in groups[0]]
        return [event for _, event in sorted((row for rows in groups for row in rows), key=_place)]

    def first(self, kinds: Iterable[Kind]) -> Event | None:
        """The first event of these kinds."""
        firsts = [rows[0] for kind in kinds if (rows := self._by_kind.get(kind))]
        return min(firsts, key=_place)[1] if firsts else None

    def last(self, kinds: Iterable[Kind]) -> Event | None:
        """The last event of these kinds."""
        lasts = [rows[-1] for kind in kinds if (rows := self._by_kind.get(kind))]
        return max(lasts, key=_place)[1] if lasts else None

    def has(self, kinds: Iterable[Kind], file: str, first: int, last: int) -> bool:
        """Whether one of these kinds is on a line of a file, from one line to another."""
        for kind in kinds:
            lines = self._lines.get((file, kind), [])
            if bisect_left(lines, first) < bisect_right(lines, last):
                return True
        return False

    def near(self, file: str, first: int, last: int) -> Iterator[Event]:
        """Events of a file from one line to another, in order of time."""
        lines, rows = self._by_line.get(file, ([], []))
        inside = rows[bisect_left(lines, first) : bisect_right(lines, last)]
        return (event for _, event in sorted(inside, key=_place))


def _place(row: Placed) -> int:
    return row[0]


def _by_line(rows: list[Placed]) -> tuple[list[int], list[Placed]]:
    ranked = sorted(rows, key=lambda row: row[1].origin.line or 0)
    return [event.origin.line or 0 for _, event in ranked], ranked
