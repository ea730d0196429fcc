"""One pass over the bytes: the places of all patterns at once; only what is around them is parsed.

Both engines (finders.py) only propose places: the result comes from Python's `re` on the line around the place, so the
events are the same with both. A place becomes a `Candidate`, which is cheap; of a flood of one kind the reader takes
the places themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from rlhfdoctor.logs.blocks import Block, Candidate, Hit, Tally, cut, without_redraws
from rlhfdoctor.logs.finders import Places, find_with_hyperscan, find_with_re
from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.logs.restore import looks_changed, raw_lines, restored
from rlhfdoctor.vocabulary.names import Kind


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
        find = find_with_hyperscan(self.patterns) if engine != "re" else None
        if find is None and engine == "hyperscan":
            raise RuntimeError("hyperscan is not installed")
        self.engine = "re" if find is None else "hyperscan"
        self._find = find if find is not None else find_with_re(self.patterns)

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
        tally = tally if tally is not None else Tally()
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
            if changed:
                yield from self._restored(block, list(_hits(block.candidates(places))), looked=not alone)
            else:
                yield from block.candidates(taker.take(block, places) if taker is not None else places)
            line += ends
            current, number = upcoming, number + 1
        self.line_end_count = line - 1

    def _block(self, text: bytes, number: int, line: int, overlap: int, upcoming: bytes, tally: Tally) -> Block:
        return Block(number, text, text.replace(b"\r", b"\n"), line, overlap, upcoming, self.patterns, tally)

    def _restored(self, block: Block, raw: list[Hit], looked: bool) -> Iterator[Hit]:
        """The hits of a block, or what a version of it gives in their place or in addition.

        Configuration is taken as it is where it is seen at all: its readers undo decoration themselves, line by line.
        """
        seen = {hit.pattern.kind for hit in raw if hit.pattern.kind.scope == "config"}
        begins: dict[int, int] = {}
        line, read = block.line, [raw]
        whole = block.text.decode("utf-8", "replace")
        lines = raw_lines(whole)
        for version in restored(whole, looked=looked):
            for part in version:
                begins.update((line + place, line + part.first) for place in range(part.first + 1, part.last + 1))
            text = "\n".join(part.text for part in version).encode("utf-8", "replace")
            copy = self._block(text, 0, 0, 0, b"", block.tally)
            hits = (hit for hit in _hits(copy.candidates(self._find(copy.lines))) if hit.pattern.kind not in seen)
            parts = ((hit, version[hit.line]) for hit in hits)
            read.append([replace(hit, line=line + at.first, raw=lines[at.first], part=at.part) for hit, at in parts])
        return iter(raw if len(read) == 1 else _richest(read, begins))


def _hits(candidates: Iterable[Candidate]) -> Iterator[Hit]:
    return (hit for found in candidates if (hit := found.hit()) is not None)


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
