"""Bytes that one rank of a DeepSpeed engine holds, by stage, offload and version.

N parameters, d ranks, w bytes a weight. Sources: DeepSpeed runtime/zero/stage_1_and_2.py and stage3.py at 0.12.6 to
0.19.8, settings_notes section 3; checked against measured runs of the bundled trainer (tests/bench/budget.py) and
against runs that others published (tests/budget/test_reports.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, ceil_power_of_two, make_need, pinned_size
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.subgroups import elements_on_gpu
from rlhfdoctor.budget.types import Need, Place
from rlhfdoctor.i18n.message import Message, say

_MASTER = 4
_MOMENTS = 8
_MASTER_WEIGHTS, _ADAM, _FLAT_GRADIENTS = (
    say("fp32 master weights"),
    say("Adam's two moments, from the first step on"),
    say("flat gradient buffer"),
)
_ADAM_AT_START = say("Adam's two moments, made at the start")
_LIVE_PARAMETERS = 1_000_000_000
"""stage3_max_live_parameters."""
_PREFETCH = 50_000_000
_FLAT = 500_000_000
"""Elements that are flattened at once (numel_per_bucket, elements_per_buffer)."""
_MALLOC_KEEPS = {0: 0.1, 1: 0.1, 2: 0.5, 3: 0.7}
"""Measured on CPU, in units of all weights, by stage (tests/bench/budget.py): glibc keeps freed blocks below 32 MiB."""
_MALLOC_KEEPS_FROZEN = 0.1
_MALLOC_KEEPS_OFFLOADED = 0.77
"""The same with offload at stages 1 and 2, in units of the shard's fp32 gradients, which are made a tensor at a time."""
_STAGED_COPIES = 2.4
"""Of what is fetched ahead: gloo's staging and the flat output, sometimes together with the next bucket; measured."""
_READ_ALONE, _HEADS_ALONE = 0.6, 2.75
"""Of a single rank's weights at stage 3 while they are made, whose shard is a copy of the whole; and whole copies of a head that is
tied to the embedding at the end; measured."""
_GATHERED_ALONE = 0.65
"""Of a single rank's weights at stage 3 on a CPU, where there are no other ranks to gather from; also measured."""


def deepspeed_needs(model: Model, device: str) -> Iterator[Need]:
    """What one rank holds: weights, gradients, optimizer states, and what passes through."""
    found = list(_needs(model, device))
    if model.sleeps and model.trained and not model.offload_optimizer:
        yield from _asleep(model, found)
    else:
        yield from found


def _asleep(model: Model, found: list[Need]) -> Iterator[Need]:
    """States that are on the GPU for the update only, and in page-locked host memory in between, which torch keeps (offload_states)."""
    for need in found:
        if need.place != "gpu" or need.what not in (_MASTER_WEIGHTS, _ADAM, _ADAM_AT_START, _FLAT_GRADIENTS):
            yield need
            continue
        yield replace(need, phases=TRAIN, after_first_step=False, exclusive=True)
        yield replace(
            need,
            place="host",
            bytes=pinned_size(need.bytes, need.bytes),
            what=say("{what}, while it sleeps", what=need.what),
            pinned=True,
            gpus="",
        )


def _needs(model: Model, device: str) -> Iterator[Need]:
    if not model.trained:
        yield from _frozen(model, device)
    elif model.stage == 0:
        yield from _whole(model)
    elif _is_bf16_optimizer(model):
        yield from _bf16_optimizer(model, device)
    elif model.stage in (1, 2):
        yield from _partitioned_states(model, device)
    else:
        yield from _partitioned_weights(model, device)
    if model.stage != 3 and device == "cuda":
        what = say("the model as it is read, before it goes to the GPU")
        size = max(model.width * model.parameters - _made_later(model), 0)
        yield make_need(model, "host", ("load",), size, what, transient="read")
    if device == "cpu" and model.trained:
        yield _kept_by_malloc(model)
    if device == "cpu" and model.stage == 3 and model.ranks == 1:
        head = model.shape.vocabulary * model.shape.hidden if model.shape.tied and not model.value_head else 0
        size = model.width * round(_READ_ALONE * (model.parameters - head) + _HEADS_ALONE * head)
        yield make_need(
            model,
            "gpu",
            ("load",),
            size,
            say("the model as it is made, before it is cut into shards"),
            transient="read",
        )
    if model.shape.tied and not model.value_head and model.stage != 3:
        head = model.width * model.shape.vocabulary * model.shape.hidden
        place: Place = "host" if device == "cuda" else "gpu"
        moment = "read" if device == "cuda" else "tie"
        yield make_need(
            model, place, ("load",), head, say("an output head, until it is tied to the embedding"), transient=moment
        )


def _frozen(model: Model, device: str) -> Iterator[Need]:
    if model.stage != 3:
        yield make_need(model, "gpu", ALL, model.width * model.parameters, say("weights, whole on every rank"))
        return
    if model.offload_param:
        yield from _parameters_on_host(model, device)
    else:
        yield make_need(
            model, "gpu", ALL, model.width * model.share, say("weights, a shard of {ranks}", ranks=model.ranks)
        )
    yield from _gathered(model, device, ("rollout", "score"), ("forward", "head"))
    if device == "cpu":
        yield make_need(
            model,
            "gpu",
            ("rollout", "score"),
            round(_MALLOC_KEEPS_FROZEN * model.width * model.parameters),
            say("freed blocks that malloc keeps"),
        )


def _whole(model: Model) -> Iterator[Need]:
    """Stage 0: everything on every rank; gradients are reduced in flat copies of at most 5e8 elements."""
    count, width, trained = model.parameters, model.width, model.trainable
    yield make_need(model, "gpu", ALL, width * count, say("weights, whole on every rank"))
    yield make_need(model, "gpu", TRAIN, width * trained, say("gradients"))
    yield make_need(
        model,
        "gpu",
        TRAIN,
        width * min(trained, _FLAT),
        say("a flat copy of the gradients while they are reduced"),
        transient="backward",
    )
    if width == 2 and model.backend == "deepspeed":
        yield make_need(model, "gpu", ALL, _MASTER * trained, _MASTER_WEIGHTS)
        yield make_need(model, "gpu", TRAIN, _MASTER * trained, say("fp32 gradients of the step"), transient="step")
    plain = model.backend == "plain"
    moments = 2 * width if plain else _MOMENTS  # torch's AdamW keeps them in the weights' own type
    # FP16_Optimizer and FP16_UnfusedOptimizer take a first step over zeros at every release
    late = plain or (width != 2 and model.since("0.13.2"))
    yield make_need(model, "gpu", AFTER if late else ALL, moments * trained, _ADAM if late else _ADAM_AT_START)


def _partitioned_states(model: Model, device: str) -> Iterator[Need]:
    """Stages 1 and 2: weights whole on every rank, states in shards; offload moves states and fp32 gradients to the host."""
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
        size = max(2 * width * count - _made_later(model), 0)
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
    yield _states(model, states, ALL, _MASTER * share, _MASTER_WEIGHTS, pins_master)
    yield _moments(model, states)
    if model.offload_optimizer:
        yield _states(model, "host", ALL, _MASTER * share, say("fp32 gradients of the shard"), model.pin_optimizer)
        if model.since("0.17.0"):
            yield _states(model, "host", ALL, width * share, say("staging of the updated weights"), model.pin_optimizer)
        else:
            yield make_need(model, "gpu", TRAIN, _MASTER * share, say("updated weights in fp32"), transient="step")
        largest = model.largest_trained
        yield make_need(model, "gpu", ALL, width * largest, say("staging of the largest gradient"))
        yield _states(model, "host", ALL, width * largest, say("staging of the largest gradient"), model.pin_optimizer)
        if model.accumulates:
            yield _accumulated(model)
    else:
        if model.stage == 2:
            when = "step" if device == "cpu" else ""  # on a CPU their flat copy is gone by then, which was larger
            yield make_need(model, "gpu", TRAIN, sums * share, say("gradients of the shard"), transient=when)
        if width == 2 or model.stage == 1:
            yield make_need(model, "gpu", TRAIN, _MASTER * share, say("fp32 gradients of the step"), transient="step")
        yield from _adam_on_cpu(model, device, share)
    if model.offload_optimizer and sums > width and model.since("0.19.8"):  # _use_compact_grad_partition_buffer
        yield make_need(model, "gpu", TRAIN, sums * share, say("gradients of the shard as they add up"))
    if model.stage == 1:  # reduced at the boundary of accumulation only (process_gradients)
        yield make_need(model, "gpu", TRAIN, sums * model.trainable, say("gradients, whole until the step"))
    # stage 1 reduces what it has added up, and since 0.19.8 in that type (_gradient_reduction_buffer_dtype)
    reduced = sums if model.stage == 1 and model.since("0.19.8") else width
    bucket = reduced * _touched(model, device) * (2 if model.overlap else 1)
    yield make_need(
        model,
        "gpu",
        TRAIN,
        bucket,
        say("reduce bucket of {bucket:.0e} elements", bucket=model.bucket),
        transient="backward",
    )
    if model.ranks > 1 or width == 2:  # one rank's fp32 bucket is one tensor, and its flat form a view
        flat = reduced * min(model.trainable, _FLAT, model.bucket)
        yield make_need(
            model, "gpu", TRAIN, flat, say("a flat copy of the bucket while it is reduced"), transient="backward"
        )


def _moments(model: Model, place: Place, elements: int | None = None) -> Need:
    """Adam's states of the shard; before 0.13.2 a step over zeros made them at the start (initialize_optimizer_states)."""
    size = _MOMENTS * (model.states if elements is None else elements)
    if model.since("0.13.2"):
        return make_need(model, place, AFTER, size, _ADAM)
    return make_need(model, place, ALL, size, _ADAM_AT_START)


def _made_later(model: Model) -> int:
    """Bytes of offloaded states that a rank of stage 1 or 2 makes in host memory once its weights are on the GPU."""
    if not (model.trained and model.offload_optimizer and model.stage in (1, 2)):
        return 0
    return (2 * _MASTER + (0 if model.since("0.13.2") else _MOMENTS)) * model.states


def _is_bf16_optimizer(model: Model) -> bool:
    """Whether DeepSpeed takes BF16_Optimizer in place of its ZeRO optimizer (runtime/engine.py, _do_optimizer_sanity_check, 0.13.5 to 0.19.8)."""
    return model.stage == 1 and model.width == 2 and (model.sum_width or 2) == 4 and not model.offload_optimizer


def _bf16_optimizer(model: Model, device: str) -> Iterator[Need]:
    """runtime/bf16_optimizer.py: states in shards, and the fp32 gradients whole, made at the start and kept (fp32_groups_gradients_flat)."""
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
    yield make_need(model, "gpu", ALL, _MASTER * share, _MASTER_WEIGHTS)
    yield make_need(model, "gpu", ALL, _MASTER * model.trainable, say("fp32 gradients, whole and kept"))
    yield _moments(model, "gpu")
    yield make_need(model, "gpu", TRAIN, width * model.trainable, say("gradients of the backward pass, whole"))
    flat = _MASTER * min(model.trainable, _FLAT)
    yield make_need(
        model, "gpu", TRAIN, flat, say("a flat copy of the gradients while they are reduced"), transient="backward"
    )
    yield from _adam_on_cpu(model, device, share)


def _accumulated(model: Model) -> Need:
    """Gradients of the shard that add up in host memory, one tensor a parameter of it."""
    size = model.width * model.states
    what = say("gradients that add up over micro batches, a tensor a parameter")
    if not model.pin_optimizer:
        return make_need(model, "host", AFTER, size, what)
    asked = sum(numel * many for numel, many in model.shape.parameter_sizes())
    taken = sum(ceil_power_of_two(model.width * numel) * many for numel, many in model.shape.parameter_sizes())
    return make_need(model, "host", AFTER, round(size * taken / (model.width * asked)), what, pinned=True)


def _adam_on_cpu(model: Model, device: str, share: int) -> Iterator[Need]:
    """torch's AdamW makes two arrays as large as its parameter (torch/optim/adam.py, `denom`); FusedAdam does not."""
    if device == "cpu":
        yield make_need(model, "gpu", TRAIN, 2 * _MASTER * share, say("intermediate values of AdamW"), transient="step")


def _partitioned_weights(model: Model, device: str) -> Iterator[Need]:
    """Stage 3: weights, gradients and states in shards; layers are gathered while they compute."""
    share, width = model.states, model.width
    states: Place = "host" if model.offload_optimizer else "gpu"
    group = min(share, model.sub_group)
    moved = elements_on_gpu(model)
    if model.offload_param:
        yield from _parameters_on_host(model, device)
    else:
        yield make_need(model, "gpu", ALL, width * model.share, say("weights, a shard of {ranks}", ranks=model.ranks))
    yield make_need(model, states, ALL, _MASTER * (share - moved), _MASTER_WEIGHTS)
    what = say("a second copy while the master weights are made")
    yield make_need(model, states, ("load",), _MASTER * group, what, transient="flatten")
    yield _moments(model, states, share - moved)
    if moved:
        yield make_need(
            model,
            "gpu",
            ALL,
            2 * _MASTER * moved,
            say("fp32 master weights and gradients that ratio leaves on the GPU"),
        )
        yield _moments(model, "gpu", moved)
    flat = (model.sum_width or width) * share
    yield _states(model, states, ALL, flat, _FLAT_GRADIENTS, model.pin_optimizer and model.offload_optimizer)
    if model.offload_optimizer:
        yield _states(
            model,
            "host",
            ALL,
            _MASTER * (share - moved),
            say("fp32 gradients, a buffer a sub-group"),
            model.pin_optimizer,
            _MASTER * group,
        )
    else:
        yield make_need(model, "gpu", TRAIN, _MASTER * group, say("fp32 gradients of a sub-group"), transient="step")
        yield from _adam_on_cpu(model, device, group)
    yield from _gathered(model, device, ("rollout", "score"), ("forward", "head"))
    yield from _gathered(model, device, TRAIN, ("head", "backward"))
    yield make_need(
        model, "gpu", TRAIN, width * _live(model, device), say("weights that are still gathered"), transient="step"
    )
    yield make_need(
        model, "gpu", AFTER if device == "cpu" else ALL, width * _touched(model, device), say("reduce bucket, kept")
    )
    size = width * min(model.trainable, _FLAT, model.bucket)
    yield make_need(
        model,
        "gpu",
        TRAIN,
        size + size // model.ranks,
        say("the bucket while it is reduced and scattered"),
        transient="backward",
    )


def _parameters_on_host(model: Model, device: str) -> Iterator[Need]:
    """Shards of the weights in host memory.

    With pin_memory each parameter's shard is a page-locked buffer of its own (partition_parameters.py); training then moves
    them to one flat buffer, page-locked in every version, regardless of pin_memory (stage3.py,
    _create_param_groups_fp16_flat_cpu_memory), and torch keeps the first ones.
    """
    what = say("weights, a shard of {ranks}, in host memory", ranks=model.ranks)
    if model.trained:
        yield _states(model, "host", ALL, model.width * model.share, what, pinned=True)
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
        )


def _gathered(model: Model, device: str, phases: tuple[str, ...], moments: tuple[str, ...]) -> Iterator[Need]:
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


def _touched(model: Model, device: str) -> int:
    """Elements of the reduce bucket that take memory: all on a GPU, as many as there are gradients on a CPU."""
    return min(model.bucket, model.trainable) if device == "cpu" else model.bucket


def _kept_by_malloc(model: Model) -> Need:
    """Gradients and gathered weights are made and freed a tensor at a time, below malloc's threshold for mappings (32 MiB): it keeps them."""
    size = round(_MALLOC_KEEPS[model.stage] * model.width * model.trainable)
    if model.offload_optimizer and model.stage in (1, 2):
        size = round(_MALLOC_KEEPS_OFFLOADED * _MASTER * model.states)
        if model.stage == 1:  # of these the whole gradients are counted
            size = max(size - model.width * model.trainable, 0)
    return make_need(
        model,
        "gpu",
        TRAIN,
        size,
        say("freed blocks that malloc keeps"),
        transient="backward" if model.stage in (1, 2) else "",
    )


def _states(
    model: Model,
    place: Place,
    phases: tuple[str, ...],
    size: int,
    what: Message,
    pinned: bool,
    buffer: int | None = None,
) -> Need:
    """Host buffers that may be page-locked; then each is rounded up to a power of two."""
    if pinned and place == "host":
        return make_need(model, place, phases, pinned_size(size, buffer or -(-size // model.groups)), what, pinned=True)
    return make_need(model, place, phases, size, what)
