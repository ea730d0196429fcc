"""Levels: what a process holds at one moment of a phase, by component, as an estimate has it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rlhfdoctor.budget.types import Estimate, Need
from rlhfdoctor.vocabulary.run import Component

MAY_BE_EARLY = ("rollout", "score", "update")
"""Phases that the first step passes through before the optimizer has made its states."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of one process for one purpose."""

    role: str
    component: Component
    bytes: int
    """Of every process of its kind."""
    once_bytes: int = 0
    """More of one of them: what rank 0 gathers."""


@dataclass(frozen=True)
class Level:
    """What a process holds at one moment."""

    moment: str
    """Empty: throughout the phase."""
    needs: tuple[Need, ...]
    count: int
    """Processes of its kind; what fewer of them need, one needs."""
    fixed: int
    """Bytes that do not grow with the model."""
    scaled: int
    """Bytes that do."""
    pinned: int
    """Page-locked, of both."""
    once: int
    """More of one process."""
    before: int
    """Place in the list of the level that it rises from; its own where it rises from none."""

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """Its needs by role and component; only levels that fit are asked."""
        sums: dict[tuple[str, Component], list[int]] = {}
        parts: tuple[tuple[Component, int], ...]
        for need in self.needs:
            parts = ((need.component, need.bytes - need.rounding_bytes), ("page-lock rounding", need.rounding_bytes))
            for component, size in parts:
                if size:
                    row = sums.setdefault((need.role, component), [0, 0])
                    row[0 if need.count >= self.count else 1] += size
        return tuple(Piece(role, component, *sizes) for (role, component), sizes in sums.items())

    def usual(self, scale: float = 1.0) -> float:
        """Bytes of a process, of a model this many times as large."""
        return self.fixed + scale * self.scaled

    def special(self, scale: float = 1.0) -> float:
        """The same of the one that holds more than its peers."""
        return self.usual(scale) + scale * self.once


def process_of(found: Estimate, role: str) -> str | None:
    """The process of the estimate that a measured role is: its own, else the one that it shares; None if none."""
    own = [need.process for need in found.needs if need.role == role and need.place == "host"]
    return role if role in own else own[0] if own else None


def make_levels(held: Sequence[Need], phase: str) -> list[Level]:
    """Levels of a process in a phase, each after the one that it rises from.

    While it loads, the process alone; without the optimizer's states where the first step may not have made them yet;
    with all that stays; and with what each moment adds in the turn of each of its roles.

    Args:
        held: what the process needs, in all phases.
    """
    needs = [n for n in held if n.place == "host" and phase in n.phases]
    if not needs:
        return []
    count = max(need.count for need in needs)
    steady = [n for n in needs if not n.transient and not n.exclusive]
    levels: list[Level] = []
    if phase == "load":
        levels.append(_level("", [n for n in steady if n.held_for == "process"], count, 0))
    elif phase in MAY_BE_EARLY and any(n.after_first_step for n in steady):
        levels.append(_level("", [n for n in steady if not n.after_first_step], count, 0))
    levels.append(_level("", steady, count, 0))
    full = len(levels) - 1
    for role, turn in _turns(needs):
        held = [n for n in turn if not n.transient]
        moments = dict.fromkeys(n.transient for n in turn if n.transient)
        if held:
            levels.append(_level(role, [*steady, *held], count, full))
        for moment in moments:
            more = [n for n in turn if n.transient == moment]
            levels.append(_level(moment, [*steady, *held, *more], count, full))
    return levels


def _turns(needs: Sequence[Need]) -> Iterator[tuple[str, list[Need]]]:
    """What each role of the process holds for its turn alone."""
    for role in dict.fromkeys(need.role for need in needs):
        own = [n for n in needs if n.role == role and (n.transient or n.exclusive)]
        if own:
            yield role, own


def _level(moment: str, needs: Sequence[Need], count: int, before: int) -> Level:
    fixed = scaled = pinned = once = 0
    for need in needs:
        if need.count < count:
            once += need.bytes
            continue
        if need.held_for == "process":
            fixed += need.bytes
        else:
            scaled += need.bytes
        if need.pinned:
            pinned += need.bytes
    return Level(moment, tuple(needs), count, fixed, scaled, pinned, once, before)
