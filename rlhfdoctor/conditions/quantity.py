"""Thresholds with units, as rules write them: 16 GiB, 35 %, 2 x, 10 min."""

from __future__ import annotations

import re

from rlhfdoctor.units import parse_bytes, parse_seconds
from rlhfdoctor.vocabulary.names import Unit

EXAMPLES = {"bytes": "16 GiB", "share": "35 %", "factor": "2 x", "s": "10 min"}
"""How a threshold of each unit is written."""


def read_quantity(operand: float | str, unit: Unit | None) -> float | None:
    """A threshold as a plain number in its unit; None if the unit is missing or a different one.

    >>> read_quantity("16 GiB", "bytes"), read_quantity("35 %", "share"), read_quantity("2 x", "factor")
    (17179869184, 0.35, 2.0)
    >>> read_quantity(0.35, "share") is None
    True
    """
    if unit not in EXAMPLES:
        plain = (
            operand
            if not isinstance(operand, str)
            else parse_bytes(operand)
            if re.search(r"[A-Za-z]", operand)
            else None
        )
        return plain if plain is None or isinstance(plain, int) or plain % 1 else int(plain)
    if not isinstance(operand, str):
        return None
    if unit == "bytes":
        return parse_bytes(operand) if re.search(r"[A-Za-z]", operand) else None
    if unit == "s":
        return parse_seconds(operand.replace(" ", ""))
    number = re.fullmatch(r"\s*(-?\d+(?:\.\d+)?) ?(%|x)\s*", operand)
    if number is None or number[2] != ("%" if unit == "share" else "x"):
        return None
    return round(float(number[1]) / 100, 10) if unit == "share" else float(number[1])
