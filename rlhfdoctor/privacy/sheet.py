"""A text under change: what is found in a view of it is written anew in the original.

A view is a text that was decoded from another one. Each of its pieces knows from where in the original it is, so that
what is changed in the view is changed in the original, which keeps its own escapes everywhere else.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

Edit = tuple[int, int, str]
"""Begin and end in the text, and what is written there."""
New = Callable[[re.Match[str]], str]
Find = Callable[[re.Match[str]], Iterable[Edit]]


BARRIER = "\n\0\n"
"""Between pieces that are apart: no pattern goes on over it."""


class Piece(NamedTuple):
    """A part of a view."""

    text: str
    begin: int
    end: int
    """Of the original."""
    is_same: bool
    """Whether the text is that of the original, letter by letter."""
    is_new: bool = False
    """Whether the original gets the text."""


class Sheet:
    """A text in which patterns are replaced, one after another.

    >>> sheet = Sheet("a=1\\nb=2\\n")
    >>> sheet.sub(re.compile(r"\\d"), lambda match: "x", ["b"])
    >>> sheet.text
    'a=1\\nb=x\\n'
    """

    is_joined = False
    """Whether lines were joined that perhaps do not go on."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._low = ""

    def rest(self, begin: int, end: int) -> str:
        """What of a part continues in the next lines: nothing, where lines are as they were."""
        return ""

    @property
    def low(self) -> str:
        """The text in small letters, of the same length."""
        if not self._low:
            low = self.text.lower()
            self._low = low if len(low) == len(self.text) else "".join(map(_small, self.text))
        return self._low

    def sub(self, pattern: re.Pattern[str], new: New, signs: Sequence[str] = (), *, below: int = 0) -> None:
        """Writes `new` in place of what a pattern finds, see `edit`."""

        def change(match: re.Match[str]) -> Iterable[Edit]:
            made = new(match)
            return [_smallest(match.start(), match[0], made)] if made != match[0] else ()

        self.edit(pattern, change, signs, below=below)

    def edit(self, pattern: re.Pattern[str], find: Find, signs: Sequence[str] = (), *, below: int = 0) -> None:
        """Makes the changes that `find` wants for what a pattern finds.

        Args:
            find: the changes for a match, in order; one that overlaps with another is left out.
            signs: words in small letters; only lines with one of them are searched. Without any, all are.
            below: how many more lines belong to such a line.
        """
        edits, done = list[Edit](), 0
        for begin, end in self.lines_with(signs, below) if signs else ((0, len(self.text)),):
            for match in pattern.finditer(self.text, begin, end):
                for change in find(match):
                    if change[0] >= done:
                        edits.append(change)
                        done = change[1]
        if edits:
            self._write(edits)
            self._low = ""

    def lines_with(self, signs: Sequence[str], below: int = 0) -> list[tuple[int, int]]:
        """Begin and end of the lines with a sign, without overlaps."""
        low = self.low
        found = list[tuple[int, int]]()
        for sign in signs:
            at = low.find(sign)
            while at >= 0:
                begin = low.rfind("\n", 0, at) + 1
                line = end = _line_end(low, at)
                for _ in range(below):
                    end = _line_end(low, end + 1)
                found.append((begin, end))
                at = low.find(sign, line)
        return merged(found)

    def _write(self, edits: Iterable[Edit]) -> None:
        parts, done = list[str](), 0
        for begin, end, made in edits:
            parts += (self.text[done:begin], made)
            done = end
        self.text = "".join([*parts, self.text[done:]])


class View(Sheet):
    """A text decoded from another one.

    >>> view = View([Piece("a", 0, 1, True), Piece("/", 1, 4, False), Piece("b", 4, 5, True)])
    >>> view.sub(re.compile("/b"), lambda match: "x")
    >>> view.text, view.back("a%2Fb")
    ('ax', 'ax')
    """

    def __init__(self, pieces: Iterable[Piece], *, is_joined: bool = False) -> None:
        self.pieces = [piece for piece in pieces if piece.text or piece.is_new]
        super().__init__("".join(piece.text for piece in self.pieces))
        self.is_joined = is_joined
        self._index()

    def part(self, begin: int, end: int) -> Iterator[Piece]:
        """The pieces between two places of the view."""
        if begin >= end:
            return
        number = bisect_right(self._starts, begin) - 1
        while number < len(self.pieces) and self._starts[number] < end:
            piece, start = self.pieces[number], self._starts[number]
            first, last = max(begin - start, 0), min(end - start, len(piece.text))
            if (first, last) == (0, len(piece.text)) or not piece.is_same:
                # a part of what stands for an escape stands for all of it
                yield piece if (first, last) == (0, len(piece.text)) else piece._replace(text=piece.text[first:last])
            else:
                yield Piece(piece.text[first:last], piece.begin + first, piece.begin + last, True)
            number += 1

    def back(self, original: str) -> str:
        """The original with what was changed here; it has as many lines as before."""
        parts, done = list[str](), 0
        for piece in self.pieces:
            if piece.is_new and piece.end > done:
                begin = max(piece.begin, done)
                parts += (original[done:begin], piece.text, "\n" * original.count("\n", begin, piece.end))
                done = piece.end
        return "".join([*parts, original[done:]])

    def span(self, begin: int, end: int) -> tuple[int, int]:
        """Where in the original a part of the view stands."""
        pieces = list(self.part(begin, end))
        if pieces:
            return pieces[0].begin, pieces[-1].end
        number = min(max(bisect_right(self._starts, begin) - 1, 0), len(self.pieces) - 1)
        piece = self.pieces[number]
        at = piece.begin + begin - self._starts[number] if piece.is_same else piece.begin
        return at, at

    def rest(self, begin: int, end: int) -> str:
        """What of a part of the view is not in the piece in which it begins: in the next lines."""
        return "".join(piece.text for piece in list(self.part(begin, end))[1:])

    def _write(self, edits: Iterable[Edit]) -> None:
        pieces, done = list[Piece](), 0
        for begin, end, made in edits:
            pieces += self.part(done, begin)
            pieces.append(Piece(made, *self.span(begin, end), False, True))
            done = end
        pieces += self.part(done, len(self.text))
        self.pieces = pieces
        self.text = "".join(piece.text for piece in pieces)
        self._index()

    def _index(self) -> None:
        self._starts, at = list[int](), 0
        for piece in self.pieces:
            self._starts.append(at)
            at += len(piece.text)


def parted(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Pieces with a barrier between those that are apart in the original: nothing is found across it."""
    end = None
    for piece in pieces:
        if end is not None and piece.begin > end:
            yield Piece(BARRIER, end, end, False)
        yield piece
        end = piece.end


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _small(letter: str) -> str:
    low = letter.lower()
    return low if len(low) == 1 else letter


def _smallest(at: int, old: str, new: str) -> Edit:
    """The change without what both begin and end with: what stands around a secret is not written anew."""
    least = min(len(old), len(new)) - 1  # one letter stays, so that the change has a place
    head = next((i for i in range(least) if old[i] != new[i]), max(least, 0))
    least -= head
    tail = next((i for i in range(least) if old[-1 - i] != new[-1 - i]), max(least, 0))
    return at + head, at + len(old) - tail, new[head : len(new) - tail]


def merged(lines: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Begin and end of lines, in order and without overlaps."""
    found = list[tuple[int, int]]()
    for begin, end in sorted(lines):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found
