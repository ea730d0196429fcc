"""What offload and sleep settings imply in bytes on one node, and the sizes that cures need.

Formulas: settings_notes section 3 (DeepSpeed runtime/zero/stage_1_and_2.py, stage3.py; verl and
EasyR1 fsdp_workers.py). N parameters, d shard degree; per node the factors below times N when one
node holds all shards.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlhfdoctor.budget.shapes import find_shape
from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.evidence.host import find_total
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.plugins import folders
from rlhfdoctor.types import Evidence, Setting
from rlhfdoctor.units import show_bytes, show_count
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT

_SIZE = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d+)?)[bB](?![a-zA-Z0-9])")
_MODEL_SETTINGS = folders.every(lambda spec: spec.models)
_GPUS_OF_A_NODE = 8
_HOST_BYTES_PER_PARAMETER = {"deepspeed-2": 16, "deepspeed-3": 18, "fsdp": 12}
"""Optimizer offload, all shards of one trained model: fp32 master, gradient, two moments, staging."""


def find_offload(case: Case) -> Iterator[Evidence]:
    """Whether offload was in force (by log, else by setting), and what it needs on one node."""
    footprint = case.first(EVENT.deepspeed.cpu_adam)
    setting = case.setting("offload_optimizer")
    wanted = setting is not None and setting.value not in (False, None, "none", "None")
    if footprint is not None:
        yield fact(FACT.offload.running, True, "the log shows DeepSpeed's CPU Adam: optimizer states live in host memory", footprint)  # fmt: skip
    elif setting is not None:
        yield Evidence(name=FACT.offload.running, value=wanted, says=f"optimizer offload is {'on' if wanted else 'off'} ({setting.spelled})", origin=setting.origin)  # fmt: skip
    if footprint is not None or wanted:
        yield from _need(case)
    stage = case.setting("zero_stage")
    event = case.first(EVENT.deepspeed.zero_stage)
    value = stage.value if stage is not None else whole(event, FIELD.stage)
    if isinstance(value, int) and not isinstance(value, bool):
        yield Evidence(
            name=FACT.zero.stage, value=value, says=f"ZeRO stage {value}",
            origin=stage.origin if stage else event.origin if event else None,
        )  # fmt: skip
    yield from _accumulation(case)
    yield from _pinned(case)


def _need(case: Case) -> Iterator[Evidence]:
    billions = find_model_size(case)
    if billions is None:
        return
    size, where = billions
    stage = case.value("zero_stage")
    deepspeed = case.framework is None or case.has(TRAIT.deepspeed)
    factor = _HOST_BYTES_PER_PARAMETER["fsdp" if not deepspeed else "deepspeed-2" if stage in (1, 2) else "deepspeed-3"]
    models = 1 if _without_critic(case) else 2
    nodes = find_nodes(case)
    need = round(size * 1e9 * factor * models / nodes)
    what = "actor and critic" if models == 2 else "the actor"
    says = f"{factor} bytes x {size:g}B parameters x {models} ({what}) / {show_count(nodes, 'node')} = {show_bytes(need)} of host memory per node, before rounding of pinned buffers"
    frees = (
        need if deepspeed else round(size * 8e9 / nodes)
    )  # FSDP: the actor's two moments; the critic has a flag of its own
    yield Evidence(name=FACT.frees.optimizer_bytes, value=frees, says=f"{'all of that' if deepspeed else 'two moments, 8 bytes a parameter of the actor,'} leaves the host")  # fmt: skip
    yield Evidence(name=FACT.offload.need_bytes, value=need, says=says, origin=where.origin if where else None)
    total = find_total(case)
    limit = case.setting("container.memory")
    ray = case.first(EVENT.ray.memory_kill)
    has = total.value if total is not None else whole(ray, FIELD.total_bytes)
    if limit is None and isinstance(has, int) and has:
        yield Evidence(name=FACT.offload.need_ratio, value=need / has, says=f"the offloaded states alone need {need / has:.0%} of the node's {show_bytes(has)}", origin=total.origin if total else None)  # fmt: skip


def find_states(case: Case) -> Iterator[Evidence]:
    """Weights, gradients and Adam's states on one GPU against its size, where the failing allocation tells that.

    DeepSpeed keeps 2 bytes of weights (sharded at stage 3), 2 of gradients (from stage 2) and 12 of fp32 states a parameter, FSDP
    16 / d; see settings_notes section 3.
    """
    event, found = case.first(EVENT.torch.cuda_oom), find_model_size(case)
    total = read_cuda_oom(" ".join((event.text, *event.after))).get("total_bytes") if event is not None else None
    if found is None or not isinstance(total, int) or not total:
        return
    billions, where = found
    told = [case.value(name) for name in folders.every(lambda spec: spec.gpus_per_node)]
    gpus = next((value for value in told if isinstance(value, int) and value > 0), None)
    shards = (gpus or _GPUS_OF_A_NODE) * find_nodes(case)
    stage = case.value("zero_stage")
    kept = case.value("offload_optimizer") not in (True, "cpu", "nvme")
    if case.has(TRAIT.fsdp):
        factor = (8 + 8 * kept) / shards
    elif isinstance(stage, int):
        factor = 2 / (shards if stage == 3 else 1) + 2 / (shards if stage >= 2 else 1) + (12 / shards if kept else 0)
    else:
        return
    together = bool(case.value("colocate_all")) or not case.has(TRAIT.separate_role_gpus)
    models = 2 if together and not _without_critic(case) else 1
    need = billions * 1e9 * factor * models
    says = f"weights, gradients and optimizer states of {billions:g}B parameters take {show_bytes(need)} of the GPU's {show_bytes(total)} over {show_count(shards, 'GPU')}{'' if gpus else ' (assumed)'}"
    yield Evidence(name=FACT.gpu.states_ratio, value=need / total, says=says, origin=where.origin if where else None)


def find_model_size(case: Case) -> tuple[float, Setting | None] | None:
    """Billions of parameters by the actor's name, such as `Qwen2.5-72B`."""
    for name in _MODEL_SETTINGS:
        setting = case.setting(name)
        shape = find_shape(str(setting.value)) if setting is not None else None
        if shape is not None:
            return round(shape.parameters / 1e9, 2), setting
    for event in case.of(EVENT.config.model_size):
        if match := _SIZE.search(event.text):
            return float(match[1]), None
    return None


def _without_critic(case: Case) -> bool:
    """Group and REINFORCE estimators train no critic."""
    spec = folders.get(case.framework.name) if case.framework is not None else None
    unset = spec.default_estimator if spec is not None else "gae"
    estimator = str(case.value("advantage_estimator") or case.value("algorithm.adv_estimator") or unset).lower()
    return estimator != "gae" or case.has(TRAIT.no_critic)


def find_nodes(case: Case) -> int:
    """Nodes that the actor is spread over; 1 where nothing tells."""
    for name in folders.every(lambda spec: spec.nodes):
        value = case.value(name)
        if isinstance(value, int) and value > 0:
            return value
    return 1


def _accumulation(case: Case) -> Iterator[Evidence]:
    """Whether gradients accumulate in fp32: asked for, or unset where unset means fp32."""
    setting = case.setting("grad_accum_dtype")
    if setting is not None and setting.value is not None:
        fp32 = str(setting.value) in ("fp32", "float32")
        yield Evidence(name=FACT.grad_accum.fp32, value=fp32, says=f"grad_accum_dtype is {setting.value}", origin=setting.origin)  # fmt: skip
        return
    stated = case.stated(FACT.grad_accum.fp32)
    if stated is not None:
        yield stated


def _pinned(case: Case) -> Iterator[Evidence]:
    """Whether offload buffers are page-locked by the framework at this version."""
    setting = case.setting("offload_optimizer.pin_memory")
    if setting is not None and isinstance(setting.value, bool):
        yield Evidence(name=FACT.offload.pinned, value=setting.value, says=f"pin_memory is {str(setting.value).lower()}", origin=setting.origin)  # fmt: skip
    elif (stated := case.stated(FACT.offload.pinned)) is not None:
        yield stated
    event = case.first(EVENT.deepspeed.pinned)
    if event is not None:
        yield fact(FACT.offload.pinned_logged, True, "DeepSpeed itself reports its pinned memory", event)
