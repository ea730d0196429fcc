"""What DeepSpeed's stages share: the optimizer's states, the reduce bucket."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.pinned import pinned_size
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.types import Need, Place
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.vocabulary.run import Component

MASTER = 4
"""Bytes a parameter of the fp32 copy that is stepped."""
MOMENTS = 8
"""Bytes a parameter of Adam's two."""
MASTER_WEIGHTS = say("fp32 master weights")
ADAM = say("Adam's two moments, from the first step on")
ADAM_AT_START = say("Adam's two moments, made at the start")
FLAT_GRADIENTS = say("flat gradient buffer")
FLAT = 500_000_000
"""Elements that are flattened at once (numel_per_bucket, elements_per_buffer)."""


def states_need(
    model: Model,
    place: Place,
    phases: tuple[str, ...],
    size: int,
    what: Message,
    pinned: bool,
    buffer: int | None = None,
    held_for: Component = "optimizer",
) -> Need:
    """Host buffers that may be page-locked; then each is rounded up to a power of two."""
    if pinned and place == "host":
        taken = pinned_size(size, buffer or -(-size // model.groups))
        return make_need(model, place, phases, taken, what, pinned=True, held_for=held_for, asked=size)
    return make_need(model, place, phases, size, what, held_for=held_for)


def moments_need(model: Model, place: Place, elements: int | None = None) -> Need:
    """Adam's states of the shard; before 0.13.2 initialize_optimizer_states made them at the start."""
    size = MOMENTS * (model.states if elements is None else elements)
    if model.since("0.13.2"):
        return make_need(model, place, AFTER, size, ADAM, held_for="optimizer")
    return make_need(model, place, ALL, size, ADAM_AT_START, held_for="optimizer")


def adam_on_cpu(model: Model, device: str, share: int) -> Iterator[Need]:
    """torch's AdamW makes two arrays as large as its parameter (torch/optim/adam.py, `denom`); FusedAdam does not."""
    if device == "cpu":
        yield make_need(model, "gpu", TRAIN, 2 * MASTER * share, say("intermediate values of AdamW"), transient="step")


def bucket_elements(model: Model, device: str) -> int:
    """Elements of the reduce bucket that take memory: all on a GPU, as many as there are gradients on a CPU."""
    return min(model.bucket, model.trainable) if device == "cpu" else model.bucket
