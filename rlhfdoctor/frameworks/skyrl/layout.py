"""SkyRL: a Ray process a GPU of each role, packed into nodes; FSDP1 or FSDP2 (skyrl-train 0.1.0 to skyrl 0.3.0)."""

from __future__ import annotations

from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import BYTES_PER_TOKEN, actor_shape, find_store
from rlhfdoctor.budget.placement import Placed, engine_groups, make_nodes
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say

_LOGITS = (4, 2)
"""Bytes per token and vocabulary entry in training and scoring: bf16 logits, divided in place; flash-attn's cross
entropy and a gradient as wide; entropy in chunks (model_wrapper.py:325-360, torch_utils.py at skyrl-train 0.3.0). Read,
not measured."""
_GROUPS = {"actor": "policy", "critic": "critic", "reference": "ref"}


def make_plans(inputs: Inputs) -> list[Plan]:
    """Nodes of a SkyRL run.

    Raises:
        UsageError: it trains with Megatron or DeepSpeed, which this layout does not model.
    """
    strategy = str(inputs.value("trainer.strategy") or "fsdp2")
    if not strategy.startswith("fsdp"):
        raise UsageError(
            say("trainer.strategy={strategy}: its memory is not modelled; the estimate knows FSDP", strategy=strategy)
        )
    shape = actor_shape(inputs, "trainer.policy.model.path")
    wanted = _roles(inputs)
    together = inputs.flag("colocate_all", default=True)
    sizes = {role: _size(inputs, role) for role in wanted}
    models = {role: _model(inputs, role, shape, sizes[role], strategy, together) for role in wanted}
    engine = _engine(inputs, shape, together)
    prompt, answer, samples = *_lengths(inputs), inputs.count("rollout.samples_per_prompt", default=5)
    return make_nodes(
        inputs,
        _groups(inputs, wanted, sizes, engine, together),
        models,
        engine,
        store_bytes=find_store(inputs),
        experience_bytes=inputs.count("rollout.batch_size", default=1024)
        * samples
        * (prompt + answer)
        * BYTES_PER_TOKEN
        // max(sizes["actor"][0], 1),
        saves=inputs.number("checkpoint.save_steps", default=10) > 0,
        saves_hf=inputs.number("trainer.hf_save_interval", default=-1) > 0,
        saves_at_end="checkpoint",
        copies_states=_is_fsdp1(inputs, strategy),
        resumes=str(inputs.value("checkpoint.resume")) == "from_path",
        loaders=int(inputs.number("dataloader_num_workers", default=8)),
    )


def _roles(inputs: Inputs) -> list[str]:
    """Roles of the run: a critic if it has a model, a reference if a KL term requires it."""
    keeps = inputs.flag("use_kl_loss", default=True) or inputs.flag("trainer.algorithm.use_kl_in_reward")
    return [
        "actor",
        *(["critic"] if inputs.settings.get("trainer.critic.model.path") else []),
        *(["reference"] if keeps else []),
    ]


def _size(inputs: Inputs, role: str) -> tuple[int, int]:
    group = f"trainer.placement.{_GROUPS[role]}"
    nodes = inputs.machine.nodes or inputs.count(f"{group}_num_nodes", default=1)
    own = inputs.settings.get(f"{group}_num_gpus_per_node")
    if own is not None and "$" in str(own.value) and inputs.machine.gpus_per_node:
        inputs.assume(
            say(
                "{spelled} is {value}, an unresolved shell variable; using --gpus-per-node",
                spelled=own.spelled,
                value=own.value,
            )
        )
        return nodes, inputs.machine.gpus_per_node
    return nodes, inputs.count(f"{group}_num_gpus_per_node", default=4 if inputs.framework_before("0.3.1") else 1)


def _is_fsdp1(inputs: Inputs, strategy: str) -> bool:
    return strategy == "fsdp" and inputs.framework_before("1!0.3.0")


def _model(inputs: Inputs, role: str, shape: Shape, size: tuple[int, int], strategy: str, together: bool) -> Model:
    group = _GROUPS[role]
    trained = role != "reference"
    prefix = f"trainer.{group}"
    own = inputs.shape_or(shape, f"{prefix}.model.path", of=say("the critic")) if role == "critic" else shape
    on_host = inputs.flag(
        {"actor": "fsdp_cpu_offload", "critic": "critic.fsdp_cpu_offload", "reference": "ref.cpu_offload"}[role]
    )
    offloads = (
        together or (inputs.flag("train.colocate_actor_ref", default=True) and role != "critic")
    ) and not on_host
    states = inputs.flag("offload_optimizer" if role == "actor" else "critic.offload_optimizer", default=True)
    cap = int(inputs.number("train.max_tokens", default=-1))
    prompt, answer = _lengths(inputs)
    common: dict[str, Any] = {
        "sequences": inputs.count("train.micro_batch_size", default=1),
        "scored": inputs.count("logprob.micro_batch_size", default=1),
        "tokens": prompt + answer,
    }
    if cap > 0:  # a soft cap: a longer sequence exceeds it as a batch of its own
        common = {"sequences": 1, "scored": 1, "tokens": max(cap, prompt + answer)}
    return Model(
        role=role,
        shape=own,
        trained=trained,
        ranks=size[0] * size[1],
        local_ranks=0,
        backend="fsdp1" if _is_fsdp1(inputs, strategy) else "fsdp2",
        process=role,
        width=4 if trained or not inputs.flag("trainer.bf16", default=True) else 2,
        on_host=on_host and trained,
        offload_param=offloads or (on_host and not trained),
        offload_optimizer=trained and offloads and states,
        value_head=role == "critic",
        saved=role == "actor",
        parallel=inputs.count("sequence_parallel_size", default=1),
        recompute=inputs.flag("gradient_checkpointing", default=True),
        lora_rank=int(inputs.number("lora_rank", default=0)) if trained else 0,
        concurrent=not together,
        logit_width=_LOGITS[0],
        scored_logit_width=_LOGITS[1],
        **common,
    )


def _engine(inputs: Inputs, shape: Shape, together: bool) -> Engine:
    level = (
        0 if not together else 1 if inputs.framework_before("0.2.0") or inputs.number("lora_rank", default=0) > 0 else 2
    )
    return Engine(
        shape=shape,
        local_ranks=0,
        tensor_parallel=inputs.count("rollout.tensor_parallel_size", default=1),
        utilization=inputs.number("rollout.gpu_memory_utilization", default=0.8),
        sleep_level=level,
        late_cache=together,
        colocated=together,
    )


def _groups(
    inputs: Inputs, wanted: list[str], sizes: dict[str, tuple[int, int]], engine: Engine, together: bool
) -> list[Placed]:
    if together:
        return [Placed((*wanted, "engine"), sizes["actor"][1], sizes["actor"][0])]
    pair = (
        ("actor", "reference")
        if "reference" in wanted and inputs.flag("train.colocate_actor_ref", default=True)
        else ("actor",)
    )
    sets = [pair, *((role,) for role in wanted if role not in pair)]
    gpus = inputs.count("rollout.num_engines", default=1) * engine.tensor_parallel
    per = inputs.machine.gpus_per_node or max(8, engine.tensor_parallel)
    return [Placed(roles, sizes[roles[0]][1], sizes[roles[0]][0]) for roles in sets] + engine_groups(gpus, per)


def _lengths(inputs: Inputs) -> tuple[int, int]:
    """Prompt (of the longest turn if there are several) and response."""
    turns = inputs.number("generator.max_turns", default=1)
    longest = inputs.value("generator.max_input_length") if turns > 1 else None
    prompt = inputs.count("max_prompt_length", default=512)
    return (longest if isinstance(longest, int) else prompt), inputs.count("max_response_length", default=1024)
