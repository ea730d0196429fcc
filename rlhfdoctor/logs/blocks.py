"""Segments of the blocks of a stream on which a pattern may match.

A line ends at `\n`; a carriage return (progress bars) ends a segment, so that the text after the last redraw is seen.
Colour codes are taken out before anything is matched.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from time import process_time

from rlhfdoctor.logs.finders import Places
from rlhfdoctor.logs.patience import Patience
from rlhfdoctor.logs.pattern import Pattern, compiled
from rlhfdoctor.vocabulary.names import Kind

BLOCK_BYTES = 512 * 1024
"""Size of a block; blocks end at a line's end if possible."""
LONGEST_LINE = 4 * 1024 * 1024
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
_LONG_BYTES = 4096
_SAME_BYTES = 1024
"""Within so many bytes of a long line, a second place of a pattern adds nothing to the first."""
_REDRAWS = 4
"""Carriage returns a line, from which on it is one bar's drawings."""
_TRUSTED_RATIO = 0.98
"""Share of a pattern's candidates that were hits, from which on they are taken for hits."""
_BITS = 16
"""Of a number that is a position and a pattern's index, so that many are quickly in order."""
_INDEX = (1 << _BITS) - 1
_DRAWING = re.compile(rb"[^\r]*\r|[^\r]+\Z|(?<=\r)\Z")
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b\n]{0,2000}\x07|[@-Z\\-_])")


@dataclass(frozen=True, slots=True)
class Hit:
    """A pattern and the text on which it matched."""

    pattern: Pattern
    match: re.Match[str]
    text: str
    line: int
    """Line number from 1."""
    after: tuple[str, ...]
    raw: str = ""
    """The line from which the text was taken back (`restore`)."""
    part: int = 0
    """How many escaped line ends of that line are before the text."""


@dataclass(slots=True)
class Tally:
    """What became of the candidates of each pattern, by its index, in one stream."""

    tried: Counter[int] = field(default_factory=Counter)
    matched: Counter[int] = field(default_factory=Counter)
    long: Counter[int] = field(default_factory=Counter)
    """Hits that asked for many lines behind them."""
    patience: Patience = field(default_factory=Patience)
    """Shared by the streams of one analysis."""
    long_s: float = 0.0
    """Of processor time that was spent on long lines."""
    passed_count: int = 0
    """Candidates in long lines that were passed over, since these had taken their time."""
    as_is_count: int = 0
    """Blocks that look quoted or translated and were read as they are only, since others had taken the time for it."""
    thinned: Counter[Kind] = field(default_factory=Counter)
    """Candidates between the first and last ones of a block that was restored."""

    def trusts(self, index: int) -> bool:
        """Whether nearly all candidates of a pattern have been hits so far."""
        return self.matched[index] >= _TRUSTED_RATIO * self.tried[index] > 0


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of a stream that ends at a line's end."""

    number: int
    text: bytes
    lines: bytes
    """The same with newlines for carriage returns."""
    line: int
    """Number of its first line."""
    overlap: int
    """Bytes of it that are repeated from the block before, within a very long line."""
    upcoming: bytes
    """The block behind it."""
    patterns: Sequence[Pattern]
    tally: Tally

    def candidates(self, places: Places) -> Iterator[Candidate]:
        """One for each segment and pattern, in order; there may be several places of one."""
        line, counted = self.line, self.overlap
        for start, end, indexes in _segments(self.lines, places):
            if end <= self.overlap:
                continue
            if start > counted:
                line += self.text.count(b"\n", counted, start)
                counted = start
            for index in indexes:
                yield Candidate(self, index, start, end, line)


class Candidate:
    """A segment on which a pattern may match."""

    __slots__ = ("_after", "_block", "_end", "_seen", "_start", "_tally", "_text", "index", "line", "pattern")

    def __init__(self, block: Block, index: int, start: int, end: int, line: int) -> None:
        self.pattern = block.patterns[index]
        self.index = index
        self.line = line
        self._text = block.text[start:end]
        self._start, self._end = start, end
        self._seen = max(block.overlap - start, 0)
        """Bytes at its beginning that the block before had, too; a match within them was found there."""
        self._tally = block.tally
        self._block: Block | None = block if self.pattern.follow else None
        self._after: tuple[str, ...] = ()

    @property
    def order(self) -> tuple[int, int, int]:
        """Sorts by the order of the stream."""
        return self.line, self._start, self.index

    def text(self) -> str:
        """The segment."""
        return self._text.decode("utf-8", "replace")

    def hit(self) -> Hit | None:
        """The match, if there is one."""
        is_long = len(self._text) > _LONG_BYTES
        tally = self._tally
        if is_long and not tally.patience.has_for_long(tally.long_s):
            tally.passed_count += 1
            return None
        text, began = self.text(), process_time() if is_long else 0.0
        match = compiled(self.pattern.regex).search(text)
        tally.tried[self.index] += 1
        if is_long:
            took_s = process_time() - began
            tally.long_s += took_s
            tally.patience.long_s += took_s
        if match is None:
            return None
        if self._seen and len(text[: match.end()].encode("utf-8", "replace")) <= self._seen:
            return None
        tally.matched[self.index] += 1
        self.keep()
        return Hit(self.pattern, match, text, self.line, self._after)

    def keep(self) -> Candidate:
        """The same without the block that it came from."""
        if self._block is not None:
            self._after = self._following(self._block)
            self._block = None
        return self

    def _following(self, block: Block) -> tuple[str, ...]:
        follow = self.pattern.follow
        if follow > _LONG:
            self._tally.long[self.index] += 1
            if self._tally.long[self.index] > _MOST_LONG:
                return ()
        return _following(block.text, self._end, block.upcoming, follow)


def cut(stream: Iterable[bytes]) -> Iterator[tuple[bytes, int]]:
    """(block, bytes of it that are repeated from the block before).

    A block ends at a newline. A line longer than `LONGEST_LINE` is cut, with an overlap, so that
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
        elif len(rest) >= LONGEST_LINE:
            yield rest, overlap
            rest, overlap = rest[-_OVERLAP:], _OVERLAP
    if b"\x1b" in rest:
        rest = rest[:overlap] + _ANSI.sub(b"", rest[overlap:])
    if len(rest) > overlap:
        yield rest, overlap


def without_redraws(block: bytes, line_end_count: int) -> bytes:
    """A block in which lines that a bar was drawn on again and again keep its first and its last drawings."""
    if b"\r" not in block or block.count(b"\r") <= line_end_count * _REDRAWS:
        return block
    lines = block.split(b"\n")
    return b"\n".join(
        _first_and_last(line, count) if (count := line.count(b"\r")) > _REDRAWS else line for line in lines
    )


def _first_and_last(line: bytes, count: int) -> bytes:
    """The first and last two drawings of a line with this many carriage returns, and what is no bar between them."""
    first, second, rest = line.split(b"\r", 2)
    between, last_but_one, last = rest.rsplit(b"\r", 2)
    if between.count(b"%|") == between.count(b"]\r") + 1 == count - 3 and between.endswith(b"]"):
        return b"\r".join((first, second, last_but_one, last))
    if b"%|" not in between:
        return line
    kept = bytearray()  # no list: a line may be all carriage returns
    for match in _DRAWING.finditer(between):
        one = match[0].removesuffix(b"\r")
        if not (one.endswith(b"]") and b"%|" in one):
            kept += one + b"\r"
    return b"\r".join((first, second, bytes(kept) + last_but_one, last))


def _segment(lines: bytes, position: int) -> tuple[int, int]:
    """Bounds of the text around a place: between line ends, at most a window."""
    low = max(0, position - _WINDOW)
    start = lines.rfind(b"\n", low, position) + 1
    if start == 0 and low > 0:
        start = max((position // _WINDOW) * _WINDOW - _OVERLAP, 0)  # the same for all places of a window
    end = lines.find(b"\n", position, position + _WINDOW)
    return start, end if end >= 0 else min(len(lines), position + _WINDOW)


def _segments(lines: bytes, places: Places) -> Iterator[tuple[int, int, Sequence[int]]]:
    """Start and end of each segment with places in it, and the patterns that may match there, in order."""
    start, end, whole = -1, -1, False
    indexes: list[int] = []
    last: dict[int, int] = {}
    """By pattern, in a long line."""
    is_one = len(lines) > _WINDOW and lines.find(b"\n", 0, len(lines) - 1) < 0
    apart = {index: _apart(positions) for index, positions in places.items()} if is_one else places
    for place in sorted(position << _BITS | index for index, positions in apart.items() for position in positions):
        position, index = place >> _BITS, place & _INDEX
        if not whole and (before := last.get(index)) is not None and position - before < _SAME_BYTES:
            if lines.find(b"\n", before, position) < 0:
                continue  # the segment of the place before holds this one, too
        if position > end or not whole:
            begin, until = _segment(lines, position)
            if begin != start:
                if indexes:
                    yield start, end, sorted(set(indexes)) if len(indexes) > 1 else indexes
                indexes = []
            start, end, whole = begin, until, until - begin < _WINDOW
        indexes.append(index)
        if not whole:
            last[index] = position
    if indexes:
        yield start, end, sorted(set(indexes)) if len(indexes) > 1 else indexes


def _apart(positions: Sequence[int]) -> Iterator[int]:
    """Of the places of one pattern in one long line those that may add something."""
    last = -_SAME_BYTES
    for position in positions:
        if position - last >= _SAME_BYTES:
            last = position
            yield position


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
