"""Whether offload was in force, with its size by the budget: this module has no formulas of its own."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import replace

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.shapes import find_shape
from rlhfdoctor.budget.states import gpu_bytes_of, host_bytes_of, host_states_of
from rlhfdoctor.errors import UsageError
from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.evidence.host import find_total
from rlhfdoctor.evidence.setup import machine_of, make_inputs
from rlhfdoctor.i18n.message import NOTHING, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.types import Evidence, Setting
from rlhfdoctor.units import is_whole
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT

_SIZE = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d+)?)[bB](?![a-zA-Z0-9])")
_SMALL_RATIO = 0.3
_MODEL_SETTINGS = folders.every(lambda spec: spec.models)


def find_offload(case: Case) -> Iterator[Evidence]:
    """Whether offload was in force (by log, else by setting), and what it needs on one node."""
    footprint = case.first(EVENT.deepspeed.cpu_adam)
    setting = case.setting("offload_optimizer")
    wanted = setting is not None and setting.value not in (False, None, "none", "None")
    if footprint is not None:
        yield fact(
            FACT.offload.running,
            True,
            say("the log shows DeepSpeed's CPU Adam: optimizer states live in host memory"),
            footprint,
        )
    elif setting is not None:
        yield Evidence(
            name=FACT.offload.running,
            value=wanted,
            says=say(
                "optimizer offload is {wanted} ({spelled})",
                wanted=(say("on") if wanted else say("off")),
                spelled=setting.spelled,
            ),
            origin=setting.origin,
        )
    if footprint is not None or wanted:
        yield from _need(case)
    stage = case.setting("zero_stage")
    event = case.first(EVENT.deepspeed.zero_stage)
    value = stage.value if stage is not None else whole(event, FIELD.stage)
    if isinstance(value, int) and not isinstance(value, bool):
        yield Evidence(
            name=FACT.zero.stage,
            value=value,
            says=NOTHING,
            origin=stage.origin if stage else event.origin if event else None,
        )
    yield from _accumulation(case)
    yield from _pinned(case)


def _need(case: Case) -> Iterator[Evidence]:
    inputs, where = case_inputs(case)
    with contextlib.suppress(UsageError):  # the framework or the model is unknown, and so are its bytes
        need = host_states_of(inputs)
        frees = host_bytes_of(inputs, {"offload_optimizer": False})
        yield from _of_node(case, need, frees, where)


def _of_node(case: Case, need: int, frees: int, where: Setting | None) -> Iterator[Evidence]:
    if need <= 0:
        return
    part = say("all of that") if frees == need else say("{frees:bytes} of that", frees=frees)
    yield Evidence(name=FACT.frees.optimizer_bytes, value=frees, says=say("{part} leaves the host", part=part))
    says = say("what is offloaded takes {need:bytes} of host memory per node, by the budget", need=need)
    yield Evidence(name=FACT.offload.need_bytes, value=need, says=says, origin=where.origin if where else None)
    total = find_total(case)
    limit = case.setting("container.memory")
    ray = case.first(EVENT.ray.memory_kill)
    has = total.value if total is not None else whole(ray, FIELD.total_bytes)
    if limit is None and isinstance(has, int) and has:
        yield Evidence(
            name=FACT.offload.need_ratio,
            value=need / has,
            says=say("the offloaded states alone need {need:.0%} of the node's {has:bytes}", need=need / has, has=has),
            origin=total.origin if total else None,
        )


def find_states(case: Case) -> Iterator[Evidence]:
    """Weights, gradients and Adam's states on one GPU against its size, if the failing allocation reports it."""
    inputs, where = case_inputs(case)
    total = inputs.machine.gpu_bytes
    if not total or case.first(EVENT.torch.cuda_oom) is None:
        return
    shared = case.value("colocate_all") or not case.has(TRAIT.separate_role_gpus)
    with contextlib.suppress(UsageError):  # as above
        need = gpu_bytes_of(inputs, ("actor", "critic") if shared else ("actor",))
        says = say(
            "weights, gradients and optimizer states take {need:bytes} of the GPU's {total:bytes}, by the budget",
            need=need,
            total=total,
        )
        yield Evidence(
            name=FACT.gpu.states_ratio, value=need / total, says=says, origin=where.origin if where else None
        )
        return
    yield from _small_states(case, total)


def _small_states(case: Case, total: int) -> Iterator[Evidence]:
    """The same by the parameters that a log counts, on one GPU: a bound from above, which says something if small.

    Adam in mixed precision keeps 16 bytes of a trained parameter, 2 of another one (ZeRO, arXiv 1910.02054).
    """
    event = case.first(EVENT.config.parameters)
    if event is None:
        return
    trained, every = (_count(event.fields.get(name)) for name in (FIELD.trained_text, FIELD.all_text))
    millions = event.fields.get(FIELD.million_text)
    if isinstance(millions, str):
        trained = every = round(float(millions) * 1e6)
    if trained is None or every is None:
        return  # of an adapter alone the model's own size is not known
    need = 16 * trained + 2 * (every - trained)
    if need <= _SMALL_RATIO * total:
        yield fact(
            FACT.gpu.states_ratio,
            need / total,
            say("{every} parameters are at most {need:bytes} of states on the GPU", every=every, need=need),
            event,
        )


def _count(figure: object) -> int | None:
    digits = str(figure or "").replace(",", "")
    return int(digits) if is_whole(digits) else None


def find_freed_gradients(case: Case) -> Iterator[Evidence]:
    """What bf16 in place of fp32 gradients frees on a node."""
    with contextlib.suppress(UsageError):
        frees = host_bytes_of(case_inputs(case)[0], {"grad_accum_dtype": "bf16"})
        if frees > 0:
            yield Evidence(
                name=FACT.frees.gradients_bytes, value=frees, says=say("{frees:bytes} less, by the budget", frees=frees)
            )


def case_inputs(case: Case) -> tuple[Inputs, Setting | None]:
    """The inputs of the budget, and the setting that names the model."""
    inputs, found = make_inputs(case, machine_of(case)), find_model_size(case)
    if found is not None and found[1] is None:  # the size is known only from a log
        inputs.machine = replace(inputs.machine, model=f"{found[0]:g}B")
    return inputs, found[1] if found is not None else None


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


def _accumulation(case: Case) -> Iterator[Evidence]:
    """Whether gradients accumulate in fp32: requested, or unset if unset means fp32."""
    setting = case.setting("grad_accum_dtype")
    if setting is not None and setting.value is not None:
        fp32 = str(setting.value) in ("fp32", "float32")
        yield Evidence(
            name=FACT.grad_accum.fp32,
            value=fp32,
            says=say("grad_accum_dtype is {value}", value=setting.value),
            origin=setting.origin,
        )
        return
    stated = case.stated(FACT.grad_accum.fp32)
    if stated is not None:
        yield stated


def _pinned(case: Case) -> Iterator[Evidence]:
    """Whether offload buffers are page-locked by the framework at this version."""
    setting = case.setting("offload_optimizer.pin_memory")
    if setting is not None and isinstance(setting.value, bool):
        yield Evidence(
            name=FACT.offload.pinned,
            value=setting.value,
            says=say("pin_memory is {value}", value=str(setting.value).lower()),
            origin=setting.origin,
        )
    elif (stated := case.stated(FACT.offload.pinned)) is not None:
        yield stated
    event = case.first(EVENT.deepspeed.pinned)
    if event is not None:
        yield fact(FACT.offload.pinned_logged, True, say("DeepSpeed itself reports its pinned memory"), event)
