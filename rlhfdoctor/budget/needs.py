"""What all byte formulas share: the phases a need lasts through, and the rounding of page-locked memory."""

from __future__ import annotations

from rlhfdoctor.budget.plan import Engine, Model
from rlhfdoctor.budget.types import BUDGET_PHASES, Need, Place
from rlhfdoctor.i18n.message import Message

ALL: tuple[str, ...] = BUDGET_PHASES
AFTER: tuple[str, ...] = tuple(phase for phase in BUDGET_PHASES if phase != "load")
"""What the first optimizer step allocates stays; only loading is without it."""
TRAIN: tuple[str, ...] = ("update",)


def make_need(
    owner: Model | Engine,
    place: Place,
    phases: tuple[str, ...],
    size: int,
    what: Message,
    *,
    transient: str = "",
    pinned: bool = False,
    at_longest: bool = False,
    exact: bool = False,
) -> Need:
    """A need of each of the owner's processes on the node.

    What lasts through `AFTER` came with the first optimizer step. What is there for `TRAIN` alone (gradients) is
    exclusive: actor and critic in one process train one after the other, those on one GPU too unless the owner is
    `concurrent`.
    """
    return Need(
        role=owner.role if isinstance(owner, Model) else "rollout engine",
        process=owner.process,
        place=place,
        phases=phases,
        bytes=size,
        count=owner.local_ranks,
        what=what,
        transient=transient,
        pinned=pinned,
        at_longest=at_longest,
        exact=exact,
        after_first_step=phases == AFTER,
        exclusive=phases == TRAIN and not transient,
        gpus=owner.gpus,
        concurrent=phases == TRAIN and isinstance(owner, Model) and owner.concurrent,
    )


def pinned_size(size: int, buffer: int) -> int:
    """Bytes that page-locked buffers of this size take: torch's host allocator rounds each up to a power of two.

    Args:
        size: bytes requested in total.
        buffer: bytes of one buffer; the last one is smaller.

    aten/src/ATen/core/CachingHostAllocator.h, `PowerOf2Ceil`; pytorch issues 95823 and 150517.

    >>> pinned_size(2415919104, 2415919104), pinned_size(300, 100)
    (4294967296, 384)
    """
    if size <= 0 or buffer <= 0:
        return 0
    whole, rest = divmod(size, buffer)
    return whole * ceil_power_of_two(buffer) + (ceil_power_of_two(rest) if rest else 0)


def ceil_power_of_two(size: int) -> int:
    """The least power of two that is not below.

    >>> ceil_power_of_two(1), ceil_power_of_two(5), ceil_power_of_two(8)
    (1, 8, 8)
    """
    return 1 << (size - 1).bit_length() if size > 1 else max(size, 0)
