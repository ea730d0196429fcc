"""The form of a condition in a file."""

from __future__ import annotations

from typing import Any, TypeAlias

from msgspec import UNSET, Struct, UnsetType

Scalar: TypeAlias = str | int | float | bool | None
COMPARATORS = ("is", "in", "matches", "at_least", "at_most", "exists", "is_not")


class When(Struct, forbid_unknown_fields=True, rename={"is_": "is", "in_": "in", "with_": "with"}):
    """A condition: one comparison, a named condition of conditions.yaml, or a combination.

    A threshold of bytes, shares, factors or seconds has its unit: 16 GiB, 35 %, 2 x, 10 min. Each has a reason.
    """

    all: list[When] | UnsetType = UNSET
    any: list[When] | UnsetType = UNSET
    none: list[When] | UnsetType = UNSET
    condition: str | UnsetType = UNSET
    event: str | UnsetType = UNSET
    evidence: str | UnsetType = UNSET
    setting: str | UnsetType = UNSET
    trait: str | UnsetType = UNSET
    """Of the framework; unknown where the framework is. Alone: it has it; with `is: false`: it has not."""
    with_: dict[str, Any] | UnsetType = UNSET
    is_: Scalar | UnsetType = UNSET
    in_: list[Scalar] | UnsetType = UNSET
    matches: str | UnsetType = UNSET
    at_least: float | str | UnsetType = UNSET
    at_most: float | str | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    is_not: Scalar | UnsetType = UNSET
    reason: str = ""
    """Why the threshold is where it is, or why a named condition is one; required for both."""
