"""Sizes remedies from this case's own figures: a setting's new value, why it then fits, how many bytes that frees.

A `cure.*` evidence holds a value, and its sentence the arithmetic; `frees.*` holds bytes. Without the figures neither
exists, and the rule's own rough factor is proposed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from rlhfdoctor.budget.shapes import find_shape
from rlhfdoctor.budget.states import sequence_bytes
from rlhfdoctor.errors import UsageError
from rlhfdoctor.evidence.case import Case, number, whole
from rlhfdoctor.evidence.host import find_total
from rlhfdoctor.evidence.offload import case_inputs, find_freed_gradients
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.evidence.wait import find_busy, read_elapsed
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.settings.spell import lookup
from rlhfdoctor.types import Evidence
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.names import Fact

_SCORING = re.compile(r"log_probs?$|compute_log_prob|get_per_token_logps|compute_ref|compute_values")
_BESIDE_BYTES = 2 * GIB
_LEAST_SHARE = 0.2
_ROOM = 1.25
_LEAST_TIMEOUT_S = 7200
_MOST_TIMEOUT_S = 4 * 3600
"""Beyond this, a longer timeout is not the right fix."""


def find_cures(case: Case) -> Iterator[Evidence]:
    """All sizes that follow from the case."""
    yield from _container(case)
    yield from _batch(case)
    yield from _share_of_gpu(case)
    yield from _timeout(case)
    yield from _store(case)
    yield from _swap(case)
    yield from find_freed_gradients(case)


def _cure(name: Fact, value: str | int | float | None, says: Message) -> Evidence:
    return Evidence(name=name, value=value, says=says)


def _container(case: Case) -> Iterator[Evidence]:
    size = whole(case.first(EVENT.kernel.memcg_usage), FIELD.limit_bytes)
    total = find_total(case)
    if size is not None:
        unit, letter = (GIB, "g") if size >= 16 * GIB else (MIB, "m")
        wish = math.ceil(size * _ROOM / unit)
        room = int(total.value * 0.9 / unit) if total is not None and isinstance(total.value, int) else wish
        yield _cure(
            FACT.cure.container_memory,
            f"{min(wish, room)}{letter}" if min(wish, room) * unit > size else None,
            say("a quarter more than the {size:bytes} that were full, within 90 % of the node", size=size),
        )


def _sizes(case: Case) -> tuple[int, int, int, int] | None:
    """(request, allocated by torch, what torch may use at most, the GPU's size) of the failing allocation."""
    event = case.first(EVENT.torch.cuda_oom)
    request = whole(event, FIELD.request_bytes)
    if event is None or not request:
        return None
    sizes = read_cuda_oom(" ".join((event.text, *event.after)))
    free, unused, held, total = (sizes.get(f"{name}_bytes") for name in ("free", "unallocated", "allocated", "total"))
    if not isinstance(free, int) or not isinstance(held, int) or not isinstance(total, int) or request >= total:
        return None
    spare = free + (unused if isinstance(unused, int) else 0)
    return (request, held, held + spare, total) if spare < request else None  # else it was in pieces


def _batch(case: Case) -> Iterator[Evidence]:
    """How many sequences of a pass fit, by the bytes that one of full length takes in the budget's estimate."""
    sizes = _sizes(case)
    lengths = [case.value(name) for name in ("max_prompt_length", "max_response_length")]
    shape = next(
        (s for s in (find_shape(str(m.value)) for m in case.models()) if s is not None and s.given_parameters is None),
        None,
    )
    if sizes is None or shape is None or not all(isinstance(length, int) for length in lengths):
        return
    request, held, most, _ = sizes
    scoring = any(_SCORING.search(str(e.fields.get(FIELD.function_text))) for e in case.of(EVENT.python.frame))
    name = "logprob.micro_batch_size" if scoring else "train.micro_batch_size"
    setting, batch = case.setting(name), case.value(name)
    if setting is None or not isinstance(batch, int) or batch < 2 or case.value("train.dynamic_batch") is True:
        return
    own = lookup(setting.spelled, setting.framework)
    if own is not None and own.per == "all_gpus":
        return  # it counts the sequences of all GPUs
    tokens = sum(length for length in lengths if isinstance(length, int))
    try:
        one = sequence_bytes(case_inputs(case)[0], name, "score" if scoring else "update", "actor")
    except UsageError:
        return
    if one <= 0:
        return
    fixed = held + request - batch * one
    fits = int((most * 0.95 - fixed) // one)
    if fixed > 0 and 1 <= fits < batch:
        value = next(n for n in range(min(fits, batch // 2), 0, -1) if batch % n == 0)  # a divisor still divides
        yield _cure(
            FACT.cure.logprob_micro_batch if scoring else FACT.cure.train_micro_batch,
            value,
            say(
                "a sequence of {tokens} tokens takes about {one:bytes} there (activations and logits, "
                "estimated); beside {fixed:bytes} that stay {fits} fit, and {value} divides {batch}",
                tokens=tokens,
                one=one,
                fixed=fixed,
                fits=fits,
                value=value,
                batch=batch,
            ),
        )


def _share_of_gpu(case: Case) -> Iterator[Evidence]:
    """What the engine may claim next to the trainer.

    The trainer gets what it held and requested, a quarter as reserve, and 2 GiB for CUDA and NCCL.
    """
    sizes, setting = _sizes(case), case.setting("rollout.gpu_memory_utilization")
    if sizes is None or setting is None or not isinstance(setting.value, float) or _is_engine(case):
        return
    request, held, _, total = sizes
    left = 1 - ((held + request) * _ROOM + _BESIDE_BYTES) / total
    value = math.floor(round(min(left, setting.value - 0.05), 6) * 100) / 100
    if value >= _LEAST_SHARE:
        yield _cure(
            FACT.cure.gpu_memory_utilization,
            value,
            say(
                "the trainer held {held:bytes} and asked for {request:bytes}; with a quarter to spare and "
                "{beside_bytes:bytes} for CUDA and NCCL, {left:.2f} of the GPU's {total:bytes} are left",
                held=held,
                request=request,
                beside_bytes=_BESIDE_BYTES,
                left=max(left, value),
                total=total,
            ),
        )


def _is_engine(case: Case) -> bool:
    """Whether the process that failed is the rollout engine, or that sleeps while the trainer works.

    In both cases the engine's share was not what was short.
    """
    event = case.first(EVENT.torch.cuda_oom)
    if event is None:
        return False
    frames = " ".join(e.text for e in case.around(event, 30) if e.kind == EVENT.python.frame)
    own = find_role(event.origin.actor) == "rollout engine" or "/vllm/" in frames or "EngineCore" in event.text
    return own or case.first(EVENT.vllm.asleep) is not None


def _timeout(case: Case) -> Iterator[Evidence]:
    """Half as much again as the work took for which the others waited."""
    waited = case.first(EVENT.nccl.timeout, EVENT.gloo.timeout)
    limit = number(waited, FIELD.timeout_s) or number(waited, FIELD.limit_s)
    bar = find_busy(case, waited, float(limit)) if waited is not None and limit else None
    if bar is None:
        return
    needs = sum(read_elapsed(str(bar.fields[key])) for key in (FIELD.elapsed_text, FIELD.left_text))
    if _LEAST_TIMEOUT_S < needs * 1.5 <= _MOST_TIMEOUT_S:
        value = math.ceil(needs * 1.5 / 600) * 600
        yield _cure(
            FACT.cure.collective_timeout,
            value,
            say("what the others waited for would have taken {needs:s}; this is half as much again", needs=needs),
        )


def _store(case: Case) -> Iterator[Evidence]:
    """The object store with room for the object that did not fit."""
    capacity = whole(case.first(EVENT.ray.object_store_capacity, EVENT.ray.object_store_usage), FIELD.capacity_bytes)
    wanted = [
        size
        for e in case.of(EVENT.ray.object_store_full, EVENT.ray.object_store_retry)
        if (size := whole(e, FIELD.object_bytes))
    ]
    if capacity and wanted:
        value = math.ceil((capacity + max(wanted)) * _ROOM / GIB) * GIB
        yield _cure(
            FACT.cure.object_store_memory,
            value,
            say(
                "a store of {capacity:bytes} and the object of {wanted:bytes} beside what is in it, and a quarter",
                capacity=capacity,
                wanted=max(wanted),
            ),
        )


def _swap(case: Case) -> Iterator[Evidence]:
    swap = case.setting("rollout.swap_space")
    if swap is None or not isinstance(swap.value, int | float) or isinstance(swap.value, bool):
        return
    yield Evidence(
        name=FACT.swap.space_bytes,
        value=round(swap.value * GIB),
        says=say(
            "swap_space is {size:g} GiB per GPU, in page-locked host blocks of the engine (as in vLLM V0)",
            size=swap.value,
        ),
        origin=swap.origin,
    )
    if swap.value > 4:
        yield _cure(
            FACT.frees.swap_space_bytes,
            round((swap.value - 4) * GIB),
            say("{size:g} GiB less for each GPU of the node, before rounding to powers of two", size=swap.value - 4),
        )
