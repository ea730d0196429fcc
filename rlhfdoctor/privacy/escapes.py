r"""Escapes undone, level by level: JSON, Python, shell, URLs, HTML, codes of colours.

{"m":"password\u003d\"x\""}   %2Fhome%2Falice   b'\xe5\xaf\x86'   'it'\''s'   &quot;   to\x1b[31mken
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from rlhfdoctor.privacy.sheet import BARRIER, Piece, View, merged, parted

_LEVELS = 4
"""JSON in a JSON string in a log that is JSON."""
_MARKS = (
    ("\\", re.compile(r"\\(?:[nrt\"'/\\]|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[0-3][0-7]{2})")),
    ("%", re.compile(r"%[0-9a-fA-F]{2}")),
    ("&", re.compile(r"&(?:quot|apos|amp|lt|gt|#\d{1,6}|#x[0-9a-fA-F]{1,5});")),
)
_ESCAPE = re.compile(
    r"(?P<hex>(?:\\x[0-9a-fA-F]{2}){1,64}|(?:%[0-9a-fA-F]{2}){1,64})|(?P<octal>(?:\\[0-3][0-7]{2}){1,64})"
    r"|\\u(?P<u>[0-9a-fA-F]{4})|(?P<kept>\\(?='\\''))|(?P<shell>'\\'')|\\(?P<simple>[nrt\"'/\\])|&(?P<name>quot|apos|amp|lt|gt);"
    r"|&#(?P<number>\d{1,6}|x[0-9a-fA-F]{1,5});|(?P<gone>\x1b\[[\d;?]{0,20}[A-Za-z])"
)
_COLOUR = re.compile(r"\x1b\[[\d;?]{0,20}[mK]")
_COLOUR_BEFORE = re.compile(r"\x1b\[[\d;?]{0,20}[mK]$")
_INSIDE = re.compile(r"\x1b\[[\d;]{0,20}[mK](?=[^\s()\[\]\x1b])")
_UNSEEN = re.compile(
    "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1a\\x1c-\\x1f\\x7f\\xad\\u180e\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2069\\ufe00-\\ufe0f\\ufeff]+"
    r"|\x1b\][^\x07\x1b\n]{0,200}(?:\x07|\x1b\\)|(?<=[A-Za-z0-9])\\\r?\n(?=[A-Za-z0-9])"
)
"""Controls and letters without a width, a terminal's titles and links, a shell's line that goes on in a word.

NUL stands behind each letter of UTF-16 that was appended to another text."""
_SIMPLE = {"n": "\n", "r": "\r", "t": "\t"}
_NAMED = {"quot": '"', "apos": "'", "amp": "&", "lt": "<", "gt": ">"}


def unescape(text: str) -> Iterator[View]:
    r"""The lines with escapes, without them; then what is still escaped in that, and so on.

    >>> [view.text for view in unescape("plain\n\\\"a\\\\u0040b\\\"\n")]
    ['"a\\u0040b"\n', '"a@b"\n']
    """
    lines = _lines_with(text, [pattern for sign, pattern in _MARKS if sign in text])
    view = View(parted((Piece(text[begin:end], begin, end, True) for begin, end in lines)))
    for _ in range(_LEVELS if lines else 0):
        pieces, done = list[Piece](), 0
        for match in _ESCAPE.finditer(view.text):
            pieces += view.part(done, match.start())
            pieces += _letters(view, match)
            done = match.end()
        if not done:
            return
        view = View([*pieces, *view.part(done, len(view.text))])
        yield view


def uncolour(text: str) -> View | None:
    """The lines with a code of a colour inside of a word, without codes."""
    if "\x1b[" not in text:
        return None
    inside = (match for match in _INSIDE.finditer(text) if _is_in_word(text, match.start()))
    lines = merged(
        (_line_begin(text, _line_begin(text, match.start()) - 1), _line_end(text, match.end(), 1)) for match in inside
    )
    pieces = list[Piece]()
    for begin, end in lines:
        done = begin
        for match in _COLOUR.finditer(text, begin, end):
            pieces.append(Piece(text[done : match.start()], done, match.start(), True))
            done = match.end()
        pieces.append(Piece(text[done:end], done, end, True))
        pieces.append(Piece(BARRIER, end, end, False))
    return View(pieces) if pieces else None


def unhide(text: str) -> View | None:
    """The lines with something in them that is not seen, without that."""
    pieces, done, at = list[Piece](), -1, 0
    for match in _UNSEEN.finditer(text):
        begin = _line_begin(text, match.start())
        if done >= 0 and begin > done:  # the line before has ended
            pieces += (Piece(text[at:done], at, done, True), Piece(BARRIER, done, done, False))
            done = -1
        at = begin if done < 0 else at
        pieces.append(Piece(text[at : match.start()], at, match.start(), True))
        at, done = match.end(), _line_end(text, match.end())
    if done >= 0:
        pieces.append(Piece(text[at:done], at, done, True))
    return View(pieces) if pieces else None


def _is_in_word(text: str, at: int) -> bool:
    """Whether a letter stands before a code, not a blank, a bracket or another code."""
    return at > 0 and text[at - 1] not in " \t\n()[]" and not _COLOUR_BEFORE.search(text, max(at - 24, 0), at)


def _lines_with(text: str, patterns: Iterable[re.Pattern[str]]) -> list[tuple[int, int]]:
    """Lines with an escape, and the line below each."""
    found = list[tuple[int, int]]()
    for pattern in patterns:
        done = 0
        while match := pattern.search(text, done):
            done = _line_end(text, match.end())
            found.append((_line_begin(text, match.start()), _line_end(text, done) if done < len(text) else done))
    return merged(found)


def _line_begin(text: str, at: int) -> int:
    return text.rfind("\n", 0, max(at, 0)) + 1


def _line_end(text: str, at: int, below: int = 0) -> int:
    end = text.find("\n", at) + 1 or len(text)
    return _line_end(text, end) if below and end < len(text) else end


def _letters(view: View, match: re.Match[str]) -> list[Piece]:
    """What an escape stands for, letter by letter, each with its place in the original."""
    kind = match.lastgroup
    if kind == "gone":
        return []
    if kind in ("hex", "octal"):
        return _run(view, match, 3 if match[0][0] == "%" else 4, 8 if kind == "octal" else 16)
    if kind == "u":
        letter = _letter(int(match["u"], 16))
    elif kind == "number":
        letter = _letter(int("0" + match["number"], 16) if match["number"][0] == "x" else int(match["number"]))
    elif kind == "name":
        letter = _NAMED[match["name"]]
    elif kind == "kept":
        letter = "\\"
    elif kind == "shell":
        letter = "'"
    else:
        letter = _SIMPLE.get(match["simple"], match["simple"])
    return [Piece(letter, *view.span(*match.span()), False)]


def _run(view: View, match: re.Match[str], width: int, base: int) -> list[Piece]:
    """Bytes as letters of UTF-8, of which each takes one to four."""
    digits = 3 if base == 8 else 2
    codes = [match[0][at + width - digits : at + width] for at in range(0, len(match[0]), width)]
    pieces, at = list[Piece](), match.start()
    for letter in bytes(int(code, base) for code in codes).decode("utf-8", "surrogateescape"):
        code = ord(letter)
        size = width * (1 if 0xDC80 <= code < 0xDD00 else len(letter.encode()))
        pieces.append(Piece(_letter(code), *view.span(at, at + size), False))
        at += size
    return pieces


def _letter(code: int) -> str:
    return chr(code) if code < 0xD800 or 0xE000 <= code < 0x110000 else "\ufffd"
