"""The catalogue that comes with the package: where it is, and its named conditions."""

from __future__ import annotations

import functools
from pathlib import Path

from rlhfdoctor.conditions.resolve import Conditions, read_conditions


def bundled_folder() -> Path:
    """The catalogue that comes with the package: beside it (checkout) or inside it (wheel)."""
    package = Path(__file__).resolve().parent.parent
    beside = package.parent / "rules"
    return beside if beside.is_dir() else package / "rules"


@functools.cache
def bundled_conditions() -> Conditions:
    """The named conditions of the bundled catalogue.

    Raises:
        RuleError: a fault, with file and line.
    """
    return read_conditions(bundled_folder())
