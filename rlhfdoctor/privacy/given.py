"""Secrets by the place where they stand, whatever they look like."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from rlhfdoctor.privacy import programs, web
from rlhfdoctor.privacy.form import Place, compiled, signs_of
from rlhfdoctor.privacy.names import is_no_value, is_random
from rlhfdoctor.privacy.sheet import Edit, Find, Sheet

_BEGIN = r"-{4,5} ?BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_END = r"-{4,5} ?END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
KEY_BLOCKS = (
    _BEGIN + r"(?:(?!-{4} ?BEGIN )[^\0]){1,16000}?" + _END,
    _BEGIN + r"(?:(?:(?:\\{1,4}n|\r?\n)[ \t]{0,40}){1,3}"
    r"(?:[\w+/=-]{8,200}|=[\w+/]{4}|(?:Proc-Type|DEK-Info|Version|Comment): [^\n\\]{0,120})"
    r"(?=\\|\r|\n|[\"']|$)){1,400}",
)
"""A key with its end; one that was cut off."""


def cut_given(sheet: Sheet, cut: Find) -> None:
    """Cuts what stands where secrets stand."""
    for form in KEY_BLOCKS:
        if "PRIVATE KEY" in sheet.text:
            sheet.edit(compiled(form), cut, ("private key",), below=_KEY_LINES)
    for place in (*web.PLACES, *programs.PLACES):
        signs = signs_of(place.signs)
        if any(sign in sheet.low for sign in signs):
            sheet.edit(compiled(place.form), functools.partial(_judged, place, cut), signs, below=place.below)


_KEY_LINES = 300


def _judged(place: Place, cut: Find, match: re.Match[str]) -> Iterable[Edit]:
    values = [value for value in match.groups() if value]
    if all(map(is_no_value, values)) or (place.is_random and not any(map(is_random, values))):
        return ()
    return cut(match)
