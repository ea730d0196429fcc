"""The named conditions of the catalogue that comes with the package."""

from __future__ import annotations

import functools

from rlhfdoctor.conditions.resolve import Conditions, read_conditions
from rlhfdoctor.places import bundled_folder


@functools.cache
def bundled_conditions() -> Conditions:
    """The named conditions of the bundled catalogue.

    Raises:
        RuleError: a fault, with file and line.
    """
    return read_conditions(bundled_folder())
