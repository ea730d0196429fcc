"""Lines as a program wrote them, from what a paste made of them.

Marks of quotations, frames of tables, line numbers, names of containers, HTML entities, JSON strings, full-width
punctuation or wrapping: what a line shows of these is taken back. Often it cannot be known how exactly (which blanks
a translated comma has swallowed, whether a line was wrapped within a word), so there may be several versions of a
text; the scanner looks at all of them and takes what says most. Lines without such marks cost one search.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from typing import NamedTuple


class Line(NamedTuple):
    """A line of a version of the text."""

    text: str
    first: int
    """Where it begins: number of the line in the text as it is, from 0."""
    last: int
    """Where it ends."""
    part: int = 0
    """How many escaped line ends of that line are before it."""


Version = list[Line]

_LEAD = re.compile(
    r"[ \t]*(?:(?:>|\||│|┃)[ \t]?"
    r"|(?:[-*+]|\d{1,3}[.)]) (?=`)"
    r"|\d{1,7}(?::|[ \t]*[|│]| {1,3}|\t)"
    r"|[\w./-]{1,60}:\d{1,7}:"
    r"|[\w.-]{1,60} {0,20}\| )"
)
_FRAME = ("│", "┃", "|")
_JSON_SIGN = re.compile(r'\\[nrt"]')
_JSON = re.compile(r'\\(u[0-9a-fA-F]{4}|[nrt"\\/])')
_JSON_HEAD = re.compile(r'^[\s\[]*\{.{0,300}?"(?:log|message|msg|text|textPayload|body|line|content)": ?"')
_JSON_TAIL = re.compile(r'^", ?"')
_HTML = re.compile(r"&(?:[lg]t|amp|quot|apos|nbsp|#\d{1,5}|#x[0-9a-fA-F]{1,4});")
_LISTED = re.compile(r"\s*[A-Za-z][\w()]*[=(]")
"""A key with its value, or a call: what goes on with a list."""
_WIDE_SIGN = re.compile("[！-～。、“”‘’„–—…\u00a0\u200b\u2028\u3000\ufeff]")
_HEAD = re.compile(
    r" (?=\[ *\d{1,7}\.\d{6}\]|\[?20\d\d-\d\d-\d\d[T ]\d\d:|(?:INFO|ERROR|WARNING|DEBUG) \d\d-\d\d \d\d:"
    r"|\(\w{1,60} pid=\d|\[rank\d|Traceback \(most recent|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d "
    r"|[A-Z][a-z]{2} [A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d|\[ *\d{2,8}\] +\d+ +\d+ +\d+ +\d)"
)
_LONG_LINE = 300
_HEAD_BYTES = 4096
_LIBRARY = re.compile(r"[\w.-]{1,60}:\d{1,7}:\d{1,7} \[")
"""`host:pid:thread [gpu] NCCL INFO`, which is no file with a line number."""
_ANY_LEAD = re.compile(f"^(?:{_LEAD.pattern})|^(?: {{4}}|\t)|(?:│|┃|\\|) *$|^`|^\\*\\*", re.M)
_ANY_LONG = re.compile(f"[^\n]{{{_LONG_LINE},}}")
_SPLIT_FROM = 2
_MOST_LEADS = 6
_NARROWEST, _WIDEST = 40, 240
_SCREENS = (72, 76, 78, 79, 80, 100, 120, 132, 160, 200)
"""Widths at which mail programs or terminals wrap."""
_MOST_JOINED = 24
_STARTS_ANEW = re.compile(
    r"[ \t]*(?:\[ *\d{1,7}\.\d{6}\]|[\[(]?20\d\d-\d\d-\d\d[T ]|[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d:\d\d"
    r"|\(\w+ pid=|\[rank\d|(?:INFO|ERROR|WARNING|DEBUG|CRITICAL)\b|Traceback \(|File \"|\[ *\d+\] )"
)
_WIDE = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {
    ord(wide): plain
    for wide, plain in zip("。、“”„‘’–—\u00a0\u3000\u2028【】《》", '.,"""\'\'-- \u0020 []<>', strict=True)
}
_WIDE |= {ord("…"): "...", 0x200B: "", 0xFEFF: ""}
_AFTER = {char: f"{char} " for char in "，；！？、。）"} | {"：": ": "}
_BLANKS = {1: _AFTER | {"（": " ("}, 2: _AFTER | {"（": " ("}, 3: _AFTER | {"（": "("}}
_BEFORE_WORD = r"(?![\d\u00b2\u00b3\u00b9\u2460-\u2468])"
_SPACED = {spaced: re.compile(f"[，；！？、。）（]|：{_BEFORE_WORD if spaced != 2 else ''}") for spaced in _BLANKS}
_BLANK_RUN = re.compile(r"(?<=\S)  +")


def restored(text: str, *, looked: bool = False) -> list[Version]:
    """The versions of a text in which something was taken back; none if nothing in it looks like that.

    `looked` says that `looks_changed` found that it does.

    >>> [line.text for line in restored("> Out of memory: Killed process 7\\n")[0]]
    ['Out of memory: Killed process 7', '']
    """
    raw = raw_lines(text)
    wide = _WIDE_SIGN.search(text) is not None
    marked = looked or wide or any(sign.search(text) for sign in (_ANY_LEAD, _JSON_SIGN, _HTML, _ANY_LONG))
    width = max(map(len, raw))
    if not marked and not _NARROWEST <= width <= _WIDEST:
        return []
    lines = [Line(clean, at, at, part) for at, one in enumerate(raw) for clean, part in _undecorated(one)]
    versions = [_translated(lines, spaced) for spaced in (0, 1, 2, 3)] if wide else [lines]
    joined = [version for base in versions for version in _unwrapped(base)]
    changed = wide or len(lines) != len(raw) or any(line.text != part for line, part in zip(lines, raw))
    return [*(versions if changed else []), *joined]


def raw_lines(text: str) -> list[str]:
    """The lines of a text, of a bar its last drawing."""
    return [line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n")]


def looks_changed(block: bytes) -> bool:
    """Whether a block of a long text shows such marks, by its first lines."""
    head = block[:_HEAD_BYTES].decode("utf-8", "replace").split("\n")[:-1]
    return sum(map(_is_changed, head)) * 3 > len(head)


def _is_changed(line: str) -> bool:
    """Whether a line shows such a mark; one of a JSON log without escapes shows its text as it is."""
    if _LIBRARY.match(line):
        return False
    if _JSON_HEAD.match(line):
        return _JSON_SIGN.search(line) is not None
    return any(sign.match(line) for sign in (_LEAD, _HTML, _WIDE_SIGN))


def _undecorated(text: str) -> Iterator[tuple[str, int]]:
    """The lines that one line holds, without its decoration, and how many line ends of it are before each."""
    pieces = [text]
    if _JSON_SIGN.search(text):
        pieces = _JSON.sub(_unescape, text).replace("\r\n", "\n").split("\n")
        pieces[0] = _JSON_HEAD.sub("", pieces[0])
        if len(pieces) > 1 and _JSON_TAIL.match(pieces[-1]):
            pieces.pop()
    for part, piece in enumerate(pieces):
        if "&" in piece and _HTML.search(piece):
            piece = _HTML.sub(_character, piece).replace("\u00a0", " ")
        for _ in range(_MOST_LEADS):
            lead = _LEAD.match(piece)
            if lead is None:
                break
            piece = piece[lead.end() :]
        piece = piece.rstrip(" \t")
        if piece[-1:] in _FRAME:
            piece = piece[:-1].rstrip(" \t")
        if piece[:1] == "`" and piece[-1:] == "`":
            piece = piece.strip("`")
        elif piece[:2] == piece[-2:] == "**":
            piece = piece.strip("*")
        if piece[:4] == "    " or piece[:1] == "\t":
            yield piece.strip(), part
        elif len(piece) > _LONG_LINE and len(_HEAD.findall(piece)) >= _SPLIT_FROM:
            yield from ((one, part) for one in _HEAD.split(piece))
        else:
            yield piece, part


def _character(match: re.Match[str]) -> str:
    return html.unescape(match[0])


def _unescape(match: re.Match[str]) -> str:
    what = match[1]
    if what[0] == "u":
        return chr(int(what[1:], 16))
    return {"n": "\n", "r": "\r", "t": "\t"}.get(what, what)


def _translated(lines: Version, spaced: int) -> Version:
    """Plain punctuation; `spaced` says where blanks come back.

    0: nowhere; 1: everywhere but behind a colon before a number; 2: everywhere; 3: as 1, and not before parentheses.
    """
    return [line._replace(text=_plain(line.text, spaced)) if _WIDE_SIGN.search(line.text) else line for line in lines]


def _plain(text: str, spaced: int) -> str:
    if spaced:
        text = _SPACED[spaced].sub(lambda sign: _BLANKS[spaced][sign[0]], text)
        text = _BLANK_RUN.sub(" ", text)
    return text.translate(_WIDE)


def _unwrapped(lines: Version) -> Iterator[Version]:
    """The lines joined where one ends because the next word did not fit, or in the middle of a word."""
    listed = list(_listed(lines))
    if len(listed) < len(lines):
        yield listed
    width = max((len(line.text) for line in lines), default=0)
    if not _NARROWEST <= width <= _WIDEST:
        return
    at_edge = width in _SCREENS or sum(len(line.text) == width for line in lines) > 1
    for hard in (False, True) if at_edge else (False,):
        joined = list(_joined(lines, width, hard))
        if len(joined) < len(lines):
            yield joined


def _listed(lines: Version) -> Iterator[Line]:
    """The lines joined where one ends in the middle of a list or before what it announces."""
    current: Line | None = None
    count = 0
    for line in lines:
        open_ended = current is not None and current.text.rstrip()[-1:] in (",", ":", "(")
        if current is None or not open_ended or count >= _MOST_JOINED or not _LISTED.match(line.text):
            if current is not None:
                yield current
            current, count = line, 1
        else:
            current = current._replace(text=f"{current.text.rstrip()} {line.text.strip()}", last=line.last)
            count += 1
    if current is not None:
        yield current


def _joined(lines: Version, width: int, hard: bool) -> Iterator[Line]:
    current: Line | None = None
    end, count = "", 0
    for line in lines:
        if current is None or count >= _MOST_JOINED or not _goes_on(end, line.text, width, hard):
            if current is not None:
                yield current
            current, count = line, 1
        else:
            text = current.text + ("" if hard else " ") + line.text.lstrip(" \t")
            current = current._replace(text=text, last=line.last)
            count += 1
        end = line.text
    if current is not None:
        yield current


def _goes_on(text: str, following: str, width: int, hard: bool) -> bool:
    """Whether the second line is the rest of the first."""
    if not following.strip() or _STARTS_ANEW.match(following):
        return False
    if hard:
        return len(text) == width
    if following[:2] == "  " and text[:2] != "  ":
        return False
    word = following.split(maxsplit=1)[0]
    return len(text) + 1 + len(word) > width and len(text) > width // 2
