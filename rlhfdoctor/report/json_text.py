"""The text of a JSON report: a figure that is no number (infinite, NaN) is null, as JSON has no word for it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any


def to_text(value: Any) -> str:
    """Indented JSON; what is no JSON value is shown as text.

    >>> to_text([1.5, float("inf")]).split()
    ['[', '1.5,', 'null', ']']
    """
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
