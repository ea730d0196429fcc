"""Replaced spans of a text: the text after them, or a unified diff."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from rlhfdoctor.types import Replacement


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
    blank = "\t" if " " in name else ""  # patch(1) ends a name at a blank unless a tab follows
    lines = difflib.unified_diff(
        _split_lines(before), _split_lines(after), f"a/{name.lstrip('/')}{blank}", f"b/{name.lstrip('/')}{blank}"
    )
    return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def _split_lines(text: str) -> list[str]:
    """Lines with their ends; only a newline ends a line, as `patch` sees it."""
    return re.findall(r"[^\n]*\n|[^\n]+", text)
