"""The types of an estimate: needs of processes in phases, limits of places, their sum."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from rlhfdoctor.i18n.message import Message
from rlhfdoctor.types import Gap
from rlhfdoctor.vocabulary.limits import BoundName
from rlhfdoctor.vocabulary.run import Component

BudgetPhase: TypeAlias = Literal[
    "load", "resume", "rollout", "score", "update", "weight_sync", "checkpoint", "final_save"
]
"""The phases that a budget distinguishes; `resume` is the load from a checkpoint, `final_save` the model's save after
the last step."""
BUDGET_PHASES: tuple[BudgetPhase, ...] = get_args(BudgetPhase)
Place: TypeAlias = Literal["host", "shm", "gpu"]
"""Where bytes are: memory of processes, /dev/shm (which counts for the container's limit, too), one GPU."""
PLACES: tuple[Place, ...] = get_args(Place)


_COPIES: Mapping[Component, frozenset[str]] = {
    "load copy": frozenset(("load",)),
    "resume copy": frozenset(("resume",)),
    "save copy": frozenset(("checkpoint", "final_save")),
}
"""What is there in these phases only is a copy made for them."""


@functools.cache
def _copies_of(phases: tuple[str, ...]) -> Component | None:
    return next((name for name, only in _COPIES.items() if only.issuperset(phases)), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Bytes that a role's processes on one node hold in some phases."""

    role: str
    process: str
    """Roles with one name share their processes, and take turns."""
    place: Place
    phases: tuple[str, ...]
    bytes: int
    """Of one process, or on one GPU."""
    count: int
    """Such processes on the node."""
    what: Message
    pinned: bool = False
    """Page-locked: it can neither be swapped nor reclaimed."""
    transient: str = ""
    """The moment within its phases at which it is there (`backward`, `step`, ...); empty: all through them."""
    exclusive: bool = False
    """Held in the role's own turn of the phase only, freed before that of the next role of its process or GPU."""
    concurrent: bool = False
    """Of a process that computes in this phase while others of its GPU do, so that their moments come together."""
    at_longest: bool = False
    """An upper bound: as large as this only if all sequences are at their longest."""
    exact: bool = False
    """A size that is set, not estimated, such as the engine's share of a GPU."""
    after_first_step: bool = False
    """Allocated by the first optimizer step; earlier phases are without it."""
    gpus: str = ""
    """Which GPUs of the node; roles with one name here share them."""
    held_for: Component | None = None
    """What it is held for, where phases and moment do not tell; see `component`."""
    rounding_bytes: int = 0
    """Of `bytes`, what page-locked buffers take beyond what was asked for."""

    @property
    def component(self) -> Component:
        """What it is held for: given where it is made, else inferred from its phases and its moment.

        >>> from rlhfdoctor.i18n.message import NOTHING
        >>> only_loaded = dict(role="actor", process="actor", place="host", phases=("load",), bytes=1, count=1)
        >>> Need(**only_loaded, what=NOTHING).component
        'load copy'
        """
        if self.held_for is not None:
            return self.held_for
        copies = _copies_of(self.phases)
        if copies is not None:
            return copies
        if self.exclusive:
            return "gradients"
        return "activations" if self.transient or self.at_longest else "weights"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """What a place of the node has."""

    name: BoundName
    place: Place
    bytes: int | None
    """None if unknown."""
    basis: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazard:
    """A fault in a phase that is visible in the settings alone, independent of memory."""

    phase: str
    cause: str
    """The id of the cause that it leads to."""
    says: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """The memory that a configuration will take on the fullest node, before it runs."""

    framework: str
    version: Message
    node: Message
    """Which node it is, in words."""
    needs: tuple[Need, ...]
    limits: tuple[Limit, ...]
    phases: tuple[str, ...]
    """Those that this run goes through, in order."""
    assumed: tuple[Message, ...] = ()
    """Assumptions about what is unknown from the files, as sentences."""
    hazards: tuple[Hazard, ...] = ()
    gaps: tuple[Gap, ...] = ()

    def of(
        self, place: Place, phase: str, role: str | None = None, *, surely: bool = False, first: bool = False
    ) -> int:
        """Bytes on the node (host, shm) or on its fullest GPU at the peak of a phase.

        Moments of a role do not come together, nor do those of roles that share a process and take turns; those of
        different processes may. What is held for a turn goes with the moments of that turn.

        Args:
            role: only what this role needs.
            surely: without what is only there if all sequences are at their longest.
            first: of the first step, before the optimizer has made its states.
        """
        steady: dict[str, int] = {}
        turns: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
        for need in self.needs:
            if (
                need.place != place
                or phase not in need.phases
                or role not in (None, need.role)
                or (surely and need.at_longest)
            ):
                continue
            if first and need.after_first_step and phase in ("rollout", "score"):
                continue
            where = need.gpus if place == "gpu" else ""
            size = need.bytes if place == "gpu" else need.bytes * need.count
            if need.transient or need.exclusive:
                taker = "" if place == "gpu" and not need.concurrent else need.process
                turn = turns.setdefault((where, taker), {}).setdefault(need.role, {})
                turn[need.transient] = turn.get(need.transient, 0) + size
            else:
                steady[where] = steady.get(where, 0) + size
        for (where, _), roles in turns.items():
            longest = max(turn.get("", 0) + max(turn[m] if m else 0 for m in turn) for turn in roles.values())
            steady[where] = steady.get(where, 0) + longest
        return max(steady.values(), default=0)

    def used(self, limit: Limit, phase: str, *, surely: bool = False, first: bool = False) -> int:
        """What counts for a limit in a phase: /dev/shm is memory of the node and of its container, too."""
        places: tuple[Place, ...] = ("host", "shm") if limit.place == "host" else (limit.place,)
        return sum(self.of(place, phase, surely=surely, first=first) for place in places)

    def exact(self, limit: Limit, phase: str) -> int:
        """The part of what is used in a phase that is set and not estimated."""
        only = replace(self, needs=tuple(need for need in self.needs if need.exact))
        return only.used(limit, phase)

    def share(self, limit: Limit, *phases: str) -> float:
        """How full a limit is at its peak, in these phases or in all; 0 for an unknown limit.

        What is set exactly is left out on both sides.
        """
        if not limit.bytes:
            return 0.0
        found = 0.0
        for phase in phases or self.phases:
            used, exact = self.used(limit, phase), self.exact(limit, phase)
            found = max(
                found, (used - exact) / max(limit.bytes - exact, 1) if used <= limit.bytes else used / limit.bytes
            )
        return found

    def peak(self, limit: Limit, *, surely: bool = False) -> tuple[str, int]:
        """The phase that takes most, and how much."""
        sizes = [(phase, self.used(limit, phase, surely=surely)) for phase in self.phases]
        return max(sizes, key=lambda pair: pair[1], default=("", 0))

    def breaks(self, limit: Limit, *, surely: bool = True) -> tuple[str, int] | None:
        """The phase in which the limit is exceeded first, in order of the run, and by what size; None if never."""
        if limit.bytes is None:
            return None
        for first in (False,) if "resume" in self.phases else (True, False):
            for phase in self.phases:
                size = self.used(limit, phase, surely=surely, first=first)
                if size > limit.bytes:
                    return phase, size
        return None

    @property
    def roles(self) -> tuple[str, ...]:
        """Everybody who needs something, the largest first."""
        sums: dict[str, int] = {}
        for need in self.needs:
            sums[need.role] = sums.get(need.role, 0) + need.bytes * need.count
        return tuple(sorted(sums, key=lambda role: -sums[role]))
