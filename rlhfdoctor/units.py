"""Parses or shows bytes, seconds, ratios: the only module that uses 1024.

Kernel and torch write binary units (`kB` in /proc is 1024 bytes, `GiB` is 1024**3); Ray's
memory monitor writes `GB` but divides by 1024**3 (src/ray/common/memory_monitor.cc,
`FormatFloat(bytes / 1024 / 1024 / 1024)`), docker's and slurm's `g`/`G` are 1024**3 too.
Decimal units do not occur in anything that this project reads, except where stated.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import Any

KIB = 1024
_MOST_BYTES = 2.0**100
"""A size beyond is a fault of the text, not a size."""
MIB = 1024**2
GIB = 1024**3
TIB = 1024**4

_FACTORS = {"": 1, "b": 1, "byte": 1, "bytes": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z]*)\s*$")


def is_whole(text: str) -> bool:
    """Whether a text is a whole number of at most 20 digits, as a 64-bit counter has.

    >>> is_whole("18446744073709551615"), is_whole("9" * 5000), is_whole("-1")
    (True, False, False)
    """
    return text.isdecimal() and len(text) <= 20


def parse_bytes(text: str) -> int | None:
    """Bytes of a size such as `500g`, `1.39 GiB`, `16Gi`, `450GB`, `204800kB`; None if it is not a size.

    >>> parse_bytes("1.5 GiB"), parse_bytes("500g"), parse_bytes("4Ki"), parse_bytes("max")
    (1610612736, 536870912000, 4096, None)
    """
    match = _SIZE.match(text)
    if match is None:
        return None
    unit = match[2].lower()
    if unit not in _FACTORS:
        unit = unit.removesuffix("b").removesuffix("i")
    factor = _FACTORS.get(unit)
    size = float(match[1]) * factor if factor is not None else math.inf
    return round(size) if size < _MOST_BYTES else None


def show_bytes(value: int | float) -> str:
    """A size for people: three significant digits, binary units.

    >>> show_bytes(536870912000), show_bytes(-3 * 1024**2), show_bytes(17)
    ('500 GiB', '-3.00 MiB', '17 B')
    """
    size = abs(float(value))
    sign = "-" if value < 0 else ""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size >= factor * 0.9995:
            scaled = size / factor
            digits = 2 if scaled < 9.995 else 1 if scaled < 99.95 else 0
            return f"{sign}{scaled:.{digits}f} {unit}"
    return f"{sign}{size:.0f} B"


def show_seconds(value: float) -> str:
    """A duration for people.

    >>> show_seconds(1800), show_seconds(5400), show_seconds(0.25)
    ('30 min', '1.5 h', '0.25 s')
    """
    if value >= 7200 or (value >= 3600 and value % 3600):
        return f"{value / 3600:g} h" if value % 360 == 0 else f"{value / 3600:.1f} h"
    if value >= 60:
        return f"{value / 60:g} min" if value % 6 == 0 else f"{value / 60:.1f} min"
    return f"{value:g} s"


FACTORS: Mapping[str, Mapping[str, float]] = {
    "s": {"ms": 0.001, "s": 1, "min": 60, "h": 3600},
    "bytes": {"bytes": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB},
}
"""Unit of a setting -> units that a framework may write it in, and how many of the setting's own one of them is."""


def in_unit(value: Any, factor: float) -> Any:
    """A number in a larger or smaller unit, whole where it is whole; anything else as it is.

    >>> in_unit(7200, 60), in_unit(90, 60), in_unit(0.5, 1 / 60), in_unit("$T", 60)
    (120, 1.5, 30, '$T')
    """
    if factor == 1 or isinstance(value, bool) or not isinstance(value, int | float):
        return value
    scaled = round(value / factor, 9)
    return int(scaled) if scaled == int(scaled) else scaled


_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "": 1}


def parse_seconds(text: str) -> float | None:
    """Seconds of a duration such as `10m`, `1.5h`, `500ms`, `2s`; None if it is not a duration.

    >>> parse_seconds("10m"), parse_seconds("500ms"), parse_seconds("soon")
    (600.0, 0.5, None)
    """
    match = _SIZE.match(text)
    factor = _SECONDS.get(match[2].lower()) if match is not None else None
    return None if match is None or factor is None else float(match[1]) * factor


def show_duration(value: float) -> str:
    """A rough duration for people who watch: two units at most.

    >>> show_duration(7.4), show_duration(95), show_duration(4000), show_duration(200000)
    ('7 s', '1 min 35 s', '1 h 06 min', '2 d 7 h')
    """
    seconds = int(value)
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60:02d} s" if seconds < 600 else f"{seconds // 60} min"
    if seconds < 86400:
        return f"{seconds // 3600} h {seconds % 3600 // 60:02d} min"
    return f"{seconds // 86400} d {seconds % 86400 // 3600} h"


def show_clock(at: float) -> str:
    """Unix seconds as a time of day in UTC, to the second.

    >>> show_clock(0.5)
    '00:00:00'
    """
    return show_time(at)[11:19]


def show_time(seconds: float) -> str:
    """A moment in ISO 8601, UTC, with milliseconds.

    >>> show_time(1743606120.117)
    '2025-04-02T15:02:00.117Z'
    """
    stamp = datetime.fromtimestamp(seconds, timezone.utc)
    return stamp.strftime("%Y-%m-%dT%H:%M:%S.") + f"{stamp.microsecond // 1000:03d}Z"


def show_ratio(value: float) -> str:
    """A ratio as a percentage.

    >>> show_ratio(0.9551)
    '95.5 %'
    """
    return f"{value * 100:.3g} %"


def show_confidence(share: float) -> str:
    """A confidence for people, in steps of 0.05, never rounded up: the calibration does not resolve smaller ones.

    >>> show_confidence(0.87), show_confidence(0.49), show_confidence(0.99), show_confidence(0.02)
    ('0.85', '0.45', '0.95+', '<0.05')
    """
    step = int(round(share * 100, 4) // 5)
    return "0.95+" if step >= 19 else f"{step / 20:.2f}" if step else "<0.05"


def show_value(value: object) -> str:
    """A value as configuration files write it.

    >>> show_value(True), show_value(None), show_value(0.5)
    ('true', 'null', '0.5')
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
