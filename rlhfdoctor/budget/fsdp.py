"""Bytes that one rank of an FSDP model holds: shards of the weights, offload between the phases.

N parameters, d ranks. The offload moves with `.to("cpu", non_blocking=True)`, which allocates page-locked memory; every
flat parameter and state is a buffer that torch rounds up to a power of two, and keeps (settings_notes section 1, 7 to
9; verl/utils/fsdp_utils.py, verl/workers/fsdp_workers.py at 0.2 to 0.9.1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.pinned import pinned_size
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import say


def fsdp_needs(model: Model) -> Iterator[Need]:
    """Weights, gradients and states of one rank."""
    share, width, shape = model.share, model.width, model.shape
    unit = max(width * share // (shape.layers + 1), 1)
    weights = say("weights, a shard of {ranks}", ranks=model.ranks)
    at_work = ("score", "update", "weight_sync") if model.trained else ("score",)
    if model.offload_param or model.on_host:
        yield make_need(
            model,
            "host",
            ALL,
            pinned_size(width * share, unit),
            say("{weights}, in host memory", weights=weights),
            pinned=True,
            asked=width * share,
        )
        if not model.trained and model.backend == "fsdp1":
            what = say("gradient buffers that FSDP1 keeps beside offloaded weights")
            size = width * share
            taken = pinned_size(size, unit)
            yield make_need(model, "host", ALL, taken, what, pinned=True, held_for="gradients", asked=size)
        if model.trained and not model.on_host:
            # load_fsdp_model_to_gpu before each pass of the role, offload_fsdp_model_to_cpu after it
            yield replace(
                make_need(model, "gpu", (*at_work, "checkpoint", "final_save"), width * share, weights), exclusive=True
            )
    else:
        yield make_need(model, "gpu", ALL, width * share, weights)
    gathered = 2 * max(shape.layer_parameters, 2 * shape.vocabulary * shape.hidden)
    for phase in at_work:
        for moment in ("head", "backward" if phase == "update" else "forward"):
            yield make_need(model, "gpu", (phase,), gathered, say("gathered layers in bf16"), transient=moment)
    yield _loading(model)
    if model.trained:
        yield from _states(model, unit)


def _loading(model: Model) -> Need:
    """The node's first rank reads the whole model; with tied embeddings every rank does (use_meta_tensor is off)."""
    whole = model.width * model.parameters
    if model.shape.tied:
        return make_need(
            model,
            "host",
            ("load",),
            whole,
            say("the whole model on every rank while it loads, its embeddings being tied"),
            transient="read",
        )
    return make_need(
        model,
        "host",
        ("load",),
        whole // max(model.local_ranks, 1),
        say("the whole model on the first rank while it loads, shared out"),
        transient="read",
    )


def _states(model: Model, unit: int) -> Iterator[Need]:
    gradients, states = model.width * model.states, 2 * model.width * model.states
    if model.on_host:
        yield make_need(
            model,
            "host",
            AFTER,
            pinned_size(gradients, unit),
            say("gradients of the shard, in host memory"),
            pinned=True,
            held_for="gradients",
            asked=gradients,
        )
        what = say("Adam's two moments, stepped in host memory")
        yield make_need(model, "host", AFTER, states, what, held_for="optimizer")
        return
    yield make_need(model, "gpu", TRAIN, gradients, say("gradients of the shard"))
    if model.offload_optimizer:
        what = say("Adam's two moments, in host memory between the updates")
        taken = pinned_size(states, unit)
        yield make_need(model, "host", AFTER, taken, what, pinned=True, held_for="optimizer", asked=states)
        yield make_need(model, "gpu", TRAIN, states, say("Adam's two moments"), held_for="optimizer")
    else:
        what = say("Adam's two moments, from the first step on")
        yield make_need(model, "gpu", AFTER, states, what, held_for="optimizer")
