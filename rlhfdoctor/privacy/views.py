"""Text as its readers see it: without escapes, colours, wraps or prefixes of lines, only where signs of these are."""

from __future__ import annotations

import binascii
import functools
import re
from collections import Counter
from collections.abc import Callable

from rlhfdoctor.privacy.escapes import uncolour, unescape, unhide
from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.sheet import BARRIER, Piece, Sheet, View

Change = Callable[[Sheet], object]

_WORDS = re.compile(r"[\"'],(?: |(?=[\"'][\w-])|\r?\n[ \t]{0,20})[\"']")
_LISTS = ("['", '["', "('", '("')
_USUAL_WIDTH = 80
_LEAST_WIDTH, _MOST_WIDTH = 60, 320
_MOST_LINES = 60
"""Of one wrapped text, or of what goes on behind prefixes."""
_LEAST_LINES = 2
_RUN = re.compile(r"(?<![A-Za-z0-9+/_=-])[A-Za-z0-9+/_-]{12,}={0,2}")
_LEAST_BYTES = 9
BELOW = (
    r"(?im)^(?P<prefix>[^\n]{0,160}?)(?:-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY|PuTTY-User-Key-File|Private-Lines:"
    r"|- ?[\"']?(?:name|value)[\"']?:"
    r"|- [\"']?--[\w.-]{0,60}(?:key|token|secret|passw|pwd|credential)[\w.-]{0,30}[\"']?[ \t]{0,4}\r?$"
    r"|machine\s|kind: ?Secret"
    r"|(?:(?<!\S)- )?[\"']?[\w.-]{0,60}(?:key|token|secret|passw|pwd|credential|密码|密钥)[\w.-]{0,30}[\"']?:"
    r"[ \t]{0,8}(?:[|>][+-]?\d?|[\[({]|&\w{1,40})?[ \t]{0,4}\r?$"
    r"|[\w.-]{0,60}(?:key|token|secret|passw|pwd|credential)s?[ \t]?=[ \t]?[\[({][ \t]{0,4}\r?$"
    r"|\[[\w.-]{0,60}(?:key|token|secret|passw|pwd|credential)\w{0,8}\][ \t]{0,4}\r?$"
    r"|[\"']?(?:string)?data[\"']?:)"
)
"""The first line of what goes on in the next lines."""
_BELOW_MARKS = (
    "begin ",
    "- --",
    '- "--',
    "- '--",
    "private-lines",
    "- name:",
    "- value:",
    "machine ",
    "kind: secret",
    "data:",
    'data":',
)
_BELOW_NAMES = ("key", "token", "secret", "passw", "pwd", "credential", "密码", "密钥")
_OPEN_END = re.compile(r"(?:[:|>+\[({\]-]|&\w{1,40})\s*$")
_LINES = str.maketrans({"\n": " ", "\r": " ", "\t": " "})


def through_views(text: str, change: Change, depth: int = 2) -> str:
    """The text after a change of what it says when it is read as programs and people read it, and of itself.

    >>> through_views("%61bc b", lambda sheet: sheet.sub(re.compile("abc"), lambda match: "x"))
    'x b'
    """
    for undone in (uncolour, unhide, _joined):
        text = _changed(text, undone(text), change)
    views = list(unescape(text))
    while views:  # the innermost first: what is found there is whole
        new = _changed(text, views.pop(), change)
        if new != text:
            text, views = new, list(unescape(new))[: len(views)]
    for undone in (_unprefixed, _words):
        text = _changed(text, undone(text), change)
    sheet = Sheet(text)
    change(sheet)
    return _decoded(sheet.text, change, depth) if depth else sheet.text


def _changed(text: str, view: View | None, change: Change) -> str:
    if view is None:
        return text
    change(view)
    return view.back(text)


def _joined(text: str) -> View | None:
    """Lines that a terminal cut at its border, joined."""
    lines = text.split("\n")
    widths = list(map(len, lines))
    longest = max(widths)
    often = longest if _LEAST_WIDTH <= longest <= _MOST_WIDTH and Counter(widths)[longest] >= _LEAST_LINES else -1
    if often < 0 and _USUAL_WIDTH not in widths:
        return None
    full = [width in (often, _USUAL_WIDTH) and _goes_on(lines, number) for number, width in enumerate(widths)]
    pieces, at = list[Piece](), 0
    for number, width in enumerate(widths):
        if any(full[max(number - 2, 0) : number + 1]):  # what was cut, its rest, one line below that
            pieces.append(Piece(lines[number], at, at + width, True))
            if not full[number]:
                pieces.append(Piece("\n", at + width, at + width, False))
        elif pieces and pieces[-1].text != BARRIER:
            pieces.append(Piece(BARRIER, at, at, False))
        at += width + 1
    return View(pieces, is_joined=True) if pieces else None


def _goes_on(lines: list[str], number: int) -> bool:
    """Whether a word may go on in the next line."""
    after = lines[number + 1][:1] if number + 1 < len(lines) else ""
    return bool(after) and not after.isspace() and len(set(lines[number])) > 1


def _unprefixed(text: str) -> View | None:
    """Keys and blocks of YAML without what a logger puts before each of their lines."""
    pieces, done = list[Piece](), 0
    for begin, end in _openings(Sheet(text)):
        match = compiled(BELOW).search(text, begin, end) if begin >= done else None
        if match is None or not match["prefix"].strip():
            continue
        form, at = _prefix_form(match["prefix"].rstrip(" ")), begin
        for _ in range(_MOST_LINES):
            stop = text.find("\n", at) + 1 or len(text)
            start = form.match(text, at, stop)
            if start is None or at >= len(text):
                break
            pieces.append(Piece(text[start.end() : stop], start.end(), stop, True))
            at = stop
        done = at
        pieces.append(Piece(BARRIER, at, at, False))
    return View(pieces) if pieces else None


def _openings(sheet: Sheet) -> list[tuple[int, int]]:
    """Lines that may be the first of several."""
    marked = sheet.lines_with(_BELOW_MARKS)
    named = (line for line in sheet.lines_with(_BELOW_NAMES) if _OPEN_END.search(sheet.text[slice(*line)][-60:]))
    return sorted({*marked, *named})


def _prefix_form(prefix: str) -> re.Pattern[str]:
    """A prefix as a pattern in which figures may differ."""
    return re.compile(re.sub(r"\d+", lambda _: r"\d{1,20}", re.escape(prefix)) + " ?")


def _words(text: str) -> View | None:
    """Lists of quoted words, as a line of words."""
    pieces = list[Piece]()
    for begin, end in Sheet(text).lines_with([sign for sign in _LISTS if sign in text]):
        done = begin
        for match in _WORDS.finditer(text, begin, end):
            pieces += (Piece(text[done : match.start()], done, match.start(), True), Piece(" ", *match.span(), False))
            done = match.end()
        if done > begin:
            stop = min(end + 1, len(text))
            pieces += (Piece(text[done:stop], done, stop, True), Piece(BARRIER, stop, stop, False))
    return View(pieces) if pieces else None


def _decoded(text: str, change: Change, depth: int) -> str:
    """Runs of base64 that say what may not be said are a secret, all of them."""

    def whole(match: re.Match[str]) -> str:
        said = decode(match[0])
        return match[0] if said is None or through_views(said, change, depth - 1) == said else "[secret]"

    return _RUN.sub(whole, text)


@functools.lru_cache(maxsize=256)
def decode(run: str) -> str | None:
    """The text that a run of base64 stands for; None if it stands for none.

    >>> decode("cGFzc3dvcmQ9aHVudGVyMg=="), decode("site-packages/torch/nn")
    ('password=hunter2', None)
    """
    bare = run.rstrip("=").replace("-", "+").replace("_", "/")
    bare = bare[: len(bare) - (len(bare) % 4 == 1)]
    try:
        data = binascii.a2b_base64(bare + "=" * (-len(bare) % 4))
        said = data.decode("utf-8")
    except (binascii.Error, ValueError):
        return None
    return said if len(data) >= _LEAST_BYTES and said.translate(_LINES).isprintable() else None
