"""An answer as a client may have it: no control characters, no secrets, not larger than it can take."""

from __future__ import annotations

import json
from typing import Any

from rlhfdoctor.report.sanitize import shown, without_secrets

MOST_BYTES = 256 * 1024
"""Of an answer as JSON: some 60,000 tokens."""
_STEPS = ((20_000, 500), (4_000, 100), (1_000, 40), (300, 15), (100, 5))
"""(letters of a text, items of a list) that are tried, one after the other."""


def bounded(answer: dict[str, Any], most_bytes: int = MOST_BYTES) -> dict[str, Any]:
    """The same with harmless text; where it is too large, long texts and lists are cut, and `cut` says so.

    Of an object's fields only `messages` is left out, which serves translations: the answer keeps to its schema.
    """
    plain: dict[str, Any] = _harmless(answer)
    for letters, items in _STEPS:
        if _size(plain) <= most_bytes:
            break
        plain = _cut(plain, letters, items)
        plain["cut"] = f"too large: texts end after {letters:,} letters, lists after {items:,} items"
    return plain


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


def _harmless(value: Any) -> Any:
    if isinstance(value, str):
        return shown(without_secrets(value))
    if isinstance(value, dict):
        return {shown(str(key)): _harmless(inner) for key, inner in value.items() if key != "messages"}
    if isinstance(value, list | tuple):
        return [_harmless(inner) for inner in value]
    return value


def _cut(value: Any, letters: int, items: int) -> Any:
    if isinstance(value, str):
        return value if len(value) <= letters else value[: letters - 1] + "…"
    if isinstance(value, dict):
        return {key: _cut(inner, letters, items) for key, inner in value.items()}
    if isinstance(value, list):
        return [_cut(inner, letters, items) for inner in value[:items]]
    return value
