"""Bytes that one rank of a DeepSpeed engine holds, by stage, offload, release.

N parameters, d ranks, w bytes a weight. Sources: DeepSpeed runtime/zero/stage_1_and_2.py and stage3.py at 0.12.6 to
0.19.8, settings_notes section 3; checked against measured runs of the bundled trainer (tests/bench/budget.py) and
against runs that others published (tests/budget/test_reports.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlhfdoctor.budget.needs import AFTER, ALL, TRAIN, make_need
from rlhfdoctor.budget.optimizer import ADAM, ADAM_AT_START, FLAT, FLAT_GRADIENTS, MASTER, MASTER_WEIGHTS, MOMENTS
from rlhfdoctor.budget.pinned import pinned_size
from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.stage_1_2 import bf16_optimizer, is_bf16_optimizer, made_later, partitioned_states
from rlhfdoctor.budget.stage_3 import gathered, parameters_on_host, partitioned_weights
from rlhfdoctor.budget.types import Need, Place
from rlhfdoctor.i18n.message import say

_MALLOC_KEEPS = {0: 0.1, 1: 0.1, 2: 0.5, 3: 0.7}
"""Measured on CPU, in units of all weights, by stage (tests/bench/budget.py): glibc keeps freed blocks below 32 MiB."""
_MALLOC_KEEPS_FROZEN = 0.1
_MALLOC_KEEPS_OFFLOADED = 0.77
"""The same with offload at stages 1 and 2, in units of the shard's fp32 gradients, made a tensor at a time."""
_READ_ALONE, _HEADS_ALONE = 0.6, 2.75
"""Of a single rank's weights at stage 3 while they are made, whose shard is a copy of the whole; and whole copies of a
head that is tied to the embedding at the end; measured."""


def deepspeed_needs(model: Model, device: str) -> Iterator[Need]:
    """What one rank holds: weights, gradients, optimizer states, and what passes through."""
    found = list(_needs(model, device))
    if model.sleeps and model.trained and not model.offload_optimizer:
        yield from _asleep(model, found)
    else:
        yield from found


def _asleep(model: Model, found: list[Need]) -> Iterator[Need]:
    """States on the GPU for the update only, in page-locked host memory in between (offload_states); torch keeps it."""
    for need in found:
        if need.place != "gpu" or need.what not in (MASTER_WEIGHTS, ADAM, ADAM_AT_START, FLAT_GRADIENTS):
            yield need
            continue
        yield replace(need, phases=TRAIN, after_first_step=False, exclusive=True)
        yield replace(
            need,
            place="host",
            bytes=pinned_size(need.bytes, need.bytes),
            rounding_bytes=pinned_size(need.bytes, need.bytes) - need.bytes,
            what=say("{what}, while it sleeps", what=need.what),
            pinned=True,
            gpus="",
        )


def _needs(model: Model, device: str) -> Iterator[Need]:
    if not model.trained:
        yield from _frozen(model, device)
    elif model.stage == 0:
        yield from _whole(model)
    elif is_bf16_optimizer(model):
        yield from bf16_optimizer(model, device)
    elif model.stage in (1, 2):
        yield from partitioned_states(model, device)
    else:
        yield from partitioned_weights(model, device)
    if model.stage != 3 and device == "cuda":
        what = say("the model as it is read, before it goes to the GPU")
        size = max(model.width * model.parameters - made_later(model), 0)
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
        yield from parameters_on_host(model, device)
    else:
        yield make_need(
            model, "gpu", ALL, model.width * model.share, say("weights, a shard of {ranks}", ranks=model.ranks)
        )
    yield from gathered(model, device, ("rollout", "score"), ("forward", "head"))
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
        width * min(trained, FLAT),
        say("a flat copy of the gradients while they are reduced"),
        transient="backward",
    )
    if width == 2:
        yield make_need(model, "gpu", ALL, MASTER * trained, MASTER_WEIGHTS, held_for="optimizer")
        yield make_need(model, "gpu", TRAIN, MASTER * trained, say("fp32 gradients of the step"), transient="step")
    # FP16_Optimizer and FP16_UnfusedOptimizer take a first step over zeros at every release
    late = width != 2 and model.since("0.13.2")
    what = ADAM if late else ADAM_AT_START
    yield make_need(model, "gpu", AFTER if late else ALL, MOMENTS * trained, what, held_for="optimizer")


def _kept_by_malloc(model: Model) -> Need:
    """What malloc keeps of gradients and gathered weights.

    They are made and freed a tensor at a time, below its threshold for mappings (32 MiB).
    """
    size = round(_MALLOC_KEEPS[model.stage] * model.width * model.trainable)
    if model.offload_optimizer and model.stage in (1, 2):
        size = round(_MALLOC_KEEPS_OFFLOADED * MASTER * model.states)
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
