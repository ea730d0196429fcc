"""Activations, logits: what passes through a device while a model computes.

T tokens of a micro batch, h hidden size, L layers, V words. With recomputation the inputs of the layers stay (2 T h L
bytes in bf16) and one layer is whole; without it about 34 T h per layer (flash attention). Logits take what the
framework makes of them: OpenRLHF 10 to 12 bytes per token and vocabulary entry in training (bf16, an fp32 copy, and
about the same backward; actor.forward), 6 forward only; verl and EasyR1: frameworks/verl/layout.py. Estimates for
transformer blocks with gated MLPs, not measured on GPUs (settings_notes sections 3 and 5).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.activations import kept_bytes, layer_bytes
from rlhfdoctor.budget.fused_head import tile_bytes
from rlhfdoctor.budget.needs import AFTER, TRAIN, make_need
from rlhfdoctor.budget.pinned import ceil_power_of_two
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import Message, say

_AT_HEAD = 2
"""Values that there are while the head computes, in units of T x h: the last hidden states, and normed."""


def compute_needs(model: Model, device: str) -> Iterator[Need]:
    """Activations and logits of scoring, and of training if the model is trained.

    The head is the last to compute and the first to have gradients: on a GPU the logits take the place of what one
    layer computed with. On a CPU malloc keeps that (blocks below 32 MiB), and it coexists with the logits, as measured.
    """
    hidden = model.shape.hidden * model.compute_width
    stays = say("activations of a layer that malloc keeps") if device == "cpu" else say("hidden states")

    def at_head(sequences: int) -> int:
        tokens = sequences * model.tokens // model.parallel
        return layer_bytes(model, sequences, device) if device == "cpu" else tokens * hidden * _AT_HEAD

    if model.trained:
        kept = kept_bytes(model, device)
        plain = model.backend == "plain"  # its gradients come as the activations go
        moments = ("forward", "head") if plain else ("backward", "head")
        yield from _at_longest(model, TRAIN, kept, say("activations that the backward pass needs"), *moments)
        if model.recompute or plain:
            what = (
                say("activations of one layer, computed again") if model.recompute else say("activations of one layer")
            )
            yield from _at_longest(model, TRAIN, layer_bytes(model, model.sequences, device), what, "backward")
        if model.recompute:
            yield from _at_longest(model, TRAIN, at_head(model.sequences), stays, "head")
        size = _logits(model, model.sequences, model.logit_width, device, trains=True)
        yield from _at_longest(model, TRAIN, size, say("logits and their gradients"), "head")
    layer = layer_bytes(model, model.scored, device)
    yield from _at_longest(model, ("score",), layer, say("activations of one layer"), "forward")
    yield from _at_longest(model, ("score",), at_head(model.scored), stays, "head")
    size = _logits(model, model.scored, model.scored_logit_width or model.logit_width / 2, device, trains=False)
    yield from _at_longest(model, ("score",), size, say("logits"), "head")


def _at_longest(model: Model, phases: tuple[str, ...], size: int, what: Message, *moments: str) -> Iterator[Need]:
    for moment in moments:
        yield make_need(model, "gpu", phases, size, what, transient=moment, at_longest=True)


def _logits(model: Model, sequences: int, width: float, device: str, *, trains: bool) -> int:
    if model.value_head:
        return 0
    if model.fused_head:
        return tile_bytes(model, sequences, device, trains=trains)
    answers = model.tokens if model.answer_tokens is None else model.answer_tokens
    return round(sequences * answers // model.parallel * model.shape.vocabulary * width)


def generate_needs(model: Model, sequences: int) -> Iterator[Need]:
    """A trained model that writes the responses itself: one position's logits, `generate`'s KV cache.

    The cache is grown by copying.
    """
    shape: Shape = model.shape
    cache = sequences * model.tokens * shape.cache_bytes_per_token(width=model.compute_width)
    yield make_need(
        model,
        "gpu",
        ("rollout",),
        2 * cache,
        say("KV cache of generate, which grows by copying"),
        transient="forward",
        at_longest=True,
    )
    yield make_need(
        model,
        "gpu",
        ("rollout",),
        sequences * shape.vocabulary * 4 * 3,
        say("logits and probabilities of one position"),
        transient="forward",
    )
    if model.swap_bytes:
        blocks = shape.layers * ceil_power_of_two(model.swap_bytes // shape.layers)
        yield make_need(
            model,
            "host",
            AFTER,
            blocks,
            say("swap blocks, {layers} buffers, by the longest sequence", layers=shape.layers),
            pinned=True,
            at_longest=True,
            held_for="swap blocks",
            asked=model.swap_bytes,
        )
        if model.rebuilds:
            yield make_need(
                model,
                "host",
                AFTER,
                blocks // 2,
                say("smaller blocks of earlier rollouts, which the allocator keeps"),
                pinned=True,
                at_longest=True,
                held_for="swap blocks",
            )
