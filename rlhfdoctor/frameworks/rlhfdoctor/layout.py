"""The bundled trainer: DeepSpeed as its own JSON tells it; one process a role, or one for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.budget.deepspeed_settings import read_zero
from rlhfdoctor.budget.hazards import churn, is_stage3
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.placement import Placed, find_store, make_nodes, read_resume
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.estimates import Hazard
from rlhfdoctor.units import GIB


def make_plans(told: Inputs) -> list[Plan]:
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
    zero = read_zero(told, stage)
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


def find_hazards(told: Inputs, plan: Plan) -> Iterator[Hazard]:
    """Ranks that end their answers early, and swap blocks of the trainer's own that come and go."""
    if is_stage3(plan) and plan.engine is None and told.value("synced_gpus") is False:
        yield Hazard(
            phase="rollout", cause="comm-zero3-generate-desync",
            says="synced_gpus is off under ZeRO-3: a rank that ends its answers early leaves the others waiting until the collective's time-out",
        )  # fmt: skip
    swap = int(told.number("rollout.swap_space", default=0) * GIB)
    if swap and told.flag("rollout.free_cache_engine"):
        yield churn(plan.models[0].here, swap)


def _own_shape(told: Inputs) -> Shape:
    hidden, heads = told.count("model.hidden_size", default=256), told.count("model.num_heads", default=4)
    return Shape(
        name="the trainer's own", layers=told.count("model.num_layers", default=4), hidden=hidden, heads=heads, kv_heads=max(heads // 2, 1), head_dim=hidden // heads,
        intermediate=3 * hidden, vocabulary=told.count("model.vocab_size", default=260), tied=True, attention_bias=True,
    )  # fmt: skip
