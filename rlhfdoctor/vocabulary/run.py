"""The closed lists of a run: its phases, who takes part in it, who may end it."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

Phase: TypeAlias = Literal["load", "rollout", "score", "update", "weight_sync", "checkpoint", "eval"]
"""The phases of an RLHF step."""
PHASES: tuple[Phase, ...] = get_args(Phase)

Role: TypeAlias = Literal[
    "doctor",
    "raylet",
    "critic",
    "reference",
    "reward worker",
    "data loader",
    "reward",
    "rollout engine",
    "driver",
    "actor",
]
"""Who a process of a run may be, in the order in which a name is tried."""
ROLES: tuple[Role, ...] = get_args(Role)

OTHER = "other"
"""The role of a process that is in none of them."""
SPOKEN: frozenset[str] = frozenset((*ROLES, OTHER, "worker", *PHASES, *(phase.replace("_", " ") for phase in PHASES)))
"""Words of the vocabulary that languages have names for."""

Component: TypeAlias = Literal[
    "weights",
    "optimizer",
    "gradients",
    "activations",
    "load copy",
    "resume copy",
    "save copy",
    "sleep copy",
    "swap blocks",
    "page-lock rounding",
    "object store",
    "process",
    "something else",
]
"""What memory of a run is held for. process: interpreter, libraries, communication; something else: none of these, such
as a leak or data of the program's own."""
COMPONENTS: tuple[Component, ...] = get_args(Component)

Killer: TypeAlias = Literal[
    "kernel-oom-cgroup",
    "kernel-oom-node",
    "ray-memory-monitor",
    "cuda-oom",
    "object-store-full",
    "sigbus",
    "collective-timeout",
    "sigkill-unknown",
    "sigsegv",
    "exception",
    "other",
    "",
]
"""Who ended the run; the words of the report (contract.md). Empty where nothing was killed and the run never began."""
KILLERS: tuple[Killer, ...] = tuple(killer for killer in get_args(Killer) if killer)
KERNEL_KILLERS: tuple[Killer, ...] = ("kernel-oom-cgroup", "kernel-oom-node")
HOST_KILLERS: tuple[Killer, ...] = (*KERNEL_KILLERS, "ray-memory-monitor")
"""Those that kill for host memory."""
SIGKILLERS: tuple[Killer, ...] = (*HOST_KILLERS, "sigkill-unknown")
"""Those that send SIGKILL."""

Axis: TypeAlias = Literal["limit", "consumer", "moment", "course", "failure"]
"""What a cause says of an incident: which limit was hit, what filled it, when, and by which course; a cause that is
not about a resource that ran out says which failure it was."""
AXES: tuple[Axis, ...] = get_args(Axis)

CERTAIN, TIMEOUT, EXCEPTION, VANISHED = range(4)
"""How certain an event shows a failure: each makes those that follow it in this list."""


class Failure(NamedTuple):
    """The failure that an event means."""

    killer: Killer
    certainty: int
    """CERTAIN, TIMEOUT, EXCEPTION or VANISHED."""
