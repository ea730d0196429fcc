"""TRL: DeepSpeed as configured by its own JSON, or plain data parallelism, on GPUs or in host memory.

TRL 0.14 to 1.16.0 (trainer/*_config.py, scripts/, model_config.py), transformers' TrainingArguments.
"""

from __future__ import annotations

import re
from typing import Any

from rlhfdoctor.budget.deepspeed_settings import read_zero
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import actor_shape, read_lengths, read_resume
from rlhfdoctor.budget.placement import GPUS, Placed, make_nodes
from rlhfdoctor.budget.plan import Backend, Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.types import BudgetPhase
from rlhfdoctor.i18n.message import say

_TRAINER = re.compile(r"\b(distillation|dpo|grpo|kto|reward|rloo|sft)$")
_ONLINE = ("grpo", "rloo")
"""Trainers whose model writes the responses; the others read them from the data."""
_PAIRED = ("dpo", "reward")
"""Trainers that take a chosen and a rejected response for each sequence of a micro batch."""
_WIDTHS = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}
_MIXED_SINCE = "0.22"
"""The configurations have gradient checkpointing and bf16 by default."""
_FUSED_SINCE = "1.16"
_IMPORTS = 40 * 10**6
"""Bytes of transformers, datasets and TRL itself in every rank, measured (tests/bench/TRL.md)."""


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of a TRL run: one process per GPU; DeepSpeed by its JSON or accelerate's YAML, else data parallel."""
    shape = actor_shape(inputs, "model_name_or_path", "actor.model_name_or_path")
    trainer = _find_trainer(inputs)
    here, nodes = _find_ranks(inputs)
    stage = inputs.stage("zero_stage", "deepspeed_config.zero_stage", default=0)
    backend: Backend = "deepspeed" if stage or "zero_stage" in inputs.settings else "plain"
    if backend == "plain":
        inputs.assume(
            say("no DeepSpeed configuration is at hand: weights, gradients and Adam's states whole in every process")
        )
    adapters = int(inputs.number("lora_r", default=16)) if inputs.flag("use_peft") else 0
    common: dict[str, Any] = {
        "ranks": here * nodes,
        "local_ranks": here,
        "process": "trainer",
        "version": inputs.version("deepspeed"),
        **_read_sequences(inputs, trainer),
        **_read_precision(inputs, shape, backend),
    }
    models = {
        "actor": Model(
            role="actor",
            shape=shape,
            trained=True,
            backend=backend,
            accumulates=inputs.count("gradient_accumulation_steps", default=1) > 1,
            lora_rank=adapters,
            gathers=stage == 3 and _gathers(inputs) and not adapters,
            clones=stage in (1, 2),
            value_head=trainer == "reward",
            **common,
            **read_zero(inputs, stage),
        )
    }
    if not adapters and _has_reference(inputs, trainer):
        frozen: dict[str, Any] = {"trained": False, "backend": backend, "stage": 3 if stage == 3 else 0}
        models["reference"] = Model(role="reference", shape=shape, **frozen, **common)
    engine = _find_engine(inputs, shape, here) if trainer in _ONLINE else None
    without: set[BudgetPhase] = set() if trainer in _ONLINE else {"rollout"}
    if trainer in ("sft", "reward"):
        without.add("score")
    saves = str(inputs.value("save_strategy")) not in ("no", "None", "False") or "save_strategy" not in inputs.settings
    return make_nodes(
        inputs,
        [Placed((*models, *(["engine"] if engine else [])), 0 if inputs.machine.gpus_per_node == 0 else here, nodes)],
        models,
        engine,
        ray=False,
        imports=_IMPORTS,
        without=frozenset(without),
        saves=saves,
        saves_hf=True,
        saves_at_end="" if saves else "weights",
        loaders=int(inputs.number("dataloader_num_workers", default=0)) * here,
        **read_resume(inputs),
    )


def _find_trainer(inputs: Inputs) -> str:
    """By the command or module that the files name, else by settings that only some trainers have."""
    for command in inputs.commands:
        found = _TRAINER.search(command)
        if found:
            return found[1]
    if any(name in inputs.settings for name in ("num_generations", "reward_funcs", "max_response_length", "use_vllm")):
        return "grpo"
    if any(name in inputs.settings for name in ("packing", "max_length", "max_seq_length")):
        inputs.assume(say("the trainer is assumed to be the one of `trl sft`, by its settings"))
        return "sft"
    if not any("grpo" in str(setting.origin) for setting in inputs.settings.values()):
        inputs.assume(say("the trainer is assumed to be the one of `trl grpo`; no file names it"))
    return "grpo"


def _find_ranks(inputs: Inputs) -> tuple[int, int]:
    """Processes on a node, and nodes: `num_processes` counts those of all nodes, torchrun's option those of one."""
    nodes = inputs.machine.nodes or inputs.count("num_machines", default=1)
    gpus = inputs.machine.gpus_per_node
    if gpus:
        return gpus, nodes
    set_here = inputs.count("nproc_per_node", default=0) if "nproc_per_node" in inputs.settings else 0
    everywhere = inputs.count("num_processes", default=0) if "num_processes" in inputs.settings else 0
    here = set_here or -(-everywhere // nodes)
    if not here:
        here = 1 if gpus == 0 else GPUS
        inputs.assume(
            say("one process on the node: --num_processes")
            if gpus == 0
            else say("{gpus} GPUs on the node: --gpus-per-node", gpus=here)
        )
    return here, nodes


def _read_sequences(inputs: Inputs, trainer: str) -> dict[str, Any]:
    """Micro batches and lengths."""
    micro = inputs.count("train.micro_batch_size", default=8)
    recompute = inputs.flag("gradient_checkpointing")
    if trainer not in _ONLINE:
        tokens = inputs.count("max_length", "max_seq_length", default=1024)
        rows = micro * (2 if trainer in _PAIRED else 1)
        return {"sequences": rows, "scored": rows, "tokens": tokens, "recompute": recompute}
    prompt, answer = read_lengths(inputs)
    if inputs.value("max_prompt_length") is None:
        inputs.assume(
            say(
                "prompts of {tokens} tokens; no setting of this release limits them (max_prompt_length: N in a YAML "
                "file beside the script tells)",
                tokens=prompt,
            )
        )
    on_cpu = inputs.machine.gpus_per_node == 0
    return {
        "sequences": micro,
        "scored": micro,
        "tokens": prompt + answer,
        # `logits_to_keep`; without Triton the fused head scores all positions
        "answer_tokens": None if on_cpu and _is_fused(inputs) else answer + 1,
        "recompute": recompute,
    }


def _is_fused(inputs: Inputs) -> bool:
    return not inputs.framework_before(_FUSED_SINCE)


def _read_precision(inputs: Inputs, shape: Shape, backend: Backend) -> dict[str, Any]:
    """Bytes of a weight, and whether autocast computes in fewer.

    ModelConfig's dtype is the type of the weights in memory, fp32 where it is not set; `bf16` is mixed precision
    (base_config.py), with which DeepSpeed turns the weights themselves into bf16.
    """
    half = inputs.flag("bf16", "fp16") or str(inputs.value("mixed_precision")) in ("bf16", "fp16")
    unset = not {"bf16", "fp16", "mixed_precision"} & inputs.settings.keys()
    if backend == "deepspeed":
        if unset and inputs.framework_before(_MIXED_SINCE):
            inputs.assume(say("bf16 is not set; weights are assumed to be in bf16, as DeepSpeed makes them with it"))
        return {"width": 2 if half or unset else 4, "fused_head": _is_fused(inputs)}
    half = half or (not inputs.framework_before(_MIXED_SINCE) and _is_unset(inputs))
    dtype = inputs.value("dtype", "torch_dtype")
    width = _WIDTHS.get(str(dtype), 4)
    if dtype == "auto":
        width = shape.stored_width or 2
        if shape.stored_width is None:
            inputs.assume(say("dtype auto: weights are assumed to be stored in 16 bit"))
    elif dtype is None:
        inputs.assume(say("weights in fp32, as TRL loads them unless --dtype says otherwise"))
    if width == 4:
        inputs.assume(
            say("computed in 16 bit by autocast, with a copy of the weights for a pass (--bf16)")
            if half
            else say("computed in fp32 (--bf16 false)")
        )
    return {"width": width, "mixed": half and width == 4, "fused_head": _is_fused(inputs)}


def _is_unset(inputs: Inputs) -> bool:
    """`bf16` follows from `fp16`: it is on unless either says otherwise."""
    return inputs.value("bf16") is None and not inputs.flag("fp16")


def _has_reference(inputs: Inputs, trainer: str) -> bool:
    if trainer in ("dpo", "kto"):
        return True
    if trainer not in _ONLINE:
        return False
    by_default = 0.05 if trainer == "rloo" else 0.04 if inputs.framework_before("0.19") else 0.0
    return inputs.number("beta", default=by_default) > 0


def _find_engine(inputs: Inputs, shape: Shape, local_ranks: int) -> Engine | None:
    if not inputs.flag("use_vllm") or str(inputs.value("vllm_mode") or "colocate") != "colocate":
        return None
    level = 0 if not inputs.flag("rollout.sleep") else 1 if inputs.framework_before("0.25") else 2
    share = inputs.number("rollout.gpu_memory_utilization", default=0.3)
    return Engine(
        shape=shape, local_ranks=local_ranks, utilization=share, sleep_level=level, colocated=True, process="trainer"
    )


def _gathers(inputs: Inputs) -> bool:
    return inputs.flag("zero.stage3_gather_16bit_weights_on_model_save") or inputs.flag(
        "deepspeed_config.zero3_save_16bit_model"
    )
