"""ZeRO stages 1 to 2: weights whole on every rank, states in shards.

DeepSpeed runtime/zero/stage_1_and_2.py and runtime/bf16_optimizer.py at 0.12.6 to 0.19.8.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.optimizer import (
    FLAT,
    MASTER,
    MASTER_WEIGHTS,
    MOMENTS,
    adam_on_cpu,
    bucket_elements,
    moments_need,
    states_need,
)
from rlhfdoctor.budget.pinned import ceil_power_of_two
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.types import Need, Place
from rlhfdoctor.i18n.message import say


def partitioned_states(model: Model, device: str) -> Iterator[Need]:
    """Weights whole on every rank, states in shards; offload moves states and fp32 gradients to the host."""
    count, share, width = model.parameters, model.states, model.width
    states: Place = "host" if model.offload_optimizer else "gpu"
    sums = model.sum_width or width
    yield make_need(model, "gpu", ALL, width * count, say("weights, whole on every rank"))
    if device == "cpu":
        yield make_need(
            model, "gpu", ("load",), width * count, say("the weights beside their flat copy"), transient="flatten"
        )
    else:
        # flattened on the GPU only if there is room (0.19), on the host before
        size = max(2 * width * count - made_later(model), 0)
        yield make_need(
            model,
            "host",
            ("load",),
            size,
            say("the weights and their flat copy, on the host for a while"),
            transient="flatten",
        )
    pins_master = model.pin_optimizer or (
        model.offload_optimizer and model.since("0.14.1") and not model.since("0.18.3")
    )
    yield states_need(model, states, ALL, MASTER * share, MASTER_WEIGHTS, pins_master)
    yield moments_need(model, states)
    if model.offload_optimizer:
        what = say("fp32 gradients of the shard")
        yield states_need(model, "host", ALL, MASTER * share, what, model.pin_optimizer, held_for="gradients")
        if model.since("0.17.0"):
            yield states_need(
                model, "host", ALL, width * share, say("staging of the updated weights"), model.pin_optimizer
            )
        else:
            yield make_need(model, "gpu", TRAIN, MASTER * share, say("updated weights in fp32"), transient="step")
        largest = model.largest_trained
        what = say("staging of the largest gradient")
        yield make_need(model, "gpu", ALL, width * largest, what, held_for="gradients")
        yield states_need(
            model,
            "host",
            ALL,
            width * largest,
            say("staging of the largest gradient"),
            model.pin_optimizer,
            held_for="gradients",
        )
        if model.accumulates:
            yield _accumulated(model)
    else:
        if model.stage == 2:
            when = "step" if device == "cpu" else ""  # on a CPU their flat copy is gone by then, which was larger
            yield make_need(model, "gpu", TRAIN, sums * share, say("gradients of the shard"), transient=when)
        if width == 2 or model.stage == 1:
            yield make_need(model, "gpu", TRAIN, MASTER * share, say("fp32 gradients of the step"), transient="step")
        yield from adam_on_cpu(model, device, share)
    if model.offload_optimizer and sums > width and model.since("0.19.8"):  # _use_compact_grad_partition_buffer
        yield make_need(model, "gpu", TRAIN, sums * share, say("gradients of the shard as they add up"))
    if model.stage == 1:  # reduced at the boundary of accumulation only (process_gradients)
        yield make_need(model, "gpu", TRAIN, sums * model.trainable, say("gradients, whole until the step"))
    # stage 1 reduces what it has added up, and since 0.19.8 in that type (_gradient_reduction_buffer_dtype)
    reduced = sums if model.stage == 1 and model.since("0.19.8") else width
    bucket = reduced * bucket_elements(model, device) * (2 if model.overlap else 1)
    yield make_need(
        model,
        "gpu",
        TRAIN,
        bucket,
        say("reduce bucket of {bucket:.0e} elements", bucket=model.bucket),
        transient="backward",
    )
    if model.ranks > 1 or width == 2:  # one rank's fp32 bucket is one tensor, and its flat form a view
        flat = reduced * min(model.trainable, FLAT, model.bucket)
        yield make_need(
            model, "gpu", TRAIN, flat, say("a flat copy of the bucket while it is reduced"), transient="backward"
        )


def _accumulated(model: Model) -> Need:
    """Gradients of the shard that add up in host memory, one tensor a parameter of it."""
    size = model.width * model.states
    what = say("gradients that add up over micro batches, a tensor a parameter")
    if not model.pin_optimizer:
        return make_need(model, "host", AFTER, size, what, held_for="gradients")
    asked = sum(numel * many for numel, many in model.shape.parameter_sizes())
    taken = sum(ceil_power_of_two(model.width * numel) * many for numel, many in model.shape.parameter_sizes())
    whole = round(size * taken / (model.width * asked))
    return make_need(model, "host", AFTER, whole, what, pinned=True, held_for="gradients", asked=size)


def made_later(model: Model) -> int:
    """Bytes of offloaded states that a rank of stage 1 or 2 makes in host memory once its weights are on the GPU."""
    if not (model.trained and model.offload_optimizer and model.stage in (1, 2)):
        return 0
    return (2 * MASTER + (0 if model.since("0.13.2") else MOMENTS)) * model.states


def is_bf16_optimizer(model: Model) -> bool:
    """Whether DeepSpeed takes BF16_Optimizer in place of its ZeRO optimizer.

    runtime/engine.py, `_do_optimizer_sanity_check` at 0.13.5 to 0.19.8.
    """
    return model.stage == 1 and model.width == 2 and (model.sum_width or 2) == 4 and not model.offload_optimizer


def bf16_optimizer(model: Model, device: str) -> Iterator[Need]:
    """States in shards; the fp32 gradients whole, made at the start and kept.

    runtime/bf16_optimizer.py, `fp32_groups_gradients_flat`.
    """
    share, width = model.states, model.width
    yield make_need(model, "gpu", ALL, width * model.parameters, say("weights, whole on every rank"))
    yield make_need(
        model,
        "gpu",
        ("load",),
        width * model.parameters,
        say("the weights beside their flat copy"),
        transient="flatten",
    )
    yield make_need(model, "gpu", ALL, MASTER * share, MASTER_WEIGHTS, held_for="optimizer")
    what = say("fp32 gradients, whole and kept")
    yield make_need(model, "gpu", ALL, MASTER * model.trainable, what, held_for="gradients")
    yield moments_need(model, "gpu")
    yield make_need(model, "gpu", TRAIN, width * model.trainable, say("gradients of the backward pass, whole"))
    flat = MASTER * min(model.trainable, FLAT)
    yield make_need(
        model, "gpu", TRAIN, flat, say("a flat copy of the gradients while they are reduced"), transient="backward"
    )
    yield from adam_on_cpu(model, device, share)
