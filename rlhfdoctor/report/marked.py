"""Text in Markdown: escaped, as code, as a block."""

from __future__ import annotations

import re

from rlhfdoctor.report.sanitize import clean, without_secrets

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    return _SPECIAL.sub(r"\\\1", clean(text, 2000))


def code(text: str) -> str:
    """Text between backticks."""
    return clean(text, 500).replace("`", "'")


def block(text: str) -> list[str]:
    """A fenced block."""
    return ["```text", clean(text, 500).replace("```", "'''"), "```"]


def fenced_diff(diff: str) -> list[str]:
    """A diff in a fence that is longer than any run of backticks in it."""
    diff = without_secrets(diff)
    fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", diff)), 3)
    return [f"{fence}diff", diff.rstrip("\n"), fence, ""]
