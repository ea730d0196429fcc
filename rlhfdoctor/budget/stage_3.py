"""ZeRO stage 3: weights, gradients, states in shards; layers are gathered while they compute.

DeepSpeed runtime/zero/stage3.py at 0.12.6 to 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.optimizer import (
    FLAT,
    FLAT_GRADIENTS,
    MASTER,
    MASTER_WEIGHTS,
    adam_on_cpu,
    bucket_elements,
    moments_need,
    states_need,
)
from rlhfdoctor.budget.pinned import ceil_power_of_two
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.subgroups import elements_on_gpu
from rlhfdoctor.budget.types import Need, Place
from rlhfdoctor.i18n.message import say

_LIVE_PARAMETERS = 1_000_000_000
"""stage3_max_live_parameters."""
_PREFETCH = 50_000_000
_STAGED_COPIES = 2.4
"""Of what is fetched ahead: gloo's staging and the flat output, sometimes together with the next bucket; measured."""
_GATHERED_ALONE = 0.65
"""Of a single rank's weights at stage 3 on a CPU, where there are no other ranks to gather from; also measured."""


def partitioned_weights(model: Model, device: str) -> Iterator[Need]:
    """Stage 3: weights, gradients and states in shards; layers are gathered while they compute."""
    share, width = model.states, model.width
    states: Place = "host" if model.offload_optimizer else "gpu"
    group = min(share, model.sub_group)
    moved = elements_on_gpu(model)
    if model.offload_param:
        yield from parameters_on_host(model, device)
    else:
        yield make_need(model, "gpu", ALL, width * model.share, say("weights, a shard of {ranks}", ranks=model.ranks))
    yield make_need(model, states, ALL, MASTER * (share - moved), MASTER_WEIGHTS, held_for="optimizer")
    what = say("a second copy while the master weights are made")
    yield make_need(model, states, ("load",), MASTER * group, what, transient="flatten")
    yield moments_need(model, states, share - moved)
    if moved:
        yield make_need(
            model,
            "gpu",
            ALL,
            2 * MASTER * moved,
            say("fp32 master weights and gradients that ratio leaves on the GPU"),
            held_for="optimizer",
        )
        yield moments_need(model, "gpu", moved)
    flat = (model.sum_width or width) * share
    pins_flat = model.pin_optimizer and model.offload_optimizer
    yield states_need(model, states, ALL, flat, FLAT_GRADIENTS, pins_flat, held_for="gradients")
    if model.offload_optimizer:
        yield states_need(
            model,
            "host",
            ALL,
            MASTER * (share - moved),
            say("fp32 gradients, a buffer a sub-group"),
            model.pin_optimizer,
            MASTER * group,
            "gradients",
        )
    else:
        yield make_need(model, "gpu", TRAIN, MASTER * group, say("fp32 gradients of a sub-group"), transient="step")
        yield from adam_on_cpu(model, device, group)
    yield from gathered(model, device, ("rollout", "score"), ("forward", "head"))
    yield from gathered(model, device, TRAIN, ("head", "backward"))
    yield make_need(
        model, "gpu", TRAIN, width * _live(model, device), say("weights that are still gathered"), transient="step"
    )
    yield make_need(
        model,
        "gpu",
        AFTER if device == "cpu" else ALL,
        width * bucket_elements(model, device),
        say("reduce bucket, kept"),
        held_for="gradients",
    )
    size = width * min(model.trainable, FLAT, model.bucket)
    yield make_need(
        model,
        "gpu",
        TRAIN,
        size + size // model.ranks,
        say("the bucket while it is reduced and scattered"),
        transient="backward",
    )


def parameters_on_host(model: Model, device: str) -> Iterator[Need]:
    """Shards of the weights in host memory.

    With pin_memory each parameter's shard is a page-locked buffer of its own (partition_parameters.py); training then
    moves them to one flat buffer, page-locked in every version, regardless of pin_memory (stage3.py,
    _create_param_groups_fp16_flat_cpu_memory), and torch keeps the first ones.
    """
    what = say("weights, a shard of {ranks}, in host memory", ranks=model.ranks)
    if model.trained:
        size = model.width * model.share
        yield states_need(model, "host", ALL, size, what, pinned=True, held_for="weights")
    elif not model.pin_param:
        yield make_need(model, "host", ALL, model.width * model.share, what)
    if model.pin_param:
        sizes = model.shape.parameter_sizes() + (
            [] if model.value_head or not model.shape.tied else [(model.shape.vocabulary * model.shape.hidden, 1)]
        )
        taken = sum(ceil_power_of_two(model.width * -(-numel // model.ranks)) * many for numel, many in sizes)
        yield make_need(
            model,
            "host",
            ALL,
            taken,
            say("buffers of single parameters, which the allocator keeps") if model.trained else what,
            pinned=True,
            asked=model.width * sum(-(-numel // model.ranks) * many for numel, many in sizes),
        )


def gathered(model: Model, device: str, phases: tuple[str, ...], moments: tuple[str, ...]) -> Iterator[Need]:
    """Weights that are whole for a while: what may be live, and what is fetched ahead; gloo stages it in copies."""
    live, ahead = _live(model, device), min(model.parameters, _PREFETCH)
    several = _STAGED_COPIES if model.parameters > _PREFETCH else 2.0
    copies = 0.0 if model.ranks == 1 else several if device == "cpu" else 1.0
    size = model.width * (live + round(copies * ahead))
    for moment in moments:
        yield make_need(model, "gpu", phases, size, say("gathered weights"), transient=moment)


def _live(model: Model, device: str) -> int:
    """Parameters that may be whole at once."""
    alone = device == "cpu" and model.ranks == 1
    return round(model.parameters * _GATHERED_ALONE) if alone else min(model.parameters, _LIVE_PARAMETERS)
