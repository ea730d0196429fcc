"""Where a line of text may end: by columns of the screen, never within an option, a size or a change."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rich.cells import cell_len

_CHINESE, _OPEN, _CLOSE = (
    r"\u4e00-\u9fff",
    r"\uff08\u300c\u300a\u201c",
    r"\uff0c\u3002\uff1b\uff1a\u3001\uff09\u300d\u300b\u201d",
)
_LETTER = rf"[^\s{_CHINESE}{_OPEN}{_CLOSE}]"
_WORD = rf"{_LETTER}+[{_CLOSE}]*"
_ATOM = re.compile(
    rf"[{_OPEN}]*(?:"
    rf"[{_CHINESE}][{_CLOSE}]*"  # between two Chinese characters a line may end
    rf"|--?[A-Za-z][\w.-]* +{_WORD}(?: -> {_WORD})?"  # an option with its value
    rf"|{_LETTER}*\d (?:[KMGT]iB|B|%|s|min|h)(?![A-Za-z])(?:{_WORD})?[{_CLOSE}]*"  # a size with its unit
    rf"|{_WORD}(?: -> {_WORD}| -[A-Za-z](?![\w-])(?:{_WORD})?)?)"  # a word; a change; a program with its option
    rf"|[{_OPEN}{_CLOSE}]+"
)


def wrapped(text: str, width: int, later: int | None = None) -> Iterator[tuple[int, int]]:
    """The begin and end of each line in `text`.

    Args:
        width: columns of a line; a Chinese character takes two.
        later: columns of the lines behind the first; as the first if None.

    >>> text = "published cure --grad_accum_dtype bf16: frees 4.00 GiB"
    >>> [text[begin:end] for begin, end in wrapped(text, 24)]
    ['published cure', '--grad_accum_dtype bf16:', 'frees 4.00 GiB']
    """
    later = width if later is None else later
    begin, end, room = 0, 0, width
    for first, last in _atoms(text, min(width, later)):
        if end > begin and cell_len(text[begin:last]) > room:
            yield begin, end
            begin, room = first, later
        end = last
    yield begin, end


def _atoms(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Pieces that stay whole, unless one is wider than a line."""
    for atom in _ATOM.finditer(text):
        begin, end = atom.span()
        if cell_len(atom[0]) <= width:
            yield begin, end
            continue
        for word in re.finditer(r"\S+", atom[0]):
            yield from _cut(text, begin + word.start(), begin + word.end(), width)


def _cut(text: str, begin: int, end: int, width: int) -> Iterator[tuple[int, int]]:
    while cell_len(text[begin:end]) > width:
        middle = begin + max(1, len(fitting(text[begin:end], width)))
        yield begin, middle
        begin = middle
    yield begin, end


def fitting(text: str, width: int) -> str:
    """As much of the beginning of `text` as fits into so many columns."""
    end = min(len(text), width)
    while end and cell_len(text[:end]) > width:
        end -= 1
    return text[:end]
