"""Faults that are visible in the configuration alone: traps that do not depend on the memory footprint."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.engine import weights_of
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout import find_layout
from rlhfdoctor.budget.own_hazards import find_own_hazards
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.types import Hazard
from rlhfdoctor.i18n.message import NOTHING, say
from rlhfdoctor.units import GIB
from rlhfdoctor.vocabulary import TRAIT

_MUCH_SWAP_BYTES = 8 * GIB


def find_hazards(inputs: Inputs, plan: Plan) -> Iterator[Hazard]:
    """Each trap that these settings walk into at these versions: the framework's own first."""
    yield from find_own_hazards(inputs)
    own = find_layout(inputs.framework.name if inputs.framework is not None else "")
    if own is not None and own.find_hazards is not None:
        yield from own.find_hazards(inputs, plan)
    yield from _churn(inputs, plan)
    yield from _share(plan)
    if plan.resumes:
        yield from _resume(inputs, plan)
    if (
        plan.engine is not None
        and plan.engine.sleep_level
        and inputs.before("vllm", "0.20")
        and not inputs.has(TRAIT.switches_expandable_segments)
    ):
        for variable in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
            if "expandable_segments:True" in str(
                inputs.settings[variable].value if variable in inputs.settings else ""
            ):
                yield Hazard(
                    phase="load",
                    cause="gpu-rollout-reservation",
                    says=say(
                        "{variable} has expandable_segments:True, which vLLM's sleep mode refuses with an "
                        "AssertionError (0.8.5 to 0.19.1)",
                        variable=variable,
                    ),
                )


def _churn(inputs: Inputs, plan: Plan) -> Iterator[Hazard]:
    engine = plan.engine
    if (
        engine is not None
        and engine.swap_bytes > _MUCH_SWAP_BYTES
        and inputs.flag("rollout.free_cache_engine", default=inputs.has(TRAIT.frees_cache_engine))
    ):
        yield churn(engine.local_ranks, engine.swap_bytes)


def churn(count: int, size: int) -> Hazard:
    """Swap blocks of this many processes, dropped and rebuilt around every rollout."""
    return Hazard(
        phase="rollout",
        cause="host-rollout-cache-churn",
        says=say(
            "{count} x {size:bytes} of swap blocks are dropped and built anew, page-locked, around every "
            "rollout; what was freed stays locked in torch's cache whenever a size changes",
            count=count,
            size=size,
        ),
    )


def _resume(inputs: Inputs, plan: Plan) -> Iterator[Hazard]:
    """Ways to read a checkpoint that DeepSpeed offers and that do not work everywhere.

    runtime/engine.py `_load_zero_checkpoint` and zero/stage3.py `load_state_dict`, 0.10.1 to 0.19.8: a rank waits for
    the one before it unless its LOCAL_RANK is 0, and every rank but one sends to the next when it has read its shard.
    That ranks of LOCAL_RANK 0 end in a time-out is seen in tests/live/test_zero_turns.py. Universal checkpoints:
    DeepSpeed issues 7584 and 7601, both repaired in 0.18.0.
    """
    trained = [model for model in plan.models if model.trained and model.backend == "deepspeed"]
    third = [model for model in trained if model.stage == 3]
    spread = any(model.ranks > model.local_ranks for model in third)
    if inputs.flag("zero.pipeline_loading_checkpoint"):
        if any(model.stage in (1, 2) for model in trained):
            yield Hazard(
                phase="resume",
                cause="other-software-error",
                says=say(
                    "DeepSpeed refuses pipeline_loading_checkpoint below ZeRO stage 3 (Only stage3 support for "
                    "pipeline checkpoint loading)"
                ),
            )
        why = (
            say("a rank that reads a universal checkpoint never sends")
            if plan.reads == "universal"
            else say("every Ray actor has LOCAL_RANK 0")
            if not plan.launched
            else say("the first rank of the next node, of LOCAL_RANK 0, does not listen")
            if spread
            else NOTHING
        )
        if why and any(model.ranks > 1 for model in third):
            yield Hazard(
                phase="resume",
                cause="other-version-regression",
                says=say(
                    "pipeline_loading_checkpoint makes ranks wait for each other until the time-out: {why}", why=why
                ),
            )
    if plan.reads == "universal" and third and inputs.before("deepspeed", "0.18.0"):
        also = say(", and each node but the first loads the shards of the first") if spread else NOTHING
        yield Hazard(
            phase="resume",
            cause="other-software-error",
            says=say(
                "before DeepSpeed 0.18.0 a ZeRO-3 checkpoint of more than one sub-group cannot be converted to a "
                "universal one{also}",
                also=also,
            ),
        )


def _share(plan: Plan) -> Iterator[Hazard]:
    """An engine whose share of the GPU does not hold its weights ends at start, however large the GPU is."""
    engine = plan.engine
    if engine is None or engine.utilization is None or not plan.gpu_bytes:
        return
    weights, claimed = weights_of(engine), int(plan.gpu_bytes * engine.utilization)
    if weights >= claimed:
        yield Hazard(
            phase="load",
            cause="gpu-kv-cache-too-small",
            says=say(
                "the engine's weights take {weights:bytes} of a GPU at tensor parallel {tensor_parallel}, and "
                "its share of {utilization:.0%} is {claimed:bytes}: no room for a KV cache",
                weights=weights,
                tensor_parallel=engine.tensor_parallel,
                utilization=engine.utilization,
                claimed=claimed,
            ),
        )
