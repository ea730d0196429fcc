"""Configuration that a framework prints at start, as a dictionary or as YAML -> settings as they are written."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rlhfdoctor.settings.written import Written, scalar
from rlhfdoctor.types import Origin

_DICT_ENTRY = re.compile(r"'(?P<key>[A-Za-z_]\w*)': (?P<value>\{|\[|'[^']*'|[^,}{\[]+)")
_YAML_ENTRY = re.compile(r"^(?P<indent> *)(?P<key>[A-Za-z_]\w*):(?: +(?P<value>\S.*?))? *$")
_YAML_START = re.compile(r"(?:^|[ -])(?P<key>[A-Za-z_]\w*): *$")
_YAML_ITEM = re.compile(r" *- ")
_PREFIX = re.compile(r"^\([^)]*\) ")


def parse_dump(lines: Sequence[str], origin: Origin) -> Iterator[Written]:
    """Settings of a printed configuration; its form is that of its first line."""
    start = _YAML_START.search(lines[0]) if lines and "{" not in lines[0] else None
    bare = [_PREFIX.sub("", line) for line in lines]
    for path, value, place, tail in _yaml_entries(start["key"], bare) if start else _dict_entries(bare):
        line = None if origin.line is None else origin.line + place
        yield Written(path, scalar(value), Origin(file=origin.file, line=line), "dump", tail=tail)


def _dict_entries(lines: Sequence[str]) -> Iterator[tuple[str, str, int, str]]:
    """(path of keys, value, place, last key if lines above were cut out) of a pretty-printed dictionary.

    Paths are rebuilt from the columns; if a line was cut out, a key still counts when only
    one setting of the framework ends in it.
    """
    stack: list[tuple[int, str]] = []
    cut = False
    for place, line in enumerate(lines):
        cut = cut or "[...]" in line
        for match in _DICT_ENTRY.finditer(line):
            while stack and stack[-1][0] >= match.start():
                stack.pop()
            if match["value"] == "{":
                stack.append((match.start(), match["key"]))
                continue
            path = ".".join([*(key for _, key in stack), match["key"]])
            yield path, match["value"].strip("' "), place, match["key"] if cut else ""


def _yaml_entries(first: str, lines: Sequence[str]) -> Iterator[tuple[str, str, int, str]]:
    """The same for YAML whose first key is at the end of a log line; it ends at the first line that is not YAML."""
    stack = [(0, first)]
    for place, line in enumerate(lines[1:], 1):
        match = _YAML_ENTRY.match(line)
        if match is None:
            if _YAML_ITEM.match(line):
                continue
            return
        depth = len(match["indent"])
        while stack and stack[-1][0] >= depth:
            stack.pop()
        if match["value"] is None:
            stack.append((depth, match["key"]))
        else:
            yield ".".join([*(key for _, key in stack), match["key"]]), match["value"].strip("'\""), place, ""
