"""verl, EasyR1 and simpleRL-reason: one process a GPU holds all roles and the engine (verl/trainer/main_ppo.py, 0.1 to 0.9.1)."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.placement import (
    BYTES_PER_TOKEN,
    GPUS,
    Placed,
    actor_shape,
    find_store,
    find_swap,
    make_nodes,
    read_lengths,
)
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.budget.told import Told
from rlhfdoctor.errors import UsageError
from rlhfdoctor.units import GIB

_TOKENS = 16_384
"""ppo_max_token_len_per_gpu by default."""


def plan_verl(told: Told) -> list[Plan]:
    """Nodes of a verl run or one of its forks: all of them alike.

    Raises:
        UsageError: the run trains with Megatron, which is not modelled.
    """
    name = told.framework.name if told.framework is not None else "verl"
    easy = name == "easyr1"
    shape = actor_shape(told, "worker.actor.model.model_path" if easy else "actor_rollout_ref.model.path")
    nodes = told.machine.nodes or told.count("trainer.nnodes", default=1)
    gpus = told.machine.gpus_per_node or told.count("trainer.n_gpus_per_node", default=GPUS)
    models = _models(told, name, shape, nodes * gpus)
    engine = Engine(
        shape=shape, here=gpus, tensor_parallel=told.count("rollout.tensor_parallel_size", "worker.rollout.tensor_parallel_size", default=2 if easy else 1),
        utilization=told.number("rollout.gpu_memory_utilization", default=0.5), sleep_level=_sleep(told, name),
        late_cache=not told.before("vllm", "0.8.3") and (easy or (name == "verl" and not told.framework_before("0.4"))),  # wake_up(tags=["weights"])
        swap_bytes=find_swap(told) if name != "simplerl" else int(told.number("rollout.swap_space", default=40) * GIB), colocated=True, process="worker",
    )  # fmt: skip
    if "sglang" in str(told.value("actor_rollout_ref.rollout.name")):
        told.assume("SGLang's memory is taken to be vLLM's")
    prompt, answer = read_lengths(told)
    samples = told.count("rollout.batch_size", default=1024) * told.count(
        "rollout.samples_per_prompt", "worker.rollout.n", default=1
    )
    saves = told.number("checkpoint.save_steps", "trainer.save_freq", default=-1) > 0
    contents = str(told.value("checkpoint.contents") or "")
    resumes = told.value("checkpoint.resume", "trainer.resume_mode") not in (None, "disable", "auto", False) or bool(
        told.value("trainer.load_checkpoint_path")
    )
    return make_nodes(
        told, [Placed((*models, "engine"), gpus, nodes)], models, engine, experience_bytes=samples * (prompt + answer) * BYTES_PER_TOKEN // nodes,
        store_bytes=find_store(told), saves=saves, saves_hf="hf_model" in contents,
        saves_at_end="checkpoint" if easy and not saves else "", copies_weights=easy, copies_states=easy and not told.flag("trainer.save_model_only"), resumes=resumes,
        reward_workers=int(told.number("reward.num_workers", default=0)) if "reward.num_workers" in told.settings else 0,
    )  # fmt: skip


def _other_trainer(told: Told, actor: str, strategy: str) -> str:
    """What shows that the roles are trained by Megatron or another backend than FSDP; empty where nothing does."""
    engine = told.settings.get("model_engine")
    config = told.settings.get("config_name")
    parallel = next((s for n, s in told.settings.items() if n.startswith(f"{actor}.megatron.")), None)
    if strategy != "None" and not strategy.startswith(("fsdp", "$")):
        return f"{actor}.strategy is {strategy}"
    if engine is not None and not str(engine.value).startswith(
        ("dp", "fsdp", "$")
    ):  # dp: verl's name of its FSDP engine
        return f"model_engine is {engine.value}"
    if config is not None and "megatron" in str(config.value):
        return f"--config-name is {config.value}"
    return f"{parallel.spelled} is set" if parallel is not None else ""


def _models(told: Told, name: str, shape: Shape, world: int) -> dict[str, Model]:
    easy = name == "easyr1"
    actor = "worker.actor" if easy else "actor_rollout_ref.actor"
    strategy = str(told.value(f"{actor}.strategy"))
    other = _other_trainer(told, actor, strategy)
    if other:
        raise UsageError(f"{other}: this trainer's memory is not modelled; the estimate knows FSDP and DeepSpeed")
    sharded = int(told.number(f"{actor}.fsdp_config.fsdp_size", default=-1))
    lora = int(told.number("actor_rollout_ref.model.lora_rank", "lora_rank", default=0))
    common: dict[str, Any] = {
        "ranks": sharded if 0 < sharded < world else world, "here": 0, "backend": "fsdp2" if strategy == "fsdp2" else "fsdp1", "process": "worker",
    }  # fmt: skip
    tokens = _tokens(told, world)
    width = 2 if "bf" in str(told.value(f"{actor}.fsdp_config.model_dtype", "fsdp_dtype") or "") else 4
    policy = strategy == "fsdp2" and told.flag(f"{actor}.fsdp_config.offload_policy")
    models = {
        "actor": Model(
            role="actor", shape=shape, trained=True, width=width, offload_param=told.flag("offload_param"), offload_optimizer=told.flag("offload_optimizer"),
            on_host=policy, lora_rank=lora, **_logit_widths(told, name), **tokens, **common,
        )
    }  # fmt: skip
    if _has_reference(told, easy) and not lora:  # with LoRA the actor without its adapters is the reference
        scored = _tokens(told, world, reference=not easy) | _logit_widths(told, name, reference=True)
        models["reference"] = Model(
            role="reference", shape=shape, trained=False, offload_param=_reference_offloaded(told, easy), width=_reference_width(told, name), **scored, **common
        )  # fmt: skip
    estimator = told.value("algorithm.adv_estimator") or ("grpo" if easy else "gae")
    if estimator == "gae":
        critic = told.shape_or(shape, "critic.model.path", "worker.critic.model.model_path", of="the critic")
        models["critic"] = Model(
            role="critic", shape=critic, trained=True, width=4, value_head=True, saved=False, offload_param=told.flag("critic.offload_param"),
            offload_optimizer=told.flag("critic.offload_optimizer"), **tokens, **common,
        )  # fmt: skip
    if told.flag("reward_model.enable") or told.flag("reward.reward_model.enable"):
        reward = told.shape_or(
            shape, "reward_model.model.path", "reward.reward_model.model_path", of="the reward model"
        )
        models["reward"] = Model(
            role="reward", shape=reward, trained=False, offload_param=True, width=2, value_head=True, **tokens, **common
        )
    return models


def _per_gpu(told: Told, name: str, ranks: int, default: int) -> int:
    """Sequences of a pass on one GPU; the older names count those of all GPUs (verl, EasyR1 says per device)."""
    own = told.settings.get(name)
    count = told.count(name, default=default)
    every = own is not None and "per_gpu" not in own.spelled and "per_device" not in own.spelled
    return max(count // ranks, 1) if every else count


def _tokens(told: Told, world: int, reference: bool = False) -> dict[str, Any]:
    prompt, answer = read_lengths(told)
    tokens, parallel = prompt + answer, told.count("sequence_parallel_size", default=1)
    sequences = _per_gpu(told, "train.micro_batch_size", world, 1)
    scored = _per_gpu(
        told, "ref.logprob_micro_batch_size" if reference else "logprob.micro_batch_size", world, sequences
    )
    easy = (
        told.framework is not None and told.framework.name == "easyr1"
    )  # there a pass takes micro batch x longest tokens
    if told.flag("train.dynamic_batch") and not easy:
        most = told.count("train.max_tokens", default=_TOKENS)
        tokens = max(most, -(-tokens // parallel)) * parallel
        sequences, scored = 1, max(told.count("logprob.max_tokens", default=most) // most, 1)
    found = {
        "sequences": sequences,
        "scored": scored,
        "tokens": tokens,
        "parallel": parallel,
        "recompute": told.flag("gradient_checkpointing", default=True),
    }
    return found | ({"answer_tokens": 0} if told.flag("fused_logits") else {})


_LOGITS, _ENTROPY = 2, 4
"""Bytes a token and word: logits in bf16; an entropy over them beside: softmax and products, or one fp32 buffer where it is compiled (by
inductor on a CPU, torch 2.13)."""


def _logit_widths(told: Told, name: str, reference: bool = False) -> dict[str, Any]:
    """Bytes a token and word at the peaks of training and of scoring.

    flash-attn's cross entropy takes the logits as they are and writes their gradients in their place; the division by the
    temperature makes these once more (verl/workers/actor/dp_actor.py at 0.1 to 0.6; workers/engine/fsdp at 0.8; EasyR1's
    log_probs_from_logits at 0.3.0 to 0.3.2). With an entropy they are not written in place. verl computes one in every pass up to
    0.3, then while the actor is scored and where the update wants it; EasyR1 never. Padded batches have the logits of their
    responses copied; verl 0.9 divides into new ones.
    """
    prompt, answer = read_lengths(told)
    copied = 0.0 if told.flag("packing_samples") else _LOGITS * answer / (prompt + answer)
    if name == "easyr1":
        return {"logit_width": 2 * _LOGITS, "scored_logit_width": _LOGITS + copied}
    always = name == "simplerl" or told.framework_before("0.4")
    scored = (0 if told.flag("entropy_chunking") else _ENTROPY) if always or not reference else 0
    trains = always or told.number("actor_rollout_ref.actor.entropy_coeff", default=0) != 0
    trains = trains or told.flag("actor_rollout_ref.actor.calculate_entropy")
    if name == "verl" and not told.framework_before("0.9"):
        copied = _LOGITS  # divided by the temperature into new ones
    return {"logit_width": 4 * _LOGITS if trains else 2 * _LOGITS, "scored_logit_width": _LOGITS + scored + copied}


def _has_reference(told: Told, easy: bool) -> bool:
    if easy:
        return not told.flag("algorithm.disable_kl")
    return (
        told.flag("actor_rollout_ref.actor.use_kl_loss")
        or told.flag("algorithm.use_kl_in_reward")
        or told.framework_before("0.3")
    )


def _reference_offloaded(told: Told, easy: bool) -> bool:
    """verl offloads the reference whatever its setting says (fsdp_workers.py, 0.1 to 0.9.1); EasyR1 asks enable_cpu_offload."""
    return told.flag("ref.cpu_offload", default=True) if easy else True


def _reference_width(told: Told, name: str) -> int:
    asked = str(told.value("ref.model_dtype") or "")
    if asked:
        return 4 if "32" in asked else 2
    return 2 if name != "verl" or told.framework_before("0.6.0") else 4


def _sleep(told: Told, name: str) -> int:
    """What happens to the engine's weights between rollouts (settings_notes section 1, 6)."""
    if name == "easyr1":
        return 1
    if name == "simplerl" or told.before("vllm", "0.7"):
        return 2  # weights are dropped with the cache engine
    if told.framework_before("0.5.0"):
        return 1
    frees = told.flag("rollout.free_cache_engine", default=True)
    return 0 if not frees else 1 if told.framework_before("0.6.0") else 2
