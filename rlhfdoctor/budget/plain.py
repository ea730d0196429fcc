"""Bytes that one rank holds whose model torch alone trains: weights, gradients, Adam's moments, autocast's copies.

What transformers' Trainer does without DeepSpeed or FSDP: every rank has everything, and DistributedDataParallel sums
the gradients (torch 2.4 to 2.13, transformers 4.44 to 5.19, accelerate 0.34 to 1.15). Sources: torch/csrc/autograd/
(gradients are made from the head down, and are there until zero_grad), torch/csrc/distributed/c10d/reducer.cpp
(buckets beside the gradients, since gradient_as_bucket_view is off), aten/src/ATen/autocast_mode.cpp (`cached_cast`),
torch/optim/adamw.py (fused: no intermediate values, moments in the weights' own type).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.activations import kept_bytes
from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.optimizer import ADAM
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import say

_HALF = 2
"""Bytes of what autocast computes in."""
_MALLOC_KEEPS = 0.1
"""Of the gradients, measured on CPU: glibc keeps freed blocks below 32 MiB (tests/bench/budget.py)."""
_CASTS_KEPT = 0.6
"""Of the layers' weights in 16 bit, what malloc keeps beside the gradients (0.2 to 0.8; tests/bench/TRL.md)."""
_MAPPED = 32 << 20
"""Bytes from which malloc maps a block, and gives it back when it is freed (M_MMAP_THRESHOLD at its largest)."""
_KEPT = say("freed blocks that malloc keeps")
_CASTS = say("weights in 16 bit, which autocast makes for a pass")


def plain_needs(model: Model, device: str) -> Iterator[Need]:
    """What one rank holds."""
    mapped = device == "cpu" and model.is_mapped
    if model.trained or not mapped:
        what = say("weights, whole on every rank")
        if mapped:
            what = say("weights, written to by the first step and no longer mapped from their files")
        yield make_need(model, "gpu", AFTER if mapped else ALL, model.width * model.parameters, what)
    if device == "cuda":
        what = say("the model as it is read, before it goes to the GPU")
        yield make_need(model, "host", ("load",), model.width * model.parameters, what, transient="read")
    yield from _casts(model, device)
    if model.trained:
        yield from _gradients(model, device)
        moments = 2 * model.width * model.trainable
        yield make_need(model, "gpu", AFTER, moments, ADAM, held_for="optimizer")


def _casts(model: Model, device: str) -> Iterator[Need]:
    """Autocast keeps its copy of a weight that has a gradient until the pass ends, or the backward pass if it needs it.

    Embeddings are looked up and not cast. On a CPU malloc keeps a part of what was freed of blocks below 32 MiB.
    """
    if not model.mixed or model.lora_rank:
        return
    layers = _HALF * model.shape.layers * model.shape.layer_parameters
    head = _HALF * model.shape.vocabulary * model.shape.hidden
    whole = layers + (0 if model.value_head else head)
    passes = layers if model.fused_head else whole
    if model.trained:
        yield make_need(model, "gpu", ("rollout",), whole, _CASTS, transient="forward")
        for moment in ("forward",) if model.recompute else ("forward", "head"):
            yield make_need(model, "gpu", TRAIN, passes, _CASTS, transient=moment)
        if device == "cpu":
            for moment in ("head", "backward", "step") if model.recompute else ("backward", "step"):
                yield make_need(model, "gpu", TRAIN, round(_CASTS_KEPT * layers), _KEPT, transient=moment)
    yield make_need(model, "gpu", ("score",), passes, _CASTS, transient="head")


def _gradients(model: Model, device: str) -> Iterator[Need]:
    """Made from the head down while activations go; whole from the second micro batch of a step on."""
    whole = model.width * model.trainable
    if model.accumulates:
        yield make_need(model, "gpu", TRAIN, whole, say("gradients"))
    else:
        head = 0 if model.lora_rank else model.width * model.shape.vocabulary * model.shape.hidden
        yield make_need(model, "gpu", TRAIN, head, say("gradients of the head"), transient="head", held_for="gradients")
        if device == "cpu":
            yield make_need(model, "gpu", TRAIN, _of_last_step(model), _KEPT, transient="head")
        for moment in ("backward", "step"):
            yield make_need(model, "gpu", TRAIN, whole, say("gradients"), transient=moment, held_for="gradients")
    if model.shape.tied and not model.lora_rank and not model.value_head:
        table = model.width * model.shape.vocabulary * model.shape.hidden
        table *= 2 if model.accumulates else 1  # the head's own is not yet added to what earlier micro batches left
        what = say("the embedding's gradient, before it is added to the head's")
        yield make_need(model, "gpu", TRAIN, table, what, transient="backward", held_for="gradients")
    if model.ranks > 1:
        yield make_need(model, "gpu", AFTER, whole, say("DDP's buckets of gradients"), held_for="gradients")
    if device == "cpu":
        size = round(_MALLOC_KEEPS * whole)
        yield make_need(model, "gpu", TRAIN, size, _KEPT)


def _of_last_step(model: Model) -> int:
    """Gradients of the step before, freed, of blocks that malloc keeps; activations and casts take their place."""
    small = sum(numel * many for numel, many in model.shape.layer_sizes() if model.width * numel < _MAPPED)
    whole = 0 if model.lora_rank else model.width * model.shape.layers * small
    casts = round(_CASTS_KEPT * _HALF * model.shape.layers * model.shape.layer_parameters) if model.mixed else 0
    return max(whole - kept_bytes(model, "cpu") - casts, 0)
