"""Sizes for cures, by this case's own figures: what a setting must become, why it then fits, and how many bytes that frees.

A `cure.*` evidence holds a value or a factor, and its sentence the arithmetic; `frees.*` holds bytes. Without the figures there is
none, and the rule's own rough factor is proposed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, whole
from rlhfdoctor.evidence.host import find_total
from rlhfdoctor.evidence.offload import find_model_size, find_nodes
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.types import Evidence
from rlhfdoctor.units import GIB, MIB, show_bytes, show_seconds

_LOGITS = re.compile(r"log_?softmax|logits|entropy|log_?probs_from|cross_entropy|selective_log_softmax")
_LEAST_SCALE = 1 / 32
_COPIES_OF_LOGITS = 2.0
"""The cast to fp32 and its softmax are alive together."""
_ROOM = 1.25
_LEFT = re.compile(r"\[[\d:]+<(?P<left>(?:\d+:)?\d+:\d\d)")
_LEAST_TIMEOUT_S = 7200


def find_cures(case: Case) -> Iterator[Evidence]:
    """All sizes that follow from the case."""
    yield from _container(case)
    yield from _batch(case)
    yield from _share_of_gpu(case)
    yield from _timeout(case)
    yield from _store(case)
    yield from _swap(case)
    yield from _gradients(case)


def _cure(name: str, value: str | int | float | None, says: str) -> Evidence:
    return Evidence(name=name, value=value, says=says)


def _container(case: Case) -> Iterator[Evidence]:
    size = whole(case.first("kernel.memcg_usage"), "limit_bytes")
    total = find_total(case)
    if size is not None:
        unit, letter = (GIB, "g") if size >= 16 * GIB else (MIB, "m")
        wish = math.ceil(size * _ROOM / unit)
        room = int(total.value * 0.9 / unit) if total is not None and isinstance(total.value, int) else wish
        yield _cure("cure.container_memory", f"{min(wish, room)}{letter}" if min(wish, room) * unit > size else None, f"a quarter more than the {show_bytes(size)} that were full, within 90 % of the node")  # fmt: skip
    shm = case.setting("container.shm_size")
    if shm is not None:
        yield Evidence(
            name="shm.configured", value=str(shm.value), says=f"--shm-size is {shm.value}", origin=shm.origin
        )


def _sizes(case: Case) -> tuple[int, int, int] | None:
    """(request, what was free or reserved without use, the GPU's size) of the failing allocation."""
    event = case.first("torch.cuda_oom")
    if event is None:
        return None
    request = whole(event, "request_bytes")
    sizes = read_cuda_oom(" ".join((event.text, *event.after)))
    free, unused, total = (sizes.get(name) for name in ("free_bytes", "unallocated_bytes", "total_bytes"))
    if not request or not isinstance(free, int) or not isinstance(total, int) or not total or request >= total:
        return None
    spare = free + (unused if isinstance(unused, int) else 0)
    return (request, spare, total) if spare < request else None  # else it was in pieces, and no size helps


def _batch(case: Case) -> Iterator[Evidence]:
    """The power of two by which sequences of a pass must shrink for the request to fit into what was there."""
    sizes = _sizes(case)
    if sizes is None or not sizes[1]:
        return
    request, spare, _ = sizes
    logits = any(_LOGITS.search(f"{e.text} {' '.join(e.after)}") for e in case.of("python.frame"))
    copies = _COPIES_OF_LOGITS if logits else 1.0
    wanted = spare / (request * copies * 1.1)
    scale = max(2.0 ** math.floor(math.log2(wanted)), _LEAST_SCALE)
    if scale <= 0.5:
        alive = ", of which two copies live together," if logits else ""
        yield _cure("cure.batch_scale", scale, f"at 1/{round(1 / scale)} the request of {show_bytes(request)}{alive} becomes {show_bytes(request * scale)}, and {show_bytes(spare)} were there")  # fmt: skip


def _share_of_gpu(case: Case) -> Iterator[Evidence]:
    """What the engine may claim so that the trainer's failing request fits, with a fiftieth of the GPU to spare."""
    sizes, setting = _sizes(case), case.setting("rollout.gpu_memory_utilization")
    if sizes is None or setting is None or not isinstance(setting.value, float):
        return
    request, spare, total = sizes
    lacking = request * _ROOM - spare
    value = math.floor((setting.value - lacking / total - 0.02) * 100) / 100
    if 0.15 <= value < setting.value:
        yield _cure("cure.gpu_memory_utilization", value, f"the request of {show_bytes(request)} lacked {show_bytes(request - spare)}; {setting.value - value:.2f} of the GPU is {show_bytes((setting.value - value) * total)}")  # fmt: skip


def _timeout(case: Case) -> Iterator[Evidence]:
    """One and a half times what the longest progress bar would have taken, and not less than two hours."""
    longest = 0.0
    for event in (*case.of("progress.long"), *case.of("phase.rollout")):
        match = _LEFT.search(event.text)
        elapsed = event.fields.get("elapsed_text")
        if match and elapsed:
            longest = max(longest, _seconds(str(elapsed)) + _seconds(match["left"]))
    if longest * 1.5 > _LEAST_TIMEOUT_S:
        value = math.ceil(longest * 1.5 / 600) * 600
        yield _cure("cure.collective_timeout", value, f"the longest progress bar would have taken {show_seconds(longest)}; this is half as much again")  # fmt: skip


def _seconds(text: str) -> float:
    total = 0.0
    for part in text.split(":"):
        total = total * 60 + (int(part) if part.isdigit() else 0)
    return total


def _store(case: Case) -> Iterator[Evidence]:
    """The object store with room for the object that did not fit."""
    capacity = whole(case.first("ray.object_store_capacity", "ray.object_store_usage"), "capacity_bytes")
    wanted = [size for e in case.of("ray.object_store_full", "ray.object_store_retry") if (size := whole(e, "object_bytes"))]  # fmt: skip
    if capacity and wanted:
        value = math.ceil((capacity + max(wanted)) * _ROOM / GIB) * GIB
        yield _cure("cure.object_store_memory", value, f"a store of {show_bytes(capacity)} and the object of {show_bytes(max(wanted))} beside what is in it, and a quarter")  # fmt: skip


def _swap(case: Case) -> Iterator[Evidence]:
    swap = case.setting("rollout.swap_space")
    if swap is None or not isinstance(swap.value, int | float) or isinstance(swap.value, bool):
        return
    yield Evidence(name="swap.space_bytes", value=round(swap.value * GIB), says=f"swap_space is {swap.value:g} GiB per GPU, in page-locked host blocks of the engine (as in vLLM V0)", origin=swap.origin)  # fmt: skip
    if swap.value > 4:
        yield _cure("frees.swap_space_bytes", round((swap.value - 4) * GIB), f"{swap.value - 4:g} GiB less for each GPU of the node, before rounding to powers of two")  # fmt: skip


def _gradients(case: Case) -> Iterator[Evidence]:
    """What bf16 in place of fp32 gradients frees on a node: two bytes a parameter of the trained model."""
    found = find_model_size(case)
    if found is not None and case.value("zero_stage") == 3:
        yield _cure("frees.gradients_bytes", round(found[0] * 2e9 / find_nodes(case)), f"2 bytes less for each of {found[0]:g}B parameters")  # fmt: skip
