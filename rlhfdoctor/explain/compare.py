"""How well levels predict what processes were measured to hold: a mixture of what may be happening at that moment.

The budget's error is a Student's t with four degrees of freedom on the logarithm of the bytes: its scale of 4 % has a
median error of 3 % and a ninth decile of 8.5 %, as measured (tests/bench/BUDGET.md: 3 % and 8.4 %), and tails for the
runs that the budget does not know. A kill comes while memory rises, so a process may also stand anywhere between two
levels; and what is above a level may be something that the budget has no component for. Both are spread over a range,
so that a level that fits exactly explains better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from rlhfdoctor.explain.levels import Level
from rlhfdoctor.explain.measured import SMALL_BYTES, Group

RELATIVE_ERROR = 0.04
"""Scale of the budget's error, of what it predicts."""
PINNED_ERROR = 0.03
"""Of page-locked bytes, which are sizes of buffers; the rest is shared memory of others."""
_AT_LEVEL, _RISING, _MORE = 0.6, 0.25, 0.15
"""Judgement: most processes of a node wait while one rises; the three add up to one."""
_DEGREES = 4
_T_PEAK = 0.375
"""Density of that distribution at 0."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """One thing that may be happening to the processes of a group."""

    likelihood: float
    level: Level
    scale: float
    """The model's size, of the one that the level was made for."""
    rising: bool = False
    """Between the level that this one rises from and it."""
    more: bool = False
    """Above the level, by something else."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What is common to all groups."""

    most_bytes: int
    """More than any process can hold."""
    fixed_error_bytes: int
    """Of what a process takes without a model: assumed, not measured, where there are GPUs."""

    def broad(self) -> float:
        """Density on the logarithm of the bytes where anything is possible."""
        return 1 / math.log(max(self.most_bytes / SMALL_BYTES, 2))


def weigh(group: Group, levels: Sequence[Level], scale: float, scene: Scene) -> list[Outcome]:
    """What may be happening to a group, with densities on the logarithm of its bytes.

    Args:
        scale: the model's size, of the one that the levels were made for.
    """
    found: list[Outcome] = []
    share = 1 / len(levels)
    for level in levels:
        usual = level.usual(scale)
        below = levels[level.before]
        shared = _shared(group, level.pinned * scale, level.pinned * scale)
        fits = _error(group.usual, usual, scene.fixed_error_bytes) * _special(group, level, levels, scale, scene)
        found.append(Outcome(share * _AT_LEVEL * shared * fits, level, scale))
        more = _above(group.usual, usual, scene) * (1.0 if group.special is None else scene.broad())
        if more:
            found.append(Outcome(share * _MORE * shared * more, level, scale, more=True))
        rises = _between(group.usual, below.usual(scale), usual)
        if rises:
            special = 1.0 if group.special is None else _error(group.special, level.special(scale), 0) + scene.broad()
            shared = _shared(group, below.pinned * scale, level.pinned * scale)
            found.append(Outcome(share * _RISING * rises * special * shared, level, scale, rising=True))
    return found


def _error(measured: float, predicted: float, fixed: float, relative: float = RELATIVE_ERROR) -> float:
    """Density of what was measured where so much was predicted; 0 where nothing was."""
    if predicted <= 0 or measured <= 0:
        return 0.0
    spread = math.hypot(relative, fixed / predicted)
    off = math.log(measured / predicted) / spread
    return float(_T_PEAK * (1 + off * off / _DEGREES) ** (-(_DEGREES + 1) / 2) / spread)


def _between(measured: float, low: float, high: float) -> float:
    """Density of a size that has come as far as this on its way up."""
    if not low < measured < high or high - low < RELATIVE_ERROR * low:
        return 0.0
    return measured / (high - low)


def _above(measured: float, level: float, scene: Scene) -> float:
    """Density of a size above a level, by any amount."""
    if measured <= level * (1 + 2 * RELATIVE_ERROR):
        return 0.0
    return 1 / max(math.log(scene.most_bytes / max(level, SMALL_BYTES)), 0.5)


def _special(group: Group, level: Level, levels: Sequence[Level], scale: float, scene: Scene) -> float:
    """Density of the largest process beside its peers: one that gathers, one further on, or one with something else."""
    if group.special is None:
        return 1.0
    own = _error(group.special, level.special(scale), scene.fixed_error_bytes)
    rises = _between(group.special, level.usual(scale), level.special(scale))
    ahead = sum(_error(group.special, other.usual(scale), 0) for other in levels if other is not level) / len(levels)
    return 0.4 * own + 0.2 * rises + 0.2 * ahead + 0.2 * scene.broad()


def _shared(group: Group, low: float, high: float) -> float:
    """How well page-locked bytes fit that are between these two, against anything being possible; 1 if unknown."""
    if group.shmem_bytes is None:
        return 1.0
    nearest = min(max(group.shmem_bytes, low), high)
    spread = math.hypot(PINNED_ERROR * nearest, 0.02 * group.usual + SMALL_BYTES / 4)
    off = (group.shmem_bytes - nearest) / spread
    width = (spread / _T_PEAK + high - low) / max(group.usual, 1)
    return float((1 + off * off / _DEGREES) ** (-(_DEGREES + 1) / 2) / max(width, 0.05)) + 0.05
