"""The first events of each kind in a stream; of the others the last ones, parsed at its end only.

Marks of steps and bars come by the hundred thousand. Once enough of a kind was seen, its places are counted and kept
with their blocks; a block is dropped when the blocks behind it have enough of the kind, so that most of a flood is
never decoded. Counted are places of patterns of which nearly every one has been a hit (`Tally.trusts`); marks by
other patterns are looked at if they are among the last.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from itertools import repeat

from rlhfdoctor.logs.blocks import Block, Candidate, Hit, Tally
from rlhfdoctor.logs.finders import Places
from rlhfdoctor.logs.maker import Maker
from rlhfdoctor.logs.quoted import is_quoted
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary.names import Kind

KEEP_COUNT = 400
"""Events of one kind kept from the start of a stream, and as many from its end."""
_LAST_COUNT = KEEP_COUNT + 20
"""Places kept from the end, since a few of them may turn out to be no hits."""
_PROOF_COUNT = 200
"""Places of a pattern that was not known at the flood's start, after which it is counted like the others."""
_HELD_BLOCKS = 8
"""How many blocks back places are kept with their block; older ones are taken out of it."""

Last = deque[tuple[tuple[int, int, int], Candidate | Hit, int | None]]
"""What is kept of one kind, with its order in the stream and the year at that point."""
Held = tuple[Block, Places, int, int | None]
"""Places of one kind in a block, how many segments they are in, and the year at that point."""


class Floods:
    """What comes of each kind in one stream."""

    def __init__(self, maker: Maker, tally: Tally) -> None:
        self._maker, self._tally = maker, tally
        self._counts: Counter[Kind] = Counter()
        """Events made at the start of the stream."""
        self._seen: Counter[Kind] = Counter()
        """What came behind them; the order is that of the first of each."""
        self._last: dict[Kind, Last] = {}
        self._taken_out: dict[Kind, Last] = {}
        """The same of what had been held with its block."""
        self._held: dict[Kind, deque[Held]] = {}
        self._held_counts: Counter[Kind] = Counter()
        self._taken: dict[int, Kind] = {}
        """Patterns whose places are taken."""
        self._unsure: set[int] = set()
        """Those of them that are not counted, as it is not known yet whether their places are hits."""

    def first(self, found: Candidate | Hit) -> Event | None:
        """The event, if it is among the first ones; the others are kept."""
        kind = found.pattern.kind
        if self._counts[kind] < KEEP_COUNT:
            hit = _hit(found)
            if hit is None:
                return None
            self._counts[kind] += 1
            return self._maker.make(hit)
        if isinstance(found, Hit):
            self._keep(found, (found.line, 0, 0))
        elif self._tally.trusts(found.index):
            self._taken[found.index] = kind
            self._keep(found.keep(), found.order)
        else:
            if kind.scope == "phase":
                self._taken[found.index] = kind
                self._unsure.add(found.index)
            hit = found.hit()
            if hit is not None:
                self._keep(hit, found.order)
        return None

    def take(self, block: Block, places: Places) -> Places:
        """Keeps the places of floods; the others are returned."""
        if not self._taken:
            return places
        self._unsure.difference_update([index for index in self._unsure if self._is_proven(index)])
        rest: Places = {}
        own: dict[Kind, Places] = {}
        for index, positions in sorted(places.items(), key=lambda item: item[1][0]):
            kind = self._taken.get(index)
            if kind is None:
                rest[index] = positions
            else:
                own.setdefault(kind, {})[index] = positions
        for kind, here in own.items():
            last = max(here, key=lambda index: here[index][-1])
            for found in block.candidates({last: here[last][-1:]}):
                self._maker.look_at(found)
            self._hold(kind, block, here)
        for kind in self._held:
            self._release(kind, block.number - _HELD_BLOCKS)
        return rest

    def _is_proven(self, index: int) -> bool:
        """Whether enough places of a pattern were looked at, and nearly every one was a hit."""
        return self._tally.tried[index] >= _PROOF_COUNT and self._tally.trusts(index)

    def last(self) -> Iterator[Event]:
        """The events at the end of the stream, of one kind after the other."""
        for kind in self._seen:
            self._release(kind, None)
            rows = [*self._taken_out.get(kind, ()), *self._last.get(kind, ())]
            kept = []
            for _, found, year in sorted(rows, key=lambda row: row[0]):
                hit = _hit(found)
                if hit is not None:
                    kept.append((hit, year))
            for hit, year in kept[-KEEP_COUNT:]:
                self._maker.year = year
                yield self._maker.make(hit)

    def dropped(self) -> Iterator[tuple[Kind, int]]:
        """Of which kind how many were left out."""
        return ((kind, count - KEEP_COUNT) for kind, count in self._seen.items() if count > KEEP_COUNT)

    def _keep(self, found: Candidate | Hit, order: tuple[int, int, int]) -> None:
        kind = found.pattern.kind
        self._maker.look_at(found)
        self._seen[kind] += 1
        self._last.setdefault(kind, deque(maxlen=_LAST_COUNT)).append((order, found, self._maker.year))

    def _hold(self, kind: Kind, block: Block, places: Places) -> None:
        count = sum(_segment_count(block.lines, here) for index, here in places.items() if index not in self._unsure)
        self._seen[kind] += count
        held = self._held.setdefault(kind, deque())
        held.append((block, places, count, self._maker.year))
        self._held_counts[kind] += count
        while self._held_counts[kind] - held[0][2] >= _LAST_COUNT:
            self._held_counts[kind] -= held.popleft()[2]

    def _release(self, kind: Kind, number: int | None) -> None:
        """Takes what is kept of a kind out of the blocks before the one with this number, or of all."""
        held = self._held.get(kind, deque())
        out: Last = self._taken_out.setdefault(kind, deque(maxlen=_LAST_COUNT))
        while held and (number is None or held[0][0].number < number):
            block, places, count, year = held.popleft()
            self._held_counts[kind] -= count
            for found in block.candidates(places):
                kept = found.hit() if found.index in self._unsure else found.keep()
                if kept is not None:
                    out.append((found.order, kept, year))


def _segment_count(lines: bytes, positions: Sequence[int]) -> int:
    """In how many segments these positions of one pattern are."""
    line_ends = list(map(lines.find, repeat(b"\n"), positions, positions[1:]))
    return len(positions) - line_ends.count(-1)


def _hit(found: Candidate | Hit) -> Hit | None:
    hit = found if isinstance(found, Hit) else found.hit()
    return None if hit is None or is_quoted(hit) else hit
