"""Activations and logits: what passes through a device while a model computes.

T tokens of a micro batch, h hidden size, L layers, V words. With recomputation the inputs of the layers stay (2 T h L
bytes in bf16) and one layer is whole; without it about 34 T h a layer (flash attention). Logits take 10 to 12 bytes a
token and word in training (bf16, an fp32 copy, and about the same backward; OpenRLHF actor.forward), 6 forward only.
Estimates for transformer blocks with gated MLPs, not measured on GPUs (settings_notes sections 3 and 5).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import AFTER, TRAIN, ceil_power_of_two, make_need
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.estimates import Need

_BLOCK = 17
"""Values that a layer keeps for its backward pass, in units of T x h: 34 bytes in bf16."""


def compute_needs(model: Model) -> Iterator[Need]:
    """Activations and logits of scoring, and of training where the model is trained."""
    shape = model.shape
    if model.trained:
        tokens = model.sequences * model.tokens // model.parallel
        layers = (shape.layers + _BLOCK) if model.recompute else _BLOCK * shape.layers
        yield make_need(
            model,
            "gpu",
            TRAIN,
            tokens * shape.hidden * model.compute_width * layers,
            "activations",
            moment="backward",
            at_longest=True,
        )
        yield make_need(
            model,
            "gpu",
            TRAIN,
            _logits(model, model.sequences, model.logit_width),
            "logits and their gradients",
            moment="backward",
            at_longest=True,
        )
    tokens = model.scored * model.tokens // model.parallel
    yield make_need(
        model,
        "gpu",
        ("score",),
        tokens * shape.hidden * model.compute_width * _BLOCK,
        "activations of one layer",
        moment="forward",
        at_longest=True,
    )
    yield make_need(
        model,
        "gpu",
        ("score",),
        _logits(model, model.scored, model.scored_logit_width or model.logit_width // 2),
        "logits",
        moment="forward",
        at_longest=True,
    )


def _logits(model: Model, sequences: int, width: int) -> int:
    if model.value_head:
        return 0
    answers = model.tokens if model.answer_tokens is None else model.answer_tokens
    return sequences * answers // model.parallel * model.shape.vocabulary * width


def generate_needs(model: Model, sequences: int) -> Iterator[Need]:
    """A trained model that writes the responses itself: the KV cache of `generate`, grown by copying, and one position's logits."""
    shape: Shape = model.shape
    cache = sequences * model.tokens * shape.cache_bytes_per_token(width=model.width)
    yield make_need(
        model,
        "gpu",
        ("rollout",),
        2 * cache,
        "KV cache of generate, which grows by copying",
        moment="forward",
        at_longest=True,
    )
    yield make_need(
        model,
        "gpu",
        ("rollout",),
        sequences * shape.vocabulary * 4 * 3,
        "logits and probabilities of one position",
        moment="forward",
    )
    if model.swap_bytes:
        blocks = shape.layers * ceil_power_of_two(model.swap_bytes // shape.layers)
        yield make_need(
            model,
            "host",
            AFTER,
            blocks,
            f"swap blocks, {shape.layers} buffers, by the longest sequence",
            pinned=True,
            at_longest=True,
        )
        if model.rebuilds:
            yield make_need(
                model,
                "host",
                AFTER,
                blocks // 2,
                "smaller blocks of earlier rollouts, which the allocator keeps",
                pinned=True,
                at_longest=True,
            )
