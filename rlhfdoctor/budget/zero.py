"""TRL and the bundled trainer: DeepSpeed as its own JSON tells it."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.placement import (
    GPUS,
    Placed,
    actor_shape,
    find_store,
    make_nodes,
    read_lengths,
    read_resume,
    read_sub_groups,
)
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.told import Told
from rlhfdoctor.units import GIB


def plan_trl(told: Told) -> list[Plan]:
    """Nodes of a TRL run: one process a GPU; DeepSpeed as its JSON or accelerate's YAML tells it, else plain data parallelism."""
    shape = actor_shape(told, "model_name_or_path", "actor.model_name_or_path")
    gpus = told.machine.gpus_per_node
    if gpus is None:
        gpus = told.count("num_processes", default=GPUS)
        if "num_processes" not in told.settings:
            told.assume(f"{gpus} GPUs on the node: --gpus-per-node")
    ranks = gpus * (told.machine.nodes or told.count("num_machines", default=1))
    prompt, answer = read_lengths(told)
    micro = told.count("train.micro_batch_size", default=8)
    common: dict[str, Any] = {
        "ranks": ranks, "here": gpus, "version": told.version("deepspeed"), "process": "trainer", "sequences": micro, "scored": micro,
        "tokens": prompt + answer, "recompute": told.flag("gradient_checkpointing"),
    }  # fmt: skip
    stage = int(told.number("zero_stage", "deepspeed_config.zero_stage", default=0))
    zero = _zero(told, stage)
    backend = "deepspeed" if stage or "zero_stage" in told.settings else "plain"
    if backend == "plain":
        told.assume("no DeepSpeed configuration is at hand: weights, gradients and Adam's states whole on every GPU")
    adapters = int(told.number("lora_r", default=16)) if told.flag("use_peft") else 0
    models = {
        "actor": Model(
            role="actor", shape=shape, trained=True, backend=backend, sums=told.count("gradient_accumulation_steps", default=1) > 1,  # type: ignore[arg-type]
            lora_rank=adapters, gathers=stage == 3 and _gathers(told) and not adapters, clones=stage in (1, 2), **common, **zero,
        )
    }  # fmt: skip
    if told.number("beta", default=0.04 if told.framework_before("0.19") else 0.0) > 0 and not adapters:
        models["reference"] = Model(
            role="reference", shape=shape, trained=False, backend="deepspeed", stage=3 if stage == 3 else 0, **common
        )
    engine = None
    if told.flag("use_vllm") and str(told.value("vllm_mode") or "colocate") == "colocate":
        level = 0 if not told.flag("rollout.sleep") else 1 if told.framework_before("0.25") else 2
        share = told.number("rollout.gpu_memory_utilization", default=0.3)
        engine = Engine(shape=shape, here=gpus, utilization=share, sleep_level=level, colocated=True, process="trainer")
    roles = (*models, *(["engine"] if engine else []))
    return make_nodes(
        told,
        [Placed(roles, gpus, max(ranks // gpus, 1))],
        models,
        engine,
        ray=False,
        saves=True,
        saves_hf=True,
        **read_resume(told),
    )


def _gathers(told: Told) -> bool:
    return told.flag("zero.stage3_gather_16bit_weights_on_model_save") or told.flag(
        "deepspeed_config.zero3_save_16bit_model"
    )


def _zero(told: Told, stage: int) -> dict[str, Any]:
    """DeepSpeed's own settings, as they stand in its JSON."""
    pins = told.value("offload_optimizer.pin_memory"), told.value("offload_param.pin_memory")
    default = not told.before("deepspeed", "0.19.5")
    optimizer = told.flag("offload_optimizer") or told.flag("deepspeed_config.offload_optimizer_device")
    param = stage == 3 and (told.flag("offload_param") or told.flag("deepspeed_config.offload_param_device"))
    return {
        "stage": stage, "offload_optimizer": optimizer and stage > 0, "offload_param": param,
        "pin_optimizer": optimizer and (default if pins[0] is None else bool(pins[0])), "pin_param": param and (default if pins[1] is None else bool(pins[1])),
        "bucket": told.count("zero.reduce_bucket_size", default=500_000_000), **read_sub_groups(told), "overlap": told.flag("zero.overlap_comm", default=stage == 3),
    }  # fmt: skip


def plan_trainer(told: Told) -> list[Plan]:
    """The bundled trainer: a Qwen2 from its sizes, or a folder; one process a role, or one for all (cluster.placement)."""
    shape = told.given_shape() or told.shape("model.path") or _own_shape(told)
    ranks = told.count("cluster.world_size", default=2)
    separate = told.value("cluster.placement") == "separate"
    stage = int(told.number("zero_stage", default=0))
    micro, mini = told.count("train.micro_batch_size", default=8), told.count("train.mini_batch_size", default=32)
    prompt, answer = (
        told.count("max_prompt_length", "data.max_prompt_length", default=32),
        told.count("max_response_length", "data.max_response_length", default=16),
    )
    width = 2 if told.value("model.dtype") == "bfloat16" else 4
    sums = {"fp32": 4, "bf16": 2}.get(str(told.value("grad_accum_dtype")))
    rows = told.count("rollout.batch_size", default=32) * told.count("rollout.samples_per_prompt", default=1)
    scored = min(told.count("rollout.micro_batch_size", default=16), -(-rows // ranks))
    common: dict[str, Any] = {
        "ranks": ranks, "here": ranks, "backend": "deepspeed", "version": told.version("deepspeed"), "width": width, "sequences": micro, "scored": scored,
        "tokens": prompt + answer, "answer_tokens": answer + 1,
        "scored_logit_width": width + 8,  # trainer/ppo.py, logprobs_of: the logits, and two of their fp32 copy, quotient and log-softmax
        "recompute": told.flag("gradient_checkpointing"),
    }  # fmt: skip
    zero = _zero(told, stage)
    trained = {**common, **zero, "trained": True, "sums": mini // (ranks * micro) > 1, "sum_width": sums}
    frozen = {
        **common,
        "trained": False,
        "stage": 3 if stage == 3 else 0,
        "offload_param": zero["offload_param"],
        "pin_param": zero["pin_param"],
    }

    def process(role: str) -> str:
        return role if separate else "worker"

    models = {
        "actor": Model(
            role="actor",
            shape=shape,
            process=process("actor"),
            swap_bytes=int(told.number("rollout.swap_space", default=0) * GIB),
            rebuilds=told.flag("rollout.free_cache_engine"),
            **trained,
        ),
        "critic": Model(role="critic", shape=shape, process=process("critic"), value_head=True, saved=False, **trained),
        "reference": Model(role="reference", shape=shape, process=process("reference"), **frozen),
    }
    if told.machine.gpus_per_node is None:
        told.assume("a GPU for each rank; --gpus-per-node 0 for a run on CPUs")
    engine = None
    if told.value("rollout.backend") == "vllm":
        engine = Engine(
            shape=shape, here=1, width=width, cache_bytes=int(told.number("rollout.kv_cache_gib", default=0.25) * GIB)
        )
    on_cpu = told.machine.gpus_per_node == 0
    sets = [(role,) for role in models] if separate else [tuple(models)]
    groups = [Placed(roles, 0 if on_cpu else ranks) for roles in sets] + (
        [Placed(("engine",), 0 if on_cpu else 1)] if engine else []
    )
    return make_nodes(
        told, groups, models, engine, saves=told.number("checkpoint.save_steps", default=0) > 0, saves_hf=told.flag("checkpoint.save_hf"),
        saves_in_memory=told.flag("checkpoint.in_memory"), loaders=int(told.number("dataloader_num_workers", default=0)),
        reward_workers=int(told.number("reward.num_workers", default=0)), store_bytes=find_store(told), **read_resume(told, launched=on_cpu),
    )  # fmt: skip


def _own_shape(told: Told) -> Shape:
    hidden, heads = told.count("model.hidden_size", default=256), told.count("model.num_heads", default=4)
    return Shape(
        name="the trainer's own", layers=told.count("model.num_layers", default=4), hidden=hidden, heads=heads, kv_heads=max(heads // 2, 1), head_dim=hidden // heads,
        intermediate=3 * hidden, vocabulary=told.count("model.vocab_size", default=260), tied=True, attention_bias=True,
    )  # fmt: skip
