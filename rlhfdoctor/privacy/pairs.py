"""Secrets of pairs: the name of a variable under one key, its value under another one."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.names import is_pair
from rlhfdoctor.privacy.sheet import Edit, Find, Sheet

_QUOTE = r"\\{0,8}[\"']?"
_NAME = rf"(?<![\w.-]){_QUOTE}(?:name|key){_QUOTE}\s{{0,4}}[:=]\s{{0,8}}{_QUOTE}(?P<name>[\w.-]{{1,120}}){_QUOTE}"
_VALUE = (
    rf"(?<![\w.-]){_QUOTE}value{_QUOTE}\s{{0,4}}[:=]\s{{0,8}}(?P<slash>\\{{1,8}})?"
    r"(?:\"(?P<double>(?(slash)[^\"\\\n]{4,4096}|(?:[^\"\\\n]|\\[^\n]){4,4096}))"
    r"|'(?P<single>(?(slash)[^'\\\n]{4,4096}|(?:[^'\\\n]|\\[^\n]){4,4096}))"
    r"|(?P<bare>[^\s\"'\\<>,}\])]{4,400}))"
)
_OTHER = (
    rf"(?:{_QUOTE}(?!value)\w{{1,40}}{_QUOTE}\s{{0,4}}[:=]\s{{0,4}}{_QUOTE}[\w./: -]{{0,80}}{_QUOTE},\s{{0,40}}){{0,3}}"
)
"""Members between the two."""
_NEXT = r"(?:,\s{0,40}|\s{1,40})"
NAME_FIRST = rf"(?i){_NAME}{_NEXT}{_OTHER}{_VALUE}"
VALUE_FIRST = rf"(?i){_VALUE}{_QUOTE}{_NEXT}{_OTHER}{_NAME}"
NESTED = (
    r"(?im)(?:^|(?<=[\"'(>=]))(?P<indent>[ \t]{0,60})(?P<name>[\w.-]{1,120}):[ \t]{0,8}\r?\n"
    r"(?:(?P=indent)[ \t]{1,20}desc:[^\n]{0,200}\n)?(?P=indent)[ \t]{1,20}value:[ \t]{1,8}[\"']?"
    r"(?P<value>[^\s\"'\\<>,]{4,400})"
)
"""As in the configuration that wandb writes."""
SQUEEZED = (
    r"(?i)(?<![\w.-])(?P<name>[\w.-]{1,120}):[ ](?:desc:[ ]\w{1,20}[ ])?value:[ ][\"']?(?P<value>[^\s\"'\\<>,]{4,400})"
)
"""The same whose lines were put into one."""
LISTED = (
    r"(?m)(?:^[ \t]{0,60}|(?<=[ ]))-[ ]{1,4}[\"']?(?P<name>--?[a-zA-Z][\w.-]{0,100})[\"']?"
    r"(?:[ \t]{0,4}\r?\n[ \t]{0,60}|[ ])-[ ]{1,4}[\"']?(?P<value>[^\s\"'\\<>,-][^\s\"'\\<>,]{3,400})"
)
"""A flag as one item of a YAML list, its value as the next."""
_SIGNS = [f"value{mark}" for mark in ('"', "'", "\\", "=", ":", " =", " :")]
_NAME_SIGNS = ("key", "secret", "passw", "pwd", "credential", "token", "auth", "_pw", "-pw")
_LINES_BELOW = 4


def cut_pairs(sheet: Sheet, cut: Find) -> None:
    """Cuts the values of pairs; `cut` gets matches whose groups are the secrets."""

    def edits(match: re.Match[str]) -> Iterable[Edit]:
        value = match["double"] or match["single"] or match["bare"]
        return cut(match) if is_pair(match["name"], value) else ()

    for form in (NAME_FIRST, VALUE_FIRST):
        sheet.edit(compiled(form), edits, _SIGNS, below=_LINES_BELOW)

    def below(match: re.Match[str]) -> Iterable[Edit]:
        return cut(match) if is_pair(match["name"], match["value"]) else ()

    sheet.edit(compiled(NESTED), below, _NAME_SIGNS, below=2)
    sheet.edit(compiled(SQUEEZED), below, ("value: ",))
    sheet.edit(compiled(LISTED), below, _NAME_SIGNS, below=1)
