"""A condition, resolved: what it names is declared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from rlhfdoctor.vocabulary.names import Fact, Field, Kind, Trait

Comparison = tuple[tuple[str, Any], ...]
"""(comparator, operand) pairs that must all hold."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison, or a combination of conditions."""

    op: Literal["all", "any", "none", "event", "fact", "setting", "trait"]
    parts: tuple[Condition, ...] = ()
    name: str = ""
    """A `Kind`, a `Fact`, a `Trait`, or the canonical name of a setting."""
    compare: Comparison = ()
    fields: tuple[tuple[Field, Comparison], ...] = ()
    """Comparisons on fields of an event."""

    @property
    def kind(self) -> Kind:
        """The kind of event that a condition of op `event` asks for."""
        assert isinstance(self.name, Kind)
        return self.name

    @property
    def fact(self) -> Fact:
        """The fact that a condition of op `fact` asks for."""
        assert isinstance(self.name, Fact)
        return self.name

    @property
    def trait(self) -> Trait:
        """The trait that a condition of op `trait` asks for."""
        assert isinstance(self.name, Trait)
        return self.name
