"""One pass over the bytes: the places of all patterns at once; only what is around them is parsed.

Both engines (finders.py) only propose places: the result comes from Python's `re` on the line around the place, so the
events are the same with both. A place becomes a `Candidate`, which is cheap; of a flood of one kind the reader takes
the places themselves.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from rlhfdoctor.logs.blocks import Block, Candidate, Hit, Tally, cut, without_redraws
from rlhfdoctor.logs.finders import Places, find_with_hyperscan, find_with_re
from rlhfdoctor.logs.patience import Patience
from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.logs.restore import looks_changed, raw_lines, restored
from rlhfdoctor.vocabulary.names import Kind

_ENDS_COUNT = 420
"""Of the hits of one pattern in a block that is restored: the first and as many last ones are looked at."""


class Taker(Protocol):
    """Takes the places of what comes in floods."""

    def take(self, block: Block, places: Places) -> Places:
        """The places -> those that are left."""


class Scanner:
    """All patterns, ready to run over any number of streams."""

    def __init__(self, patterns: Sequence[Pattern], engine: str = "auto") -> None:
        """`engine` is `hyperscan`, `re`, or `auto` (hyperscan if it can be imported)."""
        self.patterns = tuple(patterns)
        self.longest_line_cut = False
        """Whether the last stream had a line too long to be seen in one piece."""
        self.line_end_count = 0
        """How many line ends the last stream had."""
        self.patience = Patience()
        find = find_with_hyperscan(self.patterns) if engine != "re" else None
        if find is None and engine == "hyperscan":
            raise RuntimeError("hyperscan is not installed")
        self.engine = "re" if find is None else "hyperscan"
        self._find = find if find is not None else find_with_re(self.patterns)

    def anew(self) -> Scanner:
        """The same for another analysis."""
        other = copy.copy(self)
        other.patience = Patience()
        return other

    def scan(self, stream: Iterable[bytes], *, restore: bool = False) -> Iterator[Hit]:
        """Hits in the order of the text. Memory is bounded, regardless of the length of a line.

        With `restore`, lines are also read as they were before they were quoted, wrapped or escaped.
        """
        for found in self.candidates(stream, restore=restore):
            hit = found.hit() if isinstance(found, Candidate) else found
            if hit is not None:
                yield hit

    def places(self, stream: Iterable[bytes]) -> Iterator[Places]:
        """Where patterns may match, block by block: the first pass alone, as benchmarks measure it."""
        for text, overlap in cut(stream):
            kept = text if overlap else without_redraws(text, text.count(b"\n"))
            yield self._find(kept.replace(b"\r", b"\n"))

    def candidates(
        self, stream: Iterable[bytes], *, restore: bool = False, tally: Tally | None = None, taker: Taker | None = None
    ) -> Iterator[Candidate | Hit]:
        """The same, before it is known whether there is a match; hits where it had to be known.

        Args:
            stream: the bytes, in pieces of any size.
            restore: as for `scan`.
            tally: what becomes of them is counted here.
            taker: takes places before anything is made of them.
        """
        line, number = 1, 0
        tally = tally if tally is not None else Tally(patience=self.patience)
        self.longest_line_cut = False
        blocks = cut(stream)
        current = next(blocks, None)
        while current is not None:
            upcoming = next(blocks, None)
            text, overlap = current
            self.longest_line_cut |= overlap > 0
            ends = text.count(b"\n", overlap)
            kept = text if overlap else without_redraws(text, ends)
            block = self._block(kept, number, line, overlap, upcoming[0] if upcoming else b"", tally)
            places = self._find(block.lines)
            alone = upcoming is None and not number
            changed = restore and not overlap and (alone or looks_changed(text))
            is_end = upcoming is None and number > 0  # where a death is
            if changed and (is_end or tally.patience.has_for_restoring()):
                with tally.patience.restoring(len(text)):
                    hits = self._restored(block, places, looked=not alone)
                yield from hits
            else:
                tally.as_is_count += changed
                yield from block.candidates(taker.take(block, places) if taker is not None else places)
            line += ends
            current, number = upcoming, number + 1
        self.line_end_count = line - 1

    def _block(self, text: bytes, number: int, line: int, overlap: int, upcoming: bytes, tally: Tally) -> Block:
        return Block(number, text, text.replace(b"\r", b"\n"), line, overlap, upcoming, self.patterns, tally)

    def _restored(self, block: Block, places: Places, looked: bool) -> list[Hit]:
        """The hits of a block, or what a version of it gives in their place or in addition.

        Configuration is taken as it is where it is seen at all: its readers undo decoration themselves, line by line.
        """
        raw = _ends(block, places)
        seen = {hit.pattern.kind for hit in raw.hits if hit.pattern.kind.scope == "config"}
        begins: dict[int, int] = {}
        line, read = block.line, [raw]
        whole = block.text.decode("utf-8", "replace")
        lines = raw_lines(whole)
        for version in restored(whole, looked=looked):
            for part in version:
                begins.update((line + place, line + part.first) for place in range(part.first + 1, part.last + 1))
            text = "\n".join(part.text for part in version).encode("utf-8", "replace")
            own = self._block(text, 0, 0, 0, b"", block.tally)
            found = _ends(own, self._find(own.lines))
            parts = ((hit, version[hit.line]) for hit in found.hits if hit.pattern.kind not in seen)
            hits = [replace(hit, line=line + at.first, raw=lines[at.first], part=at.part) for hit, at in parts]
            passed = {
                kind: one._replace(behind=line + version[one.behind].first, before=line + version[one.before].first)
                for kind, one in found.passed.items()
            }
            read.append(_Ends(hits, passed))
        most = {kind: max(one.passed.get(kind, _NONE) for one in read) for one in read for kind in one.passed}
        block.tally.thinned.update({kind: one.missed for kind, one in most.items()})
        kept = [[hit for hit in one.hits if not most.get(hit.pattern.kind, _NONE).holds(hit.line)] for one in read]
        return raw.hits if len(read) == 1 else _richest(kept, begins)


class _Passed(NamedTuple):
    """How many hits of a kind were not looked at, and between which lines they are."""

    missed: int
    behind: int
    before: int

    def holds(self, line: int) -> bool:
        """Whether a line is between them."""
        return self.behind < line < self.before


_NONE = _Passed(0, 0, 0)


class _Ends(NamedTuple):
    """Of a block the hits, in order, but those between the first and last ones of a kind."""

    hits: list[Hit]
    passed: dict[Kind, _Passed]


def _ends(block: Block, places: Places) -> _Ends:
    """Passes over only what a pattern proposes whose places have been hits."""
    first: list[tuple[tuple[int, int, int], Hit]] = []
    last: dict[Kind, deque[Candidate]] = {}
    counts, behind, more = Counter[Kind](), dict[Kind, int](), Counter[Kind]()
    for found in block.candidates(places):
        kind = found.pattern.kind
        if counts[kind] >= _ENDS_COUNT and block.tally.trusts(found.index):
            last.setdefault(kind, deque(maxlen=_ENDS_COUNT)).append(found)
            more[kind] += 1
        elif (hit := found.hit()) is not None:
            counts[kind] += 1
            behind[kind] = hit.line
            first.append((found.order, hit))
    first += [(found.order, hit) for ends in last.values() for found in ends if (hit := found.hit()) is not None]
    passed = {
        kind: _Passed(more[kind] - len(ends), behind[kind], ends[0].line)
        for kind, ends in last.items()
        if more[kind] > len(ends)
    }
    return _Ends([hit for _, hit in sorted(first, key=lambda row: row[0])], passed)


def _richest(read: Sequence[list[Hit]], begins: dict[int, int]) -> list[Hit]:
    """For each message, which is a kind with the line where it begins, the hits of the version that says most.

    That is the one with most fields, then with most hits, then with the longest fields.
    """
    best: dict[tuple[Kind, int], tuple[tuple[int, int, int], list[Hit]]] = {}
    for hits in read:
        groups: dict[tuple[Kind, int], list[Hit]] = {}
        for hit in hits:
            groups.setdefault((hit.pattern.kind, begins.get(hit.line, hit.line)), []).append(hit)
        for key, group in groups.items():
            texts = [[text for text in hit.match.groups() if text is not None] for hit in group]
            rank = max(map(len, texts)), len(group), sum(len(text) for found in texts for text in found)
            if key not in best or rank > best[key][0]:
                best[key] = rank, group
    return sorted((hit for _, group in best.values() for hit in group), key=lambda hit: hit.line)
