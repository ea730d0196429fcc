"""The strings within a line of JSON or of what Python prints: in which of them a place of the line is."""

from __future__ import annotations

import re
from bisect import bisect_left
from functools import lru_cache

_TOKEN = re.compile(r"\\.|[\"']")
_KEPT = 1000
_LISTED = re.compile(
    r"(?<![A-Za-z0-9])(?:\"(?:[^\"\\]|\\.){0,1000}\"|'(?:[^'\\]|\\.){0,1000}')(?= ?[,\])}])",
)
"""A value; a key has a colon behind it."""


def before_string(line: str, place: int) -> str:
    """What stands in front of the string that holds a place, with its quotation mark; empty if none does.

    >>> before_string(r'prompts: ["a", "b\\nKilled"]', 18)
    'prompts: [_, "'
    """
    begins, ends, _ = _strings(line)
    index = bisect_left(begins, place) - 1
    if index < 0 or (index < len(ends) and ends[index] < place):
        return ""
    begin = begins[index]
    return _LISTED.sub("_", line[max(0, begin - _KEPT) : begin]) + line[begin]


def place_of(line: str, part: int, offset: int) -> int:
    """Where in a line a place is that is so far behind an escaped line end, of which so many are before it."""
    line_ends = _strings(line)[2]
    return offset + (line_ends[min(part, len(line_ends)) - 1] if part and line_ends else 0)


@lru_cache(maxsize=4)
def _strings(line: str) -> tuple[list[int], list[int], list[int]]:
    """Where strings begin and end, and where escaped line ends end."""
    begins, ends, line_ends = list[int](), list[int](), list[int]()
    mark = ""
    for token in _TOKEN.finditer(line):
        text, start = token[0], token.start()
        if text[0] == "\\":
            if text == r"\n":
                line_ends.append(token.end())
        elif text == mark:
            ends.append(start)
            mark = ""
        elif not mark and not line[start - 1 : start].isalnum():
            begins.append(start)
            mark = text
    return begins, ends, line_ends
