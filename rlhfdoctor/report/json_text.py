"""The text of a JSON report: no secrets; what is no finite number is null, as JSON has no word for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from rlhfdoctor.report.sanitize import without_secrets


def to_text(value: Any) -> str:
    """Indented JSON; what is no JSON value is shown as text.

    >>> to_text([1.5, float("inf"), "runs/hf_abcdefghijklmnop"]).split()
    ['[', '1.5,', 'null,', '"runs/[secret]"', ']']
    """
    return json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)


def _plain(value: Any) -> Any:
    """The value itself where nothing is to be changed: a copy of a large report would be as large."""
    if isinstance(value, str):
        plain = without_secrets(value)
        return plain if plain != value else value
    if isinstance(value, Mapping):
        changed = {key: plain for key, inner in value.items() if (plain := _plain(inner)) is not inner}
        return {**value, **changed} if changed else value
    if isinstance(value, list | tuple):
        places = {place: plain for place, inner in enumerate(value) if (plain := _plain(inner)) is not inner}
        return [places.get(place, inner) for place, inner in enumerate(value)] if places else value
    return None if isinstance(value, float) and not math.isfinite(value) else value
