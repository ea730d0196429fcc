"""Entries of a configuration in the notation of Python or JSON: `{'a': 1}`, `Namespace(a=1)`, `Config(` over lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

_TOKEN = re.compile(
    r"(?P<cut>\[\.\.\.\]|\[…\]|\.\.\.|…|<truncated>)"
    r"|(?P<entry>'[\w./@ -]{1,200}'|\"[\w./@ -]{1,200}\")\s{0,9}:"
    r"|(?P<text>'(?:[^'\\]|\\.){0,4000}'|\"(?:[^\"\\]|\\.){0,4000}\")"
    r"|(?P<field>[A-Za-z_]\w{0,99})=(?!=)"
    r"|<[\w.]{1,100}: (?P<member>'[^'>]{0,200}'|[^'>]{1,200})>"
    r"|(?P<open>[A-Za-z_.\w]{0,100}[(\[{])"
    r"|(?P<close>[)\]}])"
    r"|(?P<broken>['\"])"
    r"|(?P<word>[^\s,:()\[\]{}'\"<]{1,2000})"
)
"""Bounded, and each character is looked at a fixed number of times."""
_LINE_OF_DICT = re.compile(r"\s*(?:['\"{}()\]\[]|-?\d|(?:True|False|None|null|true|false)\b|\.\.\.|…)")
_LINE_OF_FIELDS = re.compile(r"\s*(?:\w{1,100}=(?!=)|['\"{}()\]\[]|\.\.\.|…)")
_STAMP = re.compile(r"\s*[\[(]?\d{4}[-/]\d\d[-/]\d\d[ T]|\s*\[?[A-Z]{4,8}\b")
_MOST_FOREIGN = 40
"""Lines of other writers in a row, behind which a dump is taken to have ended."""
_MOST_ITEMS = 50
_DEEPEST = 60
_MOST_BROKEN = 8
"""Quotation marks that do not pair: each was a search through the line."""
_Found: TypeAlias = tuple[tuple[str, ...], str, int]
"""Path, value, index of the line."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a printed configuration."""

    path: tuple[str, ...]
    value: str
    place: int
    """Index of its line."""
    after_cut: bool
    """Whether something was cut out above it, so that only its last key is sure."""


@dataclass(slots=True)
class _Frame:
    """An open bracket."""

    bracket: str
    key: str | None
    column: int
    place: int
    items: list[str] = field(default_factory=list)


class Printed:
    """The lines of one dump; `complete` and `cut` hold once its entries were read."""

    def __init__(self, lines: Sequence[str], *, bare: bool = False) -> None:
        """Reads nothing yet.

        Args:
            lines: from the dump's first bracket on, without the prefixes of their writers.
            bare: it has no bracket around it: `model='x', dtype=torch.float16`, on one line.
        """
        self.lines = lines
        self.cut = False
        self.complete = bare
        self._bare = bare
        self._stack: list[_Frame] = []
        self._key: str | None = None
        self._column = self._place = self._broken = 0

    def entries(self) -> Iterator[Entry]:
        """Its entries in order; scalars, and lists of scalars as one text."""
        foreign = 0
        held: Entry | None = None  # a word at the end of a line may go on where the log was cut
        for place, line in enumerate(self.lines[:1] if self._bare else self.lines):
            if place and self._is_foreign(line):
                foreign += 1
                if foreign > _MOST_FOREIGN:
                    return
                continue
            foreign, self._place = 0, place
            if self.cut:
                self._align(line)
            for token in _TOKEN.finditer(line):
                if len(self._stack) > _DEEPEST or self._broken > _MOST_BROKEN:
                    self.cut = True
                    return
                if held is not None:
                    yield held
                value, held = self._take(token), None
                if value is not None and token.lastgroup == "word" and token.end() == len(line.rstrip()):
                    held = Entry(*value, self.cut)
                elif value is not None:
                    yield Entry(*value, self.cut)
                if not self._stack and not self._bare and token.lastgroup == "close" and not self.cut:
                    self.complete = True
                    return

    def _is_foreign(self, line: str) -> bool:
        """Whether another program wrote between the lines of the dump."""
        if _STAMP.match(line):
            return True
        bracket = self._stack[-1].bracket if self._stack else "{"
        outer = self._stack[0].bracket if self._stack else "{"
        if (_LINE_OF_FIELDS if outer == "(" else _LINE_OF_DICT).match(line) is None:
            return True
        balanced = line.count("{") == line.count("}")
        return bracket != "[" and balanced and line.lstrip().startswith("{")

    def _align(self, line: str) -> None:
        """Behind a cut the columns of pprint tell which brackets are still open."""
        start = _TOKEN.search(line)
        if start is None or start.lastgroup != "entry":
            return
        while len(self._stack) > 1 and self._stack[-1].column >= start.start():
            self._stack.pop()

    def _take(self, token: re.Match[str]) -> _Found | None:
        """The entry if the token completes an entry."""
        kind, text = token.lastgroup, token[token.lastgroup or 0]
        if kind in ("cut", "broken"):
            self.cut, self._key = True, None
            self._broken += kind == "broken"
        elif kind == "entry":
            self._key, self._column = text[1:-1], token.start()
        elif kind == "field":
            while self._stack and self._stack[-1].bracket == "{":  # a dictionary that a cut left open
                self._stack.pop()
            self._key, self._column = text, token.start()
        elif kind == "open":
            self._stack.append(_Frame(text[-1], self._key, self._column if self._key else token.start(), self._place))
            self._key = None
        elif kind == "close":
            return self._close()
        else:
            return self._scalar(text.strip() if kind == "word" else text)
        return None

    def _close(self) -> _Found | None:
        self._key = None
        if not self._stack:
            return None
        frame = self._stack.pop()
        if frame.bracket != "[" or frame.key is None or any(f.bracket == "[" for f in self._stack):
            return None
        return self._path(frame.key), f"[{', '.join(frame.items)}]", frame.place

    def _scalar(self, text: str) -> _Found | None:
        if self._key is None:
            if self._stack and len(self._stack[-1].items) < _MOST_ITEMS:
                self._stack[-1].items.append(text)
            return None
        key, self._key = self._key, None
        within = any(f.bracket == "[" for f in self._stack)
        return None if within else (self._path(key), text.strip("'\""), self._place)

    def _path(self, key: str) -> tuple[str, ...]:
        return (*(frame.key for frame in self._stack if frame.key is not None), key)
