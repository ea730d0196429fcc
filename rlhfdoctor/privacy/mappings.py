"""Secrets of a mapping by the name above it: `secrets:`, `"api_keys": {...}`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.names import is_no_value, is_random
from rlhfdoctor.privacy.sheet import Edit, Find, Sheet

_NAME = r"[\w.-]{0,60}?(?:secrets|api[_-]?keys|access[_-]?keys|credentials|passwords|tokens|(?<![\w.-])(?P<only>keys))"
_KEY = r"[\"']?[\w.-]{1,60}[\"']?[ \t]{0,4}"
INLINE = rf"(?i)(?<![\w.-]){_NAME}[\"']?\s{{0,4}}[:=]\s{{0,4}}\{{(?P<inside>[^{{}}]{{8,4000}})\}}"
SQUEEZED = (
    rf"(?i)(?<![\w.-]){_NAME}[\"']?:[ \t]{{1,4}}"
    r"(?P<inside>(?:[\w.-]{1,60}:[ \t]{1,4}[\"']?[^\s\"',:{}]{4,400}[\"']?[ \t]{0,4}){1,20})"
)
"""YAML whose lines were put into one."""
BELOW = (
    rf"(?im)(?:^|(?<=[\"'(>=]))(?P<indent>[ \t]{{0,60}})[\"']?{_NAME}[\"']?[ \t]{{0,4}}:[ \t]{{0,8}}\r?\n"
    rf"(?P<inside>(?:(?P=indent)[ \t]{{1,20}}{_KEY}:[ \t]{{1,8}}[^\n]{{1,4000}}(?:\n|\Z)){{1,40}})"
)
VALUE = rf"{_KEY}[:=][ \t]{{0,8}}[\"']?(?P<value>[^\s\"',{{}}]{{6,400}})"
_SIGNS = [
    name + mark
    for name in ("secrets", "keys", "credentials", "passwords", "tokens")
    for mark in (":", '"', "'", "=", " =", " :")
]
_LINES_BELOW = 40
_LEAST_KEY = 20
"""Of what is below `keys` and no more."""


def cut_mappings(sheet: Sheet, cut: Find) -> None:
    """Cuts the values that look drawn by chance, under any key."""

    def edits(match: re.Match[str]) -> Iterable[Edit]:
        for line in compiled(VALUE).finditer(match.string, *match.span("inside")):
            least = _LEAST_KEY if match["only"] else 0
            if len(line["value"]) >= least and is_random(line["value"]) and not is_no_value(line["value"]):
                yield from cut(line)

    for form in (INLINE, SQUEEZED, BELOW):
        sheet.edit(compiled(form), edits, _SIGNS, below=_LINES_BELOW)
