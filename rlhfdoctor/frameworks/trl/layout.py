"""TRL: DeepSpeed as configured by its own JSON, or plain data parallelism."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.deepspeed_settings import read_zero
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import actor_shape, read_lengths, read_resume
from rlhfdoctor.budget.placement import GPUS, Placed, make_nodes
from rlhfdoctor.budget.plan import Backend, Engine, Model, Plan
from rlhfdoctor.i18n.message import say


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of a TRL run: one process per GPU; DeepSpeed by its JSON or accelerate's YAML, else data parallel."""
    shape = actor_shape(inputs, "model_name_or_path", "actor.model_name_or_path")
    gpus = inputs.machine.gpus_per_node
    if gpus is None:
        gpus = inputs.count("num_processes", default=GPUS)
        if "num_processes" not in inputs.settings:
            inputs.assume(say("{gpus} GPUs on the node: --gpus-per-node", gpus=gpus))
    ranks = gpus * (inputs.machine.nodes or inputs.count("num_machines", default=1))
    prompt, answer = read_lengths(inputs)
    micro = inputs.count("train.micro_batch_size", default=8)
    common: dict[str, Any] = {
        "ranks": ranks,
        "local_ranks": gpus,
        "version": inputs.version("deepspeed"),
        "process": "trainer",
        "sequences": micro,
        "scored": micro,
        "tokens": prompt + answer,
        "recompute": inputs.flag("gradient_checkpointing"),
    }
    stage = int(inputs.number("zero_stage", "deepspeed_config.zero_stage", default=0))
    zero = read_zero(inputs, stage)
    backend: Backend = "deepspeed" if stage or "zero_stage" in inputs.settings else "plain"
    if backend == "plain":
        inputs.assume(
            say("no DeepSpeed configuration is at hand: weights, gradients and Adam's states whole on every GPU")
        )
    adapters = int(inputs.number("lora_r", default=16)) if inputs.flag("use_peft") else 0
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
            **common,
            **zero,
        )
    }
    if inputs.number("beta", default=0.04 if inputs.framework_before("0.19") else 0.0) > 0 and not adapters:
        models["reference"] = Model(
            role="reference", shape=shape, trained=False, backend="deepspeed", stage=3 if stage == 3 else 0, **common
        )
    engine = None
    if inputs.flag("use_vllm") and str(inputs.value("vllm_mode") or "colocate") == "colocate":
        level = 0 if not inputs.flag("rollout.sleep") else 1 if inputs.framework_before("0.25") else 2
        share = inputs.number("rollout.gpu_memory_utilization", default=0.3)
        engine = Engine(
            shape=shape, local_ranks=gpus, utilization=share, sleep_level=level, colocated=True, process="trainer"
        )
    roles = (*models, *(["engine"] if engine else []))
    return make_nodes(
        inputs,
        [Placed(roles, gpus, max(ranks // gpus, 1))],
        models,
        engine,
        ray=False,
        saves=True,
        saves_hf=True,
        **read_resume(inputs),
    )


def _gathers(inputs: Inputs) -> bool:
    return inputs.flag("zero.stage3_gather_16bit_weights_on_model_save") or inputs.flag(
        "deepspeed_config.zero3_save_16bit_model"
    )
