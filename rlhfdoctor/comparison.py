"""What differs between two runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rlhfdoctor.i18n.message import Message
from rlhfdoctor.types import Incident, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One figure of two runs, side by side."""

    name: Message
    unit: Literal["bytes", "bytes_per_step", "s", "count"]
    before: float | None
    after: float | None
    noise: float | None = None
    """Differences up to here happen between steps of one run; None if unknown."""

    @property
    def within_noise(self) -> bool | None:
        """Whether the difference is within noise; None if a figure or the noise is missing."""
        if self.before is None or self.after is None or self.noise is None:
            return None
        return abs(self.after - self.before) <= self.noise


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs: what became of each, which settings differ, by how much the figures do, and what they cannot show."""

    before: Incident
    after: Incident
    figures: tuple[Figure, ...]
    settings: tuple[tuple[str, Value, Value], ...]
    """(spelling, value before, value after); None: not set."""
    doubts: tuple[Message, ...] = ()
    """Why they do not show whether a change helped."""
