"""verl with its forks: one process a GPU holds all roles with the engine (verl/trainer/main_ppo.py, 0.1 to 0.9.1)."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import BYTES_PER_TOKEN, actor_shape, find_store, find_swap, read_lengths
from rlhfdoctor.budget.placement import GPUS, Placed, make_nodes
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import NOTHING, Message, say

_TOKENS = 16_384
"""ppo_max_token_len_per_gpu by default."""


LOGITS, _ENTROPY = 2, 4
"""Bytes a token and word: logits in bf16; an entropy over them beside: softmax and products, or one fp32 buffer where
it is compiled (by inductor on a CPU, torch 2.13)."""


class Variant:
    """What a fork may override; the defaults here are verl's."""

    model = "actor_rollout_ref.model.path"
    actor = "actor_rollout_ref.actor"
    estimator = "gae"
    tensor_parallel = 1
    reference_has_batches = True
    """Whether the reference has settings of its own for its batches."""
    packs_tokens = True
    """Whether a pass of dynamic batches takes tokens up to a limit; else micro batch x longest tokens."""
    copies_states = False
    """Whether a checkpoint goes through host memory, weights and Adam's states."""
    saves_at_end = False

    def sleep_level(self, inputs: Inputs) -> int:
        """What happens to the engine's weights between rollouts (settings_notes section 1, 6): 0 nothing, 1 kept on the
        host, 2 dropped."""
        if inputs.before("vllm", "0.7"):
            return 2  # weights are dropped with the cache engine
        if inputs.framework_before("0.5.0"):
            return 1
        frees = inputs.flag("rollout.free_cache_engine", default=True)
        return 0 if not frees else 1 if inputs.framework_before("0.6.0") else 2

    def late_cache(self, inputs: Inputs) -> bool:
        """Whether the cache comes back after the weights (wake_up(tags=["weights"]))."""
        return not inputs.before("vllm", "0.8.3") and not inputs.framework_before("0.4")

    def swap_bytes(self, inputs: Inputs) -> int:
        """Swap blocks of the engine."""
        return find_swap(inputs)

    def has_reference(self, inputs: Inputs) -> bool:
        """Whether a KL term requires a reference."""
        return (
            inputs.flag("actor_rollout_ref.actor.use_kl_loss")
            or inputs.flag("algorithm.use_kl_in_reward")
            or inputs.framework_before("0.3")
        )

    def reference_offloaded(self, inputs: Inputs) -> bool:
        """verl offloads the reference regardless of its setting (fsdp_workers.py, 0.1 to 0.9.1)."""
        return True

    def reference_width(self, inputs: Inputs) -> int:
        """Bytes of a weight of the reference."""
        asked = str(inputs.value("ref.model_dtype") or "")
        return self.reference_default_width(inputs) if not asked else 4 if "32" in asked else 2

    def reference_default_width(self, inputs: Inputs) -> int:
        """The same if not set explicitly."""
        return 2 if inputs.framework_before("0.6.0") else 4

    def entropy_always(self, inputs: Inputs) -> bool:
        """Whether every pass computes an entropy."""
        return inputs.framework_before("0.4")

    def divides_anew(self, inputs: Inputs) -> bool:
        """Whether the logits are divided by the temperature into new ones."""
        return not inputs.framework_before("0.9")

    def logit_widths(self, inputs: Inputs, reference: bool = False) -> dict[str, Any]:
        """Bytes per token and vocabulary entry at the peaks of training and of scoring.

        flash-attn's cross entropy takes the logits as they are and writes their gradients in their place; the division
        by the temperature makes these once more (verl/workers/actor/dp_actor.py at 0.1 to 0.6; workers/engine/fsdp at
        0.8). With an entropy they are not written in place. verl computes one in every pass up to 0.3, then while the
        actor is scored and where the update wants it. Padded batches have the logits of their responses copied; verl
        0.9 divides into new ones.
        """
        always = self.entropy_always(inputs)
        scored = (0 if inputs.flag("entropy_chunking") else _ENTROPY) if always or not reference else 0
        trains = always or inputs.number("actor_rollout_ref.actor.entropy_coeff", default=0) != 0
        trains = trains or inputs.flag("actor_rollout_ref.actor.calculate_entropy")
        copied = LOGITS if self.divides_anew(inputs) else copied_logits(inputs)
        return {"logit_width": 4 * LOGITS if trains else 2 * LOGITS, "scored_logit_width": LOGITS + scored + copied}


def copied_logits(inputs: Inputs) -> float:
    """Bytes per token and vocabulary entry of the responses' logits that padded batches copy."""
    prompt, answer = read_lengths(inputs)
    return 0.0 if inputs.flag("packing_samples") else LOGITS * answer / (prompt + answer)


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of a verl run.

    Raises:
        UsageError: the run trains with Megatron, which is not modelled.
    """
    return plan_variant(inputs, Variant())


def plan_variant(inputs: Inputs, variant: Variant) -> list[Plan]:
    """Nodes of a run of verl or of a fork: all of them alike.

    Raises:
        UsageError: the run trains with Megatron, which is not modelled.
    """
    shape = actor_shape(inputs, variant.model)
    nodes = inputs.machine.nodes or inputs.count("trainer.nnodes", default=1)
    gpus = inputs.machine.gpus_per_node or inputs.count("trainer.n_gpus_per_node", default=GPUS)
    models = _models(inputs, variant, shape, nodes * gpus)
    engine = Engine(
        shape=shape,
        local_ranks=gpus,
        tensor_parallel=inputs.count(
            "rollout.tensor_parallel_size", "worker.rollout.tensor_parallel_size", default=variant.tensor_parallel
        ),
        utilization=inputs.number("rollout.gpu_memory_utilization", default=0.5),
        sleep_level=variant.sleep_level(inputs),
        late_cache=variant.late_cache(inputs),
        swap_bytes=variant.swap_bytes(inputs),
        colocated=True,
        process="worker",
    )
    if "sglang" in str(inputs.value("actor_rollout_ref.rollout.name")):
        inputs.assume(say("SGLang's memory is assumed to be as vLLM's"))
    prompt, answer = read_lengths(inputs)
    samples = inputs.count("rollout.batch_size", default=1024) * inputs.count(
        "rollout.samples_per_prompt", "worker.rollout.n", default=1
    )
    saves = inputs.number("checkpoint.save_steps", "trainer.save_freq", default=-1) > 0
    contents = str(inputs.value("checkpoint.contents") or "")
    resumes = inputs.value("checkpoint.resume", "trainer.resume_mode") not in (None, "disable", "auto", False) or bool(
        inputs.value("trainer.load_checkpoint_path")
    )
    return make_nodes(
        inputs,
        [Placed((*models, "engine"), gpus, nodes)],
        models,
        engine,
        experience_bytes=samples * (prompt + answer) * BYTES_PER_TOKEN // nodes,
        store_bytes=find_store(inputs),
        saves=saves,
        saves_hf="hf_model" in contents,
        saves_at_end="checkpoint" if variant.saves_at_end and not saves else "",
        copies_weights=variant.copies_states,
        copies_states=variant.copies_states and not inputs.flag("trainer.save_model_only"),
        resumes=resumes,
        reward_workers=int(inputs.number("reward.num_workers", default=0))
        if "reward.num_workers" in inputs.settings
        else 0,
    )


def _other_trainer(inputs: Inputs, actor: str, strategy: str) -> Message:
    """What shows that the roles are trained by Megatron or another backend than FSDP; empty where nothing does."""
    engine = inputs.settings.get("model_engine")
    config = inputs.settings.get("config_name")
    parallel = next((s for n, s in inputs.settings.items() if n.startswith(f"{actor}.megatron.")), None)
    if strategy != "None" and not strategy.startswith(("fsdp", "$")):
        return say("{spelled} is {value}", spelled=f"{actor}.strategy", value=strategy)
    if engine is not None and not str(engine.value).startswith(
        ("dp", "fsdp", "$")
    ):  # dp: verl's name of its FSDP engine
        return say("{spelled} is {value}", spelled="model_engine", value=str(engine.value))
    if config is not None and "megatron" in str(config.value):
        return say("{spelled} is {value}", spelled="--config-name", value=str(config.value))
    return say("{spelled} is set", spelled=parallel.spelled) if parallel is not None else NOTHING


def _models(inputs: Inputs, variant: Variant, shape: Shape, world: int) -> dict[str, Model]:
    actor = variant.actor
    strategy = str(inputs.value(f"{actor}.strategy"))
    other = _other_trainer(inputs, actor, strategy)
    if other:
        raise UsageError(
            say("{other}: this trainer's memory is not modelled; the estimate knows FSDP and DeepSpeed", other=other)
        )
    sharded = int(inputs.number(f"{actor}.fsdp_config.fsdp_size", default=-1))
    lora = int(inputs.number("actor_rollout_ref.model.lora_rank", "lora_rank", default=0))
    common: dict[str, Any] = {
        "ranks": sharded if 0 < sharded < world else world,
        "local_ranks": 0,
        "backend": "fsdp2" if strategy == "fsdp2" else "fsdp1",
        "process": "worker",
    }
    tokens = _tokens(inputs, variant, world)
    width = 2 if "bf" in str(inputs.value(f"{actor}.fsdp_config.model_dtype", "fsdp_dtype") or "") else 4
    policy = strategy == "fsdp2" and inputs.flag(f"{actor}.fsdp_config.offload_policy")
    models = {
        "actor": Model(
            role="actor",
            shape=shape,
            trained=True,
            width=width,
            offload_param=inputs.flag("offload_param"),
            offload_optimizer=inputs.flag("offload_optimizer"),
            on_host=policy,
            lora_rank=lora,
            **variant.logit_widths(inputs),
            **tokens,
            **common,
        )
    }
    if variant.has_reference(inputs) and not lora:  # with LoRA the actor without its adapters is the reference
        scored = _tokens(inputs, variant, world, variant.reference_has_batches) | variant.logit_widths(
            inputs, reference=True
        )
        models["reference"] = Model(
            role="reference",
            shape=shape,
            trained=False,
            offload_param=variant.reference_offloaded(inputs),
            width=variant.reference_width(inputs),
            **scored,
            **common,
        )
    estimator = inputs.value("algorithm.adv_estimator") or variant.estimator
    if estimator == "gae":
        critic = inputs.shape_or(shape, "critic.model.path", "worker.critic.model.model_path", of=say("the critic"))
        models["critic"] = Model(
            role="critic",
            shape=critic,
            trained=True,
            width=4,
            value_head=True,
            saved=False,
            offload_param=inputs.flag("critic.offload_param"),
            offload_optimizer=inputs.flag("critic.offload_optimizer"),
            **tokens,
            **common,
        )
    if inputs.flag("reward_model.enable") or inputs.flag("reward.reward_model.enable"):
        reward = inputs.shape_or(
            shape, "reward_model.model.path", "reward.reward_model.model_path", of=say("the reward model")
        )
        models["reward"] = Model(
            role="reward", shape=reward, trained=False, offload_param=True, width=2, value_head=True, **tokens, **common
        )
    return models


def _per_gpu(inputs: Inputs, name: str, ranks: int, default: int) -> int:
    """Sequences of a pass on one GPU; the older names count those of all GPUs (verl, EasyR1 says per device)."""
    own = inputs.settings.get(name)
    count = inputs.count(name, default=default)
    every = own is not None and "per_gpu" not in own.spelled and "per_device" not in own.spelled
    return max(count // ranks, 1) if every else count


def _tokens(inputs: Inputs, variant: Variant, world: int, reference: bool = False) -> dict[str, Any]:
    prompt, answer = read_lengths(inputs)
    tokens, parallel = prompt + answer, inputs.count("sequence_parallel_size", default=1)
    sequences = _per_gpu(inputs, "train.micro_batch_size", world, 1)
    scored = _per_gpu(
        inputs, "ref.logprob_micro_batch_size" if reference else "logprob.micro_batch_size", world, sequences
    )
    if inputs.flag("train.dynamic_batch") and variant.packs_tokens:
        most = inputs.count("train.max_tokens", default=_TOKENS)
        tokens = max(most, -(-tokens // parallel)) * parallel
        sequences, scored = 1, max(inputs.count("logprob.max_tokens", default=most) // most, 1)
    found = {
        "sequences": sequences,
        "scored": scored,
        "tokens": tokens,
        "parallel": parallel,
        "recompute": inputs.flag("gradient_checkpointing", default=True),
    }
    return found | ({"answer_tokens": 0} if inputs.flag("fused_logits") else {})
