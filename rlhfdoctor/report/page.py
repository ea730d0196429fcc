"""A page on a terminal: sentences that wrap, lines of files that are cut, each cleaned of control characters."""

from __future__ import annotations

import textwrap

from rich.console import Console
from rich.text import Text

from rlhfdoctor.i18n.message import Language, Message
from rlhfdoctor.report.sanitize import clean


class Page:
    """Prints lines that fit: sentences wrap behind a hanging indent, quoted lines are cut."""

    def __init__(self, console: Console, everything: bool, words: Language) -> None:
        self.console, self.words = console, words
        self.everything = everything
        self.quoted: set[tuple[str | None, int | None]] = set()

    def write(self, text: str, style: str = "", first: str = "   ", rest: str | None = None) -> None:
        """A sentence."""
        indent = " " * len(first) if rest is None else rest
        lines = textwrap.wrap(clean(text, 4000), max(self.console.width - len(indent), 20), break_on_hyphens=False) or [
            ""
        ]
        for number, line in enumerate(lines):
            self.console.print(Text(f"{indent if number else first}{line}", style=style), soft_wrap=True)

    def quote(self, prefix: str, text: str, style: str = "") -> None:
        """A line of a file, cut at the screen's edge."""
        width = max(self.console.width - len(prefix), 20)
        self.console.print(Text.assemble((prefix, "blue"), (clean(text, width), style)), soft_wrap=True)

    def heading(self, message: Message) -> None:
        """The name of a section, behind an empty line."""
        self.head(("\n" + self.words(message), "bold"))

    def head(self, *parts: tuple[str, str]) -> None:
        """A line of its own, each part with its style."""
        self.console.print(Text.assemble(*parts), soft_wrap=True)
