"""Replaced spans of a text: the text after them, or a unified diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from rlhfdoctor.types import Replacement

_MISREAD = re.compile(r'[\x00-\x1f\x7f"\\]')


def splice(text: str, replacements: Sequence[Replacement]) -> str:
    """The text with every replacement made; of two insertions at one place the last comes first.

    >>> splice("--a 8 --b", [Replacement(4, 5, "16"), Replacement(9, 9, " --c"), Replacement(6, 9, "--d")])
    '--a 16 --d --c'
    """
    for new in sorted(replacements, key=lambda r: (-r.start, -r.end)):
        text = text[: new.start] + new.text + text[new.end :]
    return text


def collide(one: Replacement, two: Replacement) -> bool:
    """Whether two replacements claim the same characters for different texts; insertions and neighbours do not."""
    apart = one.end <= two.start or one.start >= two.end
    return not apart and one != two


def make_diff(before: str, after: str, name: str) -> str:
    """A unified diff that `patch -p1` and `git apply` read, also if the last line has no newline."""
    old, new = (in_quotes(f"{side}/{name.lstrip('/')}") for side in "ab")
    lines = difflib.unified_diff(_split_lines(before), _split_lines(after), old, new)
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def in_quotes(name: str) -> str:
    """A name as both tools read it in a header: as it is, or in quotes as C writes it if it could be misread.

    >>> in_quotes("a/my run.sh"), in_quotes('a/"x"')
    ('a/my run.sh\\t', '"a/\\\\"x\\\\""')
    """
    if _MISREAD.search(name):
        return f'"{_MISREAD.sub(lambda found: _escaped(found[0]), name)}"'
    return f"{name}\t" if " " in name else name  # patch(1) ends a name at a blank unless a tab follows


def _escaped(character: str) -> str:
    return f"\\{character}" if character in '"\\' else f"\\{ord(character):03o}"


def _split_lines(text: str) -> list[str]:
    """Lines with their ends; only a newline ends a line, as `patch` sees it."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
