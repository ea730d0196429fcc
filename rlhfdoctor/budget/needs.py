"""What all byte formulas share: a need of a model's processes, the phases that it lasts through."""

from __future__ import annotations

from rlhfdoctor.budget.plan import Engine, Model
from rlhfdoctor.budget.types import BUDGET_PHASES, Need, Place
from rlhfdoctor.i18n.message import Message
from rlhfdoctor.vocabulary.run import Component

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
    held_for: Component | None = None,
    asked: int | None = None,
) -> Need:
    """A need of each of the owner's processes on the node.

    What lasts through `AFTER` came with the first optimizer step. What is there for `TRAIN` alone (gradients) is
    exclusive: actor and critic in one process train one after the other, those on one GPU too unless the owner is
    `concurrent`.

    Args:
        held_for: what it is held for, where its phases do not tell.
        asked: bytes before page-locked buffers were rounded up; None: they were not.
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
        held_for=held_for,
        rounding_bytes=max(size - asked, 0) if asked is not None else 0,
        concurrent=phases == TRAIN and isinstance(owner, Model) and owner.concurrent,
    )
