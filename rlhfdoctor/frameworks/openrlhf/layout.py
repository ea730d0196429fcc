"""OpenRLHF: a group of Ray actors a role, packed into nodes, or all roles in one process (train_ppo).

openrlhf/cli/train_ppo_ray.py and train_ppo.py at 0.0.1 to 0.11.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import (
    BYTES_PER_TOKEN,
    actor_shape,
    find_store,
    find_swap,
    read_lengths,
    read_resume,
    read_sub_groups,
)
from rlhfdoctor.budget.placement import GPUS, Placed, engine_groups, make_nodes
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.i18n.message import say

_ROLES = ("actor", "critic", "ref", "reward")
_GROUP_FLAGS = ("_num_nodes", "_num_gpus_per_node", ".num_nodes", ".num_gpus_per_node")


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of an OpenRLHF PPO run: which roles there are follows from estimator, KL and reward settings."""
    shape = actor_shape(inputs, "pretrain", "actor.model_name_or_path")
    wanted = _wanted(inputs)
    shapes = _shapes(inputs, shape, wanted)
    alone = not any(f"{role}{flag}" in inputs.settings for role in _ROLES for flag in _GROUP_FLAGS)
    sizes = _group_sizes(inputs, wanted, alone)
    shared = [tuple(role for role in wanted if wanted[role])] if alone else _shared(inputs, wanted)
    groups = [Placed(roles, sizes[roles[0]][1], sizes[roles[0]][0]) for roles in shared]
    # async engines have GPUs of their own
    together = inputs.flag("colocate_all") and not inputs.flag("train.async_enable")
    engine = _engine(inputs, shape, together)
    if engine is not None:
        _place_engine(inputs, engine, groups)
    models = _models(inputs, shapes, sizes)
    if alone:
        models = {role: replace(model, process="trainer", concurrent=False) for role, model in models.items()}
    prompt, answer = read_lengths(inputs)
    samples = inputs.count("rollout.samples_per_prompt", default=1) * inputs.count("rollout.batch_size", default=1024)
    saves, saves_hf = inputs.number("checkpoint.save_steps", default=-1) > 0, inputs.flag("checkpoint.save_hf")
    in_store = 0 if alone else samples * (prompt + answer) * BYTES_PER_TOKEN
    # where Ray does not hide GPUs, an actor's LOCAL_RANK is the number of its own, else 0 (trainer/ray/launcher.py)
    sees_all = any(name.startswith("RAY_EXPERIMENTAL_NOSET_") for name in inputs.settings)
    return make_nodes(
        inputs,
        groups,
        models,
        engine,
        experience_bytes=in_store,
        store_bytes=find_store(inputs),
        saves=saves and (saves_hf or not inputs.flag("checkpoint.disable_deepspeed")),
        saves_hf=saves_hf,
        saves_at_end="weights",
        ray=not alone,
        **read_resume(inputs, launched=alone or sees_all),
    )


def _wanted(inputs: Inputs) -> dict[str, bool]:
    """Which roles the run has."""
    has_reward = not (
        inputs.value("remote_rm_url", "reward.remote_url") or inputs.value("agent_func_path", "train.agent_func_path")
    )
    return {
        "actor": True,
        "critic": str(inputs.value("advantage_estimator", "algo.advantage.estimator") or "gae") == "gae",
        "reference": inputs.number("init_kl_coef", "algo.kl.init_coef", default=0.01) > 0,
        "reward": has_reward,
    }


def _shapes(inputs: Inputs, actor: Shape, wanted: dict[str, bool]) -> dict[str, Shape]:
    """The models' shapes by role; one that is not named is as another role's."""
    if "," in str(inputs.value("reward_pretrain", "reward.model_name_or_path") or ""):
        inputs.assume(say("of several reward models only the first is counted"))
    reward = inputs.shape_or(actor, "reward_pretrain", "reward.model_name_or_path", of=say("the reward model"))
    critic = inputs.shape_or(
        reward if wanted["reward"] else actor, "critic_pretrain", "critic.model_name_or_path", of=say("the critic")
    )
    return {"actor": actor, "critic": critic, "reference": actor, "reward": reward}


def _group_sizes(inputs: Inputs, wanted: dict[str, bool], alone: bool) -> dict[str, tuple[int, int]]:
    """Nodes of each role, and GPUs on each; `alone`: train_ppo, which has no groups."""
    if alone:
        inputs.assume(
            say("no role has GPUs of its own in the files: one process a GPU holds all of them, as in train_ppo")
        )
        return dict.fromkeys(wanted, (inputs.machine.nodes or 1, inputs.machine.gpus_per_node or GPUS))
    sizes = {role: _group_size(inputs, "ref" if role == "reference" else role) for role in wanted}
    if inputs.machine.nodes is not None:
        inputs.assume(say("--nodes is not used: OpenRLHF's own settings say how many nodes each role has"))
    return sizes


def _models(inputs: Inputs, shapes: dict[str, Shape], sizes: dict[str, tuple[int, int]]) -> dict[str, Model]:
    trained, frozen = _training(inputs, sizes), _frozen(inputs)
    return {
        "actor": Model(role="actor", shape=shapes["actor"], process="actor", local_ranks=0, **trained("actor")),
        "critic": Model(
            role="critic",
            shape=shapes["critic"],
            process="critic",
            local_ranks=0,
            value_head=True,
            saved=False,
            **trained("critic"),
        ),
        "reference": Model(
            role="reference",
            shape=shapes["reference"],
            process="reference",
            ranks=_total(sizes["reference"]),
            **frozen,
        ),
        "reward": Model(
            role="reward",
            shape=shapes["reward"],
            process="reward",
            ranks=_total(sizes["reward"]),
            value_head=True,
            **frozen,
        ),
    }


def _frozen(inputs: Inputs) -> dict[str, Any]:
    """Settings of the models that only score."""
    stage = 3 if inputs.stage("zero_stage", default=2) == 3 else 0
    offloads = stage == 3 and inputs.flag("ref.offload_param")
    return {
        "backend": "deepspeed",
        "version": inputs.version("deepspeed"),
        "trained": False,
        "stage": stage,
        "local_ranks": 0,
        "offload_param": offloads,
        "pin_param": offloads and not inputs.framework_before("0.1.5"),
        **_tokens(inputs),
    }


def _shared(inputs: Inputs, wanted: dict[str, bool]) -> list[tuple[str, ...]]:
    """Roles by the GPUs that they share (--colocate_*)."""
    sets: list[tuple[str, ...]] = [("actor",), ("critic",), ("reference",), ("reward",)]
    if inputs.flag("colocate_all"):
        sets = [("actor", "reference", "critic", "reward")]
    else:
        for pair, name in (
            (("actor", "reference"), "train.colocate_actor_ref"),
            (("critic", "reward"), "train.colocate_critic_reward"),
        ):
            if inputs.flag(name):
                sets = [pair, *(s for s in sets if s[0] not in pair)]
    found = [tuple(role for role in roles if wanted[role]) for roles in sets]
    return [roles for roles in found if roles]


def _place_engine(inputs: Inputs, engine: Engine, groups: list[Placed]) -> None:
    """Engines share the roles' GPUs, or have nodes of their own."""
    if engine.colocated:
        groups[0].roles = (*groups[0].roles, "engine")
        return
    per = inputs.machine.gpus_per_node or max(GPUS, engine.tensor_parallel)
    groups += engine_groups(inputs.count("rollout.num_engines", default=1) * engine.tensor_parallel, per)


def _group_size(inputs: Inputs, role: str) -> tuple[int, int]:
    nodes = inputs.count(f"{role}_num_nodes", f"{role}.num_nodes", default=1)
    return nodes, inputs.count(f"{role}_num_gpus_per_node", f"{role}.num_gpus_per_node", default=GPUS)


def _total(size: tuple[int, int]) -> int:
    return size[0] * size[1]


def _tokens(inputs: Inputs) -> dict[str, Any]:
    prompt, answer = read_lengths(inputs)
    tokens, parallel = prompt + answer, inputs.count("sequence_parallel_size", default=1)
    sequences, scored = (
        inputs.count("train.micro_batch_size", default=4),
        inputs.count("logprob.micro_batch_size", default=8),
    )
    if inputs.flag("train.dynamic_batch"):
        most = inputs.count("train.max_tokens", default=16_192)
        scores = inputs.count("logprob.max_tokens", default=most)
        sequences, scored, tokens = 1, max(scores // most, 1), max(most, tokens // parallel) * parallel
    return {
        "sequences": sequences,
        "scored": scored,
        "tokens": tokens,
        "parallel": parallel,
        "recompute": inputs.flag("gradient_checkpointing"),
    }


def _training(inputs: Inputs, sizes: dict[str, tuple[int, int]]) -> Any:
    stage = inputs.stage("zero_stage", default=2)
    offload = inputs.flag("offload_optimizer")
    early = inputs.framework_before(
        "0.1.5"
    )  # no pin_memory, no grad_accum_dtype (deepspeed_utils.py at 0.1.4 and 0.1.5)
    unset_is_fp32 = inputs.framework_before("0.5.4") and not early
    sums = inputs.value("grad_accum_dtype")
    width = {"fp32": 4, "bf16": 2}.get(str(sums), 4 if unset_is_fp32 else 2)
    if inputs.version("deepspeed") is None:
        inputs.assume(say("DeepSpeed version unknown; assuming 0.19.8"))
    if inputs.flag("train.enable_ema"):
        inputs.assume(
            say(
                "the moving average of the weights (enable_ema) is not counted: 2 bytes a parameter more, on GPU "
                "or host"
            )
        )

    def of(role: str) -> dict[str, Any]:
        ranks = _total(sizes[role])
        micro = inputs.count("train.micro_batch_size", default=4)
        accumulates = inputs.count("train.batch_size", default=128) > micro * ranks
        pins = offload and not early and inputs.value("offload_optimizer.pin_memory") is not False
        return {
            "trained": True,
            "ranks": ranks,
            "backend": "deepspeed",
            "version": inputs.version("deepspeed"),
            "stage": stage,
            "offload_optimizer": offload,
            "pin_optimizer": pins,
            "pin_param": True,
            **read_sub_groups(inputs),
            "accumulates": accumulates,
            "sum_width": width,
            "overlap": inputs.flag("ds.overlap_comm"),
            "gathers": stage == 3 or not early,
            "clones": stage != 3 and not inputs.framework_before("0.7.5"),
            "lora_rank": int(inputs.number("lora_rank", default=0)),
            "sleeps": stage == 3 and inputs.flag("train.sleep"),
            **_tokens(inputs),
            # ppo_train starts both fits and then waits, but with DeepSpeed's sleep (ppo_trainer.py, 0.5.4 to 0.11.2)
            "concurrent": not inputs.flag("train.sleep"),
        }

    return of


def _engine(inputs: Inputs, shape: Shape, colocated: bool) -> Engine | None:
    engines = inputs.value("rollout.num_engines")
    if not isinstance(engines, int) or isinstance(engines, bool) or engines < 1:
        return None
    asleep = colocated and inputs.flag("rollout.sleep")
    return Engine(
        shape=shape,
        local_ranks=0,
        tensor_parallel=inputs.count("rollout.tensor_parallel_size", default=1),
        utilization=inputs.number("rollout.gpu_memory_utilization", default=0.9),
        sleep_level=1 if asleep else 0,
        swap_bytes=find_swap(inputs),
        colocated=colocated,
    )
