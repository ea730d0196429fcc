"""Figures as the columns of a trace keep them."""

from __future__ import annotations

from rlhfdoctor.trace.schema import NULL, SECONDS_SCALE

_LARGEST = 2**61


def number(value: float | None) -> int:
    """A value as the store keeps it; none where it is no number, or larger than any that is real."""
    return int(value) if value is not None and -_LARGEST < value < _LARGEST else NULL


def thousandths(seconds: float | None) -> float | None:
    """Seconds as the store keeps them; what is beyond a century is not in sight."""
    return None if seconds is None or seconds > 3.2e9 else seconds * SECONDS_SCALE
