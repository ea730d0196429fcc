"""Bytes that one rank of an FSDP model holds (verl, EasyR1, simpleRL-reason): fp32 weights in shards, offload between the phases.

N parameters, d ranks. The offload moves with `.to("cpu", non_blocking=True)`, which allocates page-locked memory; every
flat parameter and state is a buffer that torch rounds up to a power of two, and keeps (settings_notes section 1, 7 to 9;
verl/utils/fsdp_utils.py, verl/workers/fsdp_workers.py at 0.2 to 0.9.1).
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need, pinned_size
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.estimates import Need

_FULL = 4


def fsdp_needs(model: Model) -> Iterator[Need]:
    """Weights, gradients and states of one rank."""
    share, width, shape = model.share, model.width, model.shape
    unit = width * share // (shape.layers + 1) if shape.layers else width * share
    at_work = ("score", "update", "weight_sync", "checkpoint") if model.trained else ("score",)
    weights = f"weights, a shard of {model.ranks}"
    if model.offload_param:
        policy = model.backend == "fsdp2" and model.trained is False
        yield make_need(model, "host", ALL, pinned_size(width * share, unit), f"{weights}, in host memory", pinned=True)
        if not model.trained and not policy and model.backend == "fsdp1":
            yield make_need(
                model,
                "host",
                ALL,
                pinned_size(width * share, unit),
                "gradient buffers that FSDP1 keeps beside offloaded weights",
                pinned=True,
            )
        if model.trained:
            yield make_need(model, "gpu", at_work, width * share, weights)
    else:
        yield make_need(model, "gpu", ALL, width * share, weights)
    layer = 2 * max(shape.layer_parameters, 2 * shape.vocabulary * shape.hidden // 2)
    yield make_need(
        model, "gpu", ("score", "update", "weight_sync"), 2 * layer, "two gathered layers in bf16", moment="gather"
    )
    yield make_need(
        model,
        "host",
        ("load",),
        width * model.parameters // max(model.here, 1),
        "the whole model on the first rank of the node while it loads",
        moment="gather",
    )
    if not model.trained:
        return
    yield make_need(model, "gpu", TRAIN, width * model.states, "gradients of the shard")
    states = 2 * width * model.states
    if model.offload_optimizer:
        yield make_need(
            model,
            "host",
            AFTER,
            pinned_size(states, unit),
            "Adam's two moments, in host memory between the updates",
            pinned=True,
        )
        yield make_need(model, "gpu", TRAIN, states, "Adam's two moments")
    else:
        yield make_need(model, "gpu", AFTER, states, "Adam's two moments, from the first step on")
