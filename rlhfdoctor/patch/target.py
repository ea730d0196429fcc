"""The value that a treatment sets: by the case's figures, by a factor on the user's own, or as the rule says."""

from __future__ import annotations

import re
from typing import Any

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.engine.schema import Target, Treatment
from rlhfdoctor.types import Setting, Value

UNKNOWN: Any = object()
"""In place of a value if the figures for it are missing."""


def find_target(treatment: Treatment, own: Setting | None, facts: Facts) -> Any:
    """The value to set; `UNKNOWN` if the figures for it are missing."""
    to = treatment.to
    if not isinstance(to, Target):
        return to
    if to.fact is not None:
        evidence = facts.evidence.get(to.fact)
        return _otherwise(to) if evidence is None or evidence.value is None else evidence.value
    value = _sized(to, own, facts)
    limit = facts.evidence.get(to.never_below) if to.never_below is not None else None
    known = [_number(own.value) if own is not None else None, limit.value if limit is not None else None]
    before = [v for v in known if isinstance(v, int | float) and not isinstance(v, bool)]
    unclear = own is not None and own.value is not None and known[0] is None
    if to.never_lowered and isinstance(value, int | float) and (unclear or (before and max(before) >= value)):
        return UNKNOWN  # it would be lowered, or the user's own value is unknown
    if to.scale is not None and before and isinstance(value, int | float) and (value - before[0]) * (to.scale - 1) <= 0:
        return UNKNOWN  # it is at its least already
    return value


def _otherwise(to: Target) -> Any:
    return to.otherwise[0] if to.otherwise else UNKNOWN


def _number(value: Value) -> float | None:
    """A number, also if written as text; None if it is computed or not a number."""
    try:
        return None if isinstance(value, bool) or value is None else float(value)
    except ValueError:
        return None


def _sized(to: Target, own: Setting | None, facts: Facts) -> Any:
    """The value by this case's figures, else by the rule's factor, else the rule's plain value."""
    figure = facts.evidence.get(to.sized_by) if to.sized_by is not None else None
    least = to.least
    if figure is not None and figure.value is not None:
        value = figure.value
        return max(value, least) if isinstance(value, int | float) and least is not None else value
    if to.scale is None:
        return _otherwise(to)
    if own is not None and own.form == "python" and isinstance(own.value, str):
        simple = re.fullmatch(r"[\w.* ()]+", own.value) is not None
        return f"{to.scale:g} * {own.value if simple else f'({own.value})'}"
    if own is None or not isinstance(own.value, int | float) or isinstance(own.value, bool):
        return _otherwise(to)
    scaled = own.value * to.scale
    if isinstance(own.value, int) and not isinstance(least, float):
        return max(int(scaled), 1 if least is None else least)
    return round(max(scaled, 0.0 if least is None else least), 2)
