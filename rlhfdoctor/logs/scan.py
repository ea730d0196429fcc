"""One pass over the bytes: the places of all patterns at once; only what is around them is parsed.

Both engines (finders.py) only propose places: the result comes from Python's `re` on the line around the place, so the
events are the same with both. A place becomes a `Candidate`, which is cheap; whoever reads many of one kind decides
which of them are worth a match.

A line ends at `\n`; a carriage return (progress bars) ends a segment, so that the text
after the last redraw is seen. Colour codes are taken out before anything is matched.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rlhfdoctor.logs.finders import find_with_hyperscan, find_with_re
from rlhfdoctor.logs.pattern import Pattern, compiled
from rlhfdoctor.logs.restore import looks_changed, restored
from rlhfdoctor.vocabulary.names import Kind

BLOCK_BYTES = 512 * 1024
"""Size of a block; blocks end at a line's end if possible."""
_LONGEST_LINE = 4 * 1024 * 1024
_WINDOW = 64 * 1024
_AFTER_BYTES = 64 * 1024
_LINE_BYTES = 256
"""Of a line behind a hit, where many are asked for."""
_NEAR_BYTES = 600
"""Of a line behind a hit, where that is enough to see them all."""
_LONG = 100
_MOST_LONG = 32
"""How many hits of one pattern get more than `_LONG` lines behind them, in one stream."""
_OVERLAP = 8 * 1024
_REDRAWS = 4
"""Carriage returns a line, from which on it is one bar's drawings."""
_TRUSTED_RATIO = 0.98
"""Share of a pattern's candidates that were hits, from which on they are taken for hits."""
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\n]*\x07|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class Hit:
    """A pattern and the text on which it matched."""

    pattern: Pattern
    match: re.Match[str]
    text: str
    line: int
    """Line number from 1."""
    after: tuple[str, ...]


class Candidate:
    """A segment on which a pattern may match."""

    __slots__ = ("_behind", "_scanner", "_seen", "_text", "index", "line", "pattern")

    def __init__(
        self, scanner: Scanner, index: int, text: bytes, line: int, seen: int, behind: tuple[bytes, int, bytes] | None
    ) -> None:
        """`behind` is the block, the segment's end in it, and the next block, if the pattern wants lines from there."""
        self.pattern = scanner.patterns[index]
        self.line = line
        self.index = index
        self._scanner = scanner
        self._text = text
        self._seen = seen
        """Bytes at its beginning that the block before had, too; a match within them was found there."""
        self._behind: tuple[bytes, int, bytes] | tuple[str, ...] | None = behind

    def text(self) -> str:
        """The segment."""
        return self._text.decode("utf-8", "replace")

    def hit(self) -> Hit | None:
        """The match, if there is one."""
        text = self.text()
        match = compiled(self.pattern.regex).search(text)
        self._scanner.tried[self.index] += 1
        if match is None:
            return None
        if self._seen and len(text[: match.end()].encode("utf-8", "replace")) <= self._seen:
            return None
        self._scanner.matched[self.index] += 1
        return Hit(self.pattern, match, text, self.line, self._following())

    def keep(self) -> Candidate:
        """The same without the blocks that it came from."""
        self._behind = self._following() or None
        return self

    def _following(self) -> tuple[str, ...]:
        if self._behind is None or isinstance(self._behind[0], str):
            return self._behind or ()
        block, end, upcoming = self._behind
        follow = self.pattern.follow
        if follow > _LONG:
            self._scanner.long[self.index] += 1
            if self._scanner.long[self.index] > _MOST_LONG:
                return ()
        return _following(block, end, upcoming, follow)


class Scanner:
    """All patterns, ready to run over any number of streams."""

    def __init__(self, patterns: Sequence[Pattern], engine: str = "auto") -> None:
        """`engine` is `hyperscan`, `re`, or `auto` (hyperscan if it can be imported)."""
        self.patterns = tuple(patterns)
        self.longest_line_cut = False
        """Whether the last stream had a line too long to be seen in one piece."""
        self.tried: Counter[int] = Counter()
        """How many candidates of each pattern of the current stream were looked at."""
        self.matched: Counter[int] = Counter()
        """How many of them were hits."""
        self.long: Counter[int] = Counter()
        """How many hits of a pattern had many lines behind them."""
        find = find_with_hyperscan(self.patterns) if engine != "re" else None
        if find is None and engine == "hyperscan":
            raise RuntimeError("hyperscan is not installed")
        self.engine = "re" if find is None else "hyperscan"
        self._find = find if find is not None else find_with_re(self.patterns)

    def scan(self, stream: Iterable[bytes], *, restore: bool = False) -> Iterator[Hit]:
        """Hits in the order of the text. Memory is bounded, regardless of the length of a line.

        With `restore`, lines are also read as they were before somebody quoted, wrapped or escaped them.
        """
        for found in self.candidates(stream, restore=restore):
            hit = found.hit() if isinstance(found, Candidate) else found
            if hit is not None:
                yield hit

    def candidates(self, stream: Iterable[bytes], *, restore: bool = False) -> Iterator[Candidate | Hit]:
        """The same, before it is known whether there is a match; hits where it had to be known."""
        line = 1
        self.longest_line_cut = False
        for counter in (self.long, self.tried, self.matched):
            counter.clear()
        blocks = _blocks(stream)
        current = next(blocks, None)
        alone = True
        while current is not None:
            upcoming = next(blocks, None)
            block, overlap = current
            if not overlap:
                block = _without_redraws(block)
            self.longest_line_cut |= overlap > 0
            found = self._candidates(block, line, upcoming[0] if upcoming else b"", overlap)
            alone = alone and upcoming is None
            if restore and not overlap and (alone or looks_changed(block)):
                yield from self._restored(block, line, list(_hits(found)))
            else:
                yield from found
            line += block.count(b"\n", overlap)
            current, alone = upcoming, False

    def trusts(self, index: int) -> bool:
        """Whether nearly all candidates of a pattern have been hits so far in this stream."""
        return self.matched[index] >= _TRUSTED_RATIO * self.tried[index] > 0

    def _restored(self, block: bytes, line: int, raw: list[Hit]) -> Iterator[Hit]:
        """The hits of a block, or what a version of it gives in their place or in addition.

        Configuration is taken as it is where it is seen at all: its readers undo decoration themselves, line by line.
        """
        seen = {hit.pattern.kind for hit in raw if hit.pattern.kind.scope == "config"}
        begins: dict[int, int] = {}
        read = [raw]
        for version in restored(block.decode("utf-8", "replace")):
            for part in version:
                begins.update((line + place, line + part.first) for place in range(part.first + 1, part.last + 1))
            text = "\n".join(part.text for part in version).encode("utf-8", "replace")
            hits = (hit for hit in _hits(self._candidates(text, 0, b"", 0)) if hit.pattern.kind not in seen)
            read.append([replace(hit, line=line + version[hit.line].first) for hit in hits])
        return iter(raw if len(read) == 1 else _richest(read, begins))

    def _candidates(self, block: bytes, line: int, upcoming: bytes, overlap: int) -> Iterator[Candidate]:
        lines = block.replace(b"\r", b"\n")
        counted = overlap
        for start, end, indexes in _segments(lines, self._find(lines)):
            if end <= overlap:
                continue
            if start > counted:
                line += block.count(b"\n", counted, start)
                counted = start
            text, seen = block[start:end], max(overlap - start, 0)
            for index in indexes:
                behind = (block, end, upcoming) if self.patterns[index].follow else None
                yield Candidate(self, index, text, line, seen, behind)


def _hits(candidates: Iterable[Candidate]) -> Iterator[Hit]:
    return (hit for found in candidates if (hit := found.hit()) is not None)


def _segments(lines: bytes, places: list[tuple[int, int]]) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Start and end of each segment with places in it, and the patterns that may match there, in order."""
    places.sort()
    start, end, whole = -1, -1, False
    indexes: list[int] = []
    for position, index in places:
        if position > end or not whole:
            begin, until = _segment(lines, position)
            if begin != start:
                if indexes:
                    yield start, end, sorted(set(indexes)) if len(indexes) > 1 else indexes
                indexes = []
            start, end, whole = begin, until, until - begin < _WINDOW
        indexes.append(index)
    if indexes:
        yield start, end, sorted(set(indexes)) if len(indexes) > 1 else indexes


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


def _blocks(stream: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """(block, bytes of it that are repeated from the block before).

    A block ends at a newline. A line longer than `_LONGEST_LINE` is cut, with an overlap, so that
    a message on the cut is still seen whole.
    """
    rest, overlap = b"", 0
    start = True
    for piece in stream:
        rest += piece.removeprefix(codecs.BOM_UTF8) if start else piece
        start = False
        if len(rest) < BLOCK_BYTES:
            continue
        if b"\x1b" in rest:
            kept = _ANSI.sub(b"", rest[overlap:])
            rest = rest[:overlap] + kept
        cut = rest.rfind(b"\n") + 1
        if cut > overlap:
            yield rest[:cut], overlap
            rest, overlap = rest[cut:], 0
        elif len(rest) >= _LONGEST_LINE:
            yield rest, overlap
            rest, overlap = rest[-_OVERLAP:], _OVERLAP
    if b"\x1b" in rest:
        rest = rest[:overlap] + _ANSI.sub(b"", rest[overlap:])
    if len(rest) > overlap:
        yield rest, overlap


def _without_redraws(block: bytes) -> bytes:
    """A block in which lines that a bar was drawn on again and again keep its first and its last drawings."""
    if block.count(b"\r") <= block.count(b"\n") * _REDRAWS:
        return block
    return b"\n".join(
        _first_and_last(line.split(b"\r")) if line.count(b"\r") > _REDRAWS else line for line in block.split(b"\n")
    )


def _first_and_last(drawings: list[bytes]) -> bytes:
    between = (one for one in drawings[2:-2] if not (one.endswith(b"]") and b"%|" in one))
    return b"\r".join([*drawings[:2], *between, *drawings[-2:]])


def _segment(lines: bytes, position: int) -> tuple[int, int]:
    """Bounds of the text around a place: between line ends, at most a window."""
    low = max(0, position - _WINDOW)
    start = lines.rfind(b"\n", low, position) + 1
    if start == 0 and low > 0:
        start = max((position // _WINDOW) * _WINDOW - _OVERLAP, low)
    end = lines.find(b"\n", position, position + _WINDOW)
    return start, end if end >= 0 else min(len(lines), position + _WINDOW)


def _following(block: bytes, end: int, upcoming: bytes, count: int) -> tuple[str, ...]:
    """The lines behind a segment that are not empty, at most `count`."""
    most = max(_AFTER_BYTES, count * _LINE_BYTES)
    for size in (min(count * _NEAR_BYTES, most), most):
        text = block[end : end + size]
        if len(block) - end < size:
            text += upcoming[:size]
        lines = _ANSI.sub(b"", text).replace(b"\r", b"\n").split(b"\n")
        if len(lines) > count * 3:
            break
    kept = [part for part in lines[1 : count * 3] if part.strip()]
    return tuple(part[:2000].decode("utf-8", "replace") for part in kept[:count])
