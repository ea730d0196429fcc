"""The bundled trainer: DeepSpeed as configured by its own JSON; one process per role, or one for all."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.budget.deepspeed_settings import read_zero
from rlhfdoctor.budget.hazards import churn
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import find_store, read_resume
from rlhfdoctor.budget.placement import Placed, make_nodes
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.types import Hazard
from rlhfdoctor.i18n.message import say
from rlhfdoctor.units import GIB


def make_plans(inputs: Inputs) -> list[Plan]:
    """The bundled trainer: a Qwen2 by its sizes, or a folder; a process a role, or one for all (cluster.placement)."""
    shape = inputs.given_shape() or inputs.shape("model.path") or _own_shape(inputs)
    ranks = inputs.count("cluster.world_size", default=2)
    separate = inputs.value("cluster.placement") == "separate"
    width = 2 if inputs.value("model.dtype") == "bfloat16" else 4
    models = _models(inputs, shape, ranks, width, separate)
    if inputs.machine.gpus_per_node is None:
        inputs.assume(say("a GPU for each rank; --gpus-per-node 0 for a run on CPUs"))
    engine = None
    if inputs.value("rollout.backend") == "vllm":
        engine = Engine(
            shape=shape,
            local_ranks=1,
            width=width,
            cache_bytes=int(inputs.number("rollout.kv_cache_gib", default=0.25) * GIB),
        )
    on_cpu = inputs.machine.gpus_per_node == 0
    sets = [(role,) for role in models] if separate else [tuple(models)]
    groups = [Placed(roles, 0 if on_cpu else ranks) for roles in sets] + (
        [Placed(("engine",), 0 if on_cpu else 1)] if engine else []
    )
    return make_nodes(
        inputs,
        groups,
        models,
        engine,
        saves=inputs.number("checkpoint.save_steps", default=0) > 0,
        saves_hf=inputs.flag("checkpoint.save_hf"),
        saves_in_memory=inputs.flag("checkpoint.in_memory"),
        loaders=int(inputs.number("dataloader_num_workers", default=0)),
        reward_workers=int(inputs.number("reward.num_workers", default=0)),
        store_bytes=find_store(inputs),
        **read_resume(inputs, launched=on_cpu),
    )


def _models(inputs: Inputs, shape: Shape, ranks: int, width: int, separate: bool) -> dict[str, Model]:
    """Actor, critic, reference; `separate`: each role has processes of its own."""
    stage = inputs.stage("zero_stage", default=0)
    micro, mini = inputs.count("train.micro_batch_size", default=8), inputs.count("train.mini_batch_size", default=32)
    prompt, answer = (
        inputs.count("max_prompt_length", "data.max_prompt_length", default=32),
        inputs.count("max_response_length", "data.max_response_length", default=16),
    )
    sums = {"fp32": 4, "bf16": 2}.get(str(inputs.value("grad_accum_dtype")))
    rows = inputs.count("rollout.batch_size", default=32) * inputs.count("rollout.samples_per_prompt", default=1)
    scored = min(inputs.count("rollout.micro_batch_size", default=16), -(-rows // ranks))
    common: dict[str, Any] = {
        "ranks": ranks,
        "local_ranks": ranks,
        "backend": "deepspeed",
        "version": inputs.version("deepspeed"),
        "width": width,
        "sequences": micro,
        "scored": scored,
        "tokens": prompt + answer,
        "answer_tokens": answer + 1,
        # trainer/ppo.py, logprobs_of: the logits, and two of their fp32 copy, quotient and log-softmax
        "scored_logit_width": width + 8,
        "recompute": inputs.flag("gradient_checkpointing"),
    }
    zero = read_zero(inputs, stage)
    trained = {**common, **zero, "trained": True, "accumulates": mini // (ranks * micro) > 1, "sum_width": sums}
    frozen = {
        **common,
        "trained": False,
        "stage": 3 if stage == 3 else 0,
        "offload_param": zero["offload_param"],
        "pin_param": zero["pin_param"],
    }

    def process(role: str) -> str:
        return role if separate else "worker"

    return {
        "actor": Model(
            role="actor",
            shape=shape,
            process=process("actor"),
            swap_bytes=int(inputs.number("rollout.swap_space", default=0) * GIB),
            rebuilds=inputs.flag("rollout.free_cache_engine"),
            **trained,
        ),
        "critic": Model(role="critic", shape=shape, process=process("critic"), value_head=True, saved=False, **trained),
        "reference": Model(role="reference", shape=shape, process=process("reference"), **frozen),
    }


def find_hazards(inputs: Inputs, plan: Plan) -> Iterator[Hazard]:
    """Swap blocks of the trainer's own that come and go."""
    swap = int(inputs.number("rollout.swap_space", default=0) * GIB)
    if swap and inputs.flag("rollout.free_cache_engine"):
        yield churn(plan.models[0].local_ranks, swap)


def _own_shape(inputs: Inputs) -> Shape:
    hidden, heads = inputs.count("model.hidden_size", default=256), inputs.count("model.num_heads", default=4)
    return Shape(
        name="the trainer's own",
        layers=inputs.count("model.num_layers", default=4),
        hidden=hidden,
        heads=heads,
        kv_heads=max(heads // 2, 1),
        head_dim=hidden // heads,
        intermediate=3 * hidden,
        vocabulary=inputs.count("model.vocab_size", default=260),
        tied=True,
        attention_bias=True,
    )
