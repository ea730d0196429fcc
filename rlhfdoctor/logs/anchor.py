"""From the expression of a whole message to one that knows the message by its anchor.

People and screens cut lines. Behind the words by which a message is known, the expression ends wherever the text was
visibly cut: at dots or at the end of the line. What is cut off are fields, which are then missing, or words that add
nothing; a choice between words or a number that the expression spells out is never skipped, since it distinguishes
messages.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

_CUT = r"[\w.:=/-]{0,24}(?: ?(?:\.\.\.|…|\[\.\.\.)|[ \t]{0,40}$)"
_LEAST_LETTERS = 10
_ENOUGH_LETTERS = 24
_SHARE = 0.6
_MOST_PARTS = 14
_QUANTIFIER = re.compile(r"(?:[*+?]|\{\d*,?\d*\})[?+]?")


class Token(NamedTuple):
    """A piece of an expression with its quantifier."""

    text: str
    letters: int
    """How many letters every match spells there."""
    tells_apart: bool
    """Whether another text there would be another message."""


@functools.lru_cache(maxsize=2048)
def tolerant(regex: str) -> str:
    """The expression with what stands behind its anchor optional where the line was cut.

    >>> tolerant("no anchor (?P<pid>[0-9]+)$") == "no anchor (?P<pid>[0-9]+)$"
    True
    >>> bool(re.search(tolerant(r"Memory was exceeded by task (?P<pid>\\d+) in (?P<name>\\w+)"),
    ...                "Memory was exceeded by task 17 ..."))
    True
    """
    return "|".join(map(_shortened, _branches(regex)))


@functools.lru_cache(maxsize=2048)
def probe(regex: str) -> str:
    """What to look for in place of a whole expression: the least with which each match begins, so that it ends once.

    >>> probe(r"step (?P<step>\\d{1,9})(?: of (?P<count>\\d+))?")
    'step (?:\\\\d)'
    >>> probe(r"Memory was exceeded by task (?P<pid>\\d+) in (?P<name>\\w+)")
    'Memory was exceed'
    """
    return "|".join(_least(branch[: _cut_place(branch)]) for branch in _branches(regex))


def _cut_place(branch: str) -> int | None:
    """Where the anchor of a branch ends."""
    tokens = list(_tokens(branch))
    start = _anchor(tokens)
    return None if start is None else sum(len(token.text) for token in tokens[:start])


def _least(branch: str) -> str:
    """The shortest beginning of every match: nothing optional at its end, a repeat there as short as it may be."""
    spans = _spans(branch)
    while spans:
        begin, end = spans.pop()
        bare = branch[begin : _end_of_piece(branch, begin)] if branch[begin] not in "^|" else branch[begin:end]
        least = _least_count(branch[begin + len(bare) : end])
        if least == 0:
            continue
        if bare.startswith(("(?:", "(?P<")):
            inner = bare[bare.index(">") + 1 if bare.startswith("(?P<") else 3 : -1]
            bare = "(?:" + "|".join(map(_least, _branches(inner))) + ")"
        return branch[:begin] + bare + (f"{{{least}}}" if least > 1 else "")
    return branch


def _least_count(quantifier: str) -> int:
    """How often a piece must be there."""
    if quantifier[:1] in ("*", "?"):
        return 0
    return (
        int(re.findall(r"\d+", quantifier)[0]) if re.match(r"\{\d", quantifier) else 0 if quantifier[:2] == "{," else 1
    )


def _shortened(branch: str) -> str:
    tokens = list(_tokens(branch))
    start = _anchor(tokens)
    if start is None:
        return branch
    whole = ""
    for part in reversed(_parts(tokens[start:])):
        whole = f"(?:{part}{whole}|{_CUT})"
    return "".join(token.text for token in tokens[:start]) + whole


def _anchor(tokens: list[Token]) -> int | None:
    """Index of the first token that may be missing; None if the message needs all of them."""
    needed = min(_ENOUGH_LETTERS, max(_LEAST_LETTERS, int(_SHARE * sum(token.letters for token in tokens))))
    last = max((index for index, token in enumerate(tokens) if token.tells_apart), default=-1)
    letters = 0
    for index, token in enumerate(tokens):
        if letters >= needed and index > last:
            return index
        letters += token.letters
    return None


def _parts(tokens: list[Token]) -> list[str]:
    """The tokens in groups that end at a word's end; the last group holds the rest."""
    parts = [""]
    for token in tokens:
        if len(parts) < _MOST_PARTS and parts[-1] and (token.text[0] in " (" or parts[-1][-1] in ")*+}"):
            parts.append("")
        parts[-1] += token.text
    return parts


def _branches(regex: str) -> list[str]:
    """The alternatives at the top."""
    found, start = [], 0
    for begin, end in _spans(regex):
        if regex[begin:end] == "|":
            found.append(regex[start:begin])
            start = end
    return [*found, regex[start:]]


def _tokens(branch: str) -> list[Token]:
    return [_token(branch[begin:end]) for begin, end in _spans(branch)]


def _token(text: str) -> Token:
    if text.startswith("("):
        group = text[: text.rindex(")") + 1]
        optional = text[len(group) :][:1] in ("?", "*")
        return Token(text, 0, not optional and "(?P<" not in group)
    if text in ("$", r"\Z"):
        return Token(text, 0, True)
    bare = text[1:2] if text[0] == "\\" else text[0]
    literal = len(text) == (2 if text[0] == "\\" else 1) and not (text[0] == "\\" and bare.isalnum())
    literal = literal and text not in (".", "^")
    return Token(text, int(literal and bare.isalpha()), literal and bare.isdigit())


def _spans(regex: str) -> list[tuple[int, int]]:
    """Begin and end of each piece at the top level, with its quantifier."""
    found, place = [], 0
    while place < len(regex):
        end = _end_of_piece(regex, place)
        quantifier = _QUANTIFIER.match(regex, end) if regex[place] not in "^|" else None
        end = quantifier.end() if quantifier else end
        found.append((place, end))
        place = end
    return found


def _end_of_piece(regex: str, place: int) -> int:
    if regex[place] == "\\":
        return place + 2
    if regex[place] == "[":
        return _end_of_class(regex, place)
    if regex[place] != "(":
        return place + 1
    depth = 0
    while place < len(regex):
        if regex[place] == "\\":
            place += 2
            continue
        if regex[place] == "[":
            place = _end_of_class(regex, place)
            continue
        depth += {"(": 1, ")": -1}.get(regex[place], 0)
        place += 1
        if depth == 0:
            break
    return place


def _end_of_class(regex: str, place: int) -> int:
    place += 2 if regex[place + 1] == "^" else 1
    place += regex[place] == "]"
    while regex[place] != "]":
        place += 2 if regex[place] == "\\" else 1
    return place + 1
