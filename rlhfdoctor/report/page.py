"""A page on a terminal: sentences that wrap, lines of files that are cut, each cleaned of control characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rlhfdoctor.i18n.message import Language, Message
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.wrap import fitting, wrapped

_LEAST_COLUMNS = 20


class Page:
    """Lines that fit: sentences wrap behind a hanging indent, quoted lines are cut."""

    def __init__(self, console: Console, words: Language) -> None:
        self.console, self.words = console, words
        self.quoted: set[tuple[str | None, int | None]] = set()

    def lines(
        self,
        *parts: tuple[str, str],
        first: str = "   ",
        rest: str | None = None,
        most: int = 0,
        edge: str | None = None,
    ) -> list[Text]:
        """A sentence of parts, each with its style, as lines of the screen.

        Args:
            first: in front of the first line.
            rest: in front of those behind; as many blanks as `first` is wide if None.
            most: lines; what is longer is cut. 0: all.
            edge: style of what is in front; that of the first part if None.
        """
        rest = " " * cell_len(first) if rest is None else rest
        text = Text.assemble(*((clean(part, 4000), style) for part, style in parts))
        widths = [max(self.console.width - cell_len(indent), _LEAST_COLUMNS) for indent in (first, rest)]
        spans = list(wrapped(text.plain, *widths))
        lines = [text[begin:end] for begin, end in (spans[:most] if most else spans)]
        if len(lines) < len(spans):
            begin = spans[most - 1][0]
            kept = fitting(text.plain[begin:], widths[min(most - 1, 1)] - 1)
            lines[-1] = Text.assemble(text[begin : begin + len(kept)], "…")
        edge = parts[0][1] if edge is None else edge
        return [Text.assemble((rest if place else first, edge), line) for place, line in enumerate(lines)]

    def quoted_lines(self, prefix: str, text: str, style: str = "", most: int = 1) -> list[Text]:
        """A line of a file, cut behind so many lines of the screen."""
        return self.lines((text, style), first=prefix, rest=prefix, most=most, edge="blue")

    def command(self, words: Sequence[str]) -> list[Text]:
        """A command as it can be copied: where it is longer than a line, the shell reads on behind a backslash."""
        lines, room = [f"   {words[0]}"], self.console.width - len(" \\")
        for word in words[1:]:
            if cell_len(lines[-1]) + 1 + cell_len(word) <= room:
                lines[-1] += f" {word}"
            else:
                lines[-1] += " \\"
                lines.append(f"     {word}")
        return [Text(line, style="bold") for line in lines]

    def print(self, lines: Iterable[Text]) -> None:
        """Each as a line of its own."""
        for line in lines:
            self.console.print(line, soft_wrap=True)

    def write(self, text: str, style: str = "", first: str = "   ", rest: str | None = None) -> None:
        """A sentence."""
        self.print(self.lines((text, style), first=first, rest=rest))

    def quote(self, prefix: str, text: str, style: str = "") -> None:
        """A line of a file, cut at the screen's edge."""
        self.print(self.quoted_lines(prefix, text, style))

    def heading(self, message: Message) -> None:
        """The name of a section, behind an empty line."""
        self.head(("\n" + self.words(message), "bold"))

    def head(self, *parts: tuple[str, str]) -> None:
        """A line of its own, each part with its style; as long as it is."""
        self.console.print(Text.assemble(*parts), soft_wrap=True)
