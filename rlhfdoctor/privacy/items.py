"""Secrets of a list or a mapping below a name, over all of its lines: `"api_keys": [ ... ]`, `passwords: - ...`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rlhfdoctor.privacy.form import compiled
from rlhfdoctor.privacy.names import is_no_value, is_pair, is_random
from rlhfdoctor.privacy.sheet import Edit, Find, Sheet

_NAME = (
    r"(?P<name>[\w.-]{0,60}?(?:secret|api[_-]?key|access[_-]?key|credential|password|passphrase|passwd|pwd|token))s?"
    r"\\{0,4}[\"']?"
)
OPENS = (
    r"(?:secret|key|credential|password|passphrase|passwd|pwd|token)s?\\{0,4}[\"']?[ \t]{0,4}[:=][ \t]{0,4}"
    r"(?:[\[({]|\r?\n|- )"
)
"""What each of the forms has; a text without it is not looked through."""
FLOW = (
    rf"(?i)(?<![\w.-]){_NAME}\s{{0,4}}[:=]\s{{0,4}}"
    r"(?:\[(?!secret\])(?P<list>(?:[^\[\]{}]|\[secret\]){6,4000})(?:\]|\Z)|\((?P<array>(?:[^()\[\]{}]|\[secret\]){6,4000})(?:\)|\Z)|\{(?P<members>[^{}]{6,4000})(?:\}|\Z))"
)
BELOW = (
    rf"(?im)(?:^|(?<=[\"'(>=]))(?P<indent>[ \t]{{0,60}})[\"']?{_NAME}[ \t]{{0,4}}:[ \t]{{0,8}}\r?\n"
    r"(?P<list>(?P=indent)[ \t]{0,20}-[ \t]{1,8}[^\n]{1,4000}(?:\n|\Z)"
    r"(?:(?P=indent)(?:[ \t]{0,20}-[ \t]{1,8}|[ \t]{1,22})[^\n]{1,4000}(?:\n|\Z)){0,40})"
)
SQUEEZED = rf"(?i)(?<![\w.-]){_NAME}:[ ](?P<list>-[ ][^\n\[\]{{}}]{{6,4000}})"
"""YAML whose lines were put into one."""
ITEM = (
    r"\\{0,4}\"(?P<double>[^\"\\\s]{4,400})\\{0,4}\"|\\{0,4}'(?P<single>[^'\\\s]{4,400})\\{0,4}'"
    r"|(?<![^\s,\[(-])(?P<bare>[^\s\"',:\[\](){}\\-][^\s\"',\[\](){}\\]{5,400})"
)
MEMBER = (
    r"(?:^|(?<=[\s,{\"']))[\"']?[\w.-]{1,60}\\{0,4}[\"']?\s{0,4}[:=]\s{0,4}"
    r"(?:\\{0,4}\"(?P<double>[^\"\\\s]{4,400})\\{0,4}\"|\\{0,4}'(?P<single>[^'\\\s]{4,400})\\{0,4}'|(?P<bare>[^\s\"',{}\\]{6,400}))"
)
_LINES_BELOW = 40
_SURE = re.compile(r"(?i)passw|passphrase|pwd|api[_-]?key")
"""Names below which a value need not look drawn by chance; tokens are also words, and a workflow inherits secrets."""


def cut_items(sheet: Sheet, cut: Find) -> None:
    """Cuts items of lists and arrays, members of mappings; `cut` gets matches whose groups are the secrets."""
    opens = {match[0].partition("\n")[0] for match in compiled(OPENS).finditer(sheet.low)}
    if not opens:
        return

    def edits(match: re.Match[str]) -> Iterable[Edit]:
        found = match.groupdict()
        group = next(name for name in ("list", "array", "members") if found.get(name))
        name = match["name"]
        for item in compiled(MEMBER if group == "members" else ITEM).finditer(match.string, *match.span(group)):
            value = item["double"] or item["single"] or item["bare"]
            if is_no_value(value) or value in ("value", "secret"):  # a key, what was cut before
                continue
            if is_random(value) or (_SURE.search(name) and is_pair(name, value)):
                yield from cut(item)

    for form in (FLOW, BELOW, SQUEEZED):
        sheet.edit(compiled(form), edits, sorted(opens), below=_LINES_BELOW)
