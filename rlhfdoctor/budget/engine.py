"""What rollout engines (vLLM) hold: their share of a GPU, copies of weights while they sleep, swap blocks.

Sleep level 1 copies every weight segment to page-locked memory (vllm/device_allocator/cumem.py); torch's allocator
keeps those blocks. Swap blocks are one page-locked tensor per layer, up to vLLM 0.7.
KV bytes: settings_notes section 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.budget.needs import ALL, make_need
from rlhfdoctor.budget.pinned import ceil_power_of_two
from rlhfdoctor.budget.plan import Engine
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import say

_AWAKE = ("resume", "rollout", "weight_sync")


def engine_needs(engine: Engine, gpu_bytes: int | None) -> Iterator[Need]:
    """Needs of one worker of the engine."""
    shape = engine.shape
    phases = _AWAKE if engine.sleep_level else ALL
    weights = weights_of(engine)
    if engine.sleep_level and engine.late_cache:
        phases = tuple(phase for phase in phases if phase != "weight_sync")
        yield make_need(engine, "gpu", ("weight_sync",), weights, say("weights, before there is a KV cache"))
    if engine.utilization is not None and gpu_bytes is not None:
        claimed = int(gpu_bytes * engine.utilization)
        what = say(
            "{utilization:.0%} of the GPU: weights, KV cache and the rest of the engine", utilization=engine.utilization
        )
        if weights > claimed:
            claimed, what = (
                weights,
                say("weights, which its share of {share:.0%} does not hold", share=engine.utilization),
            )
        yield make_need(engine, "gpu", phases, claimed, what, exact=True)
    else:
        yield make_need(engine, "gpu", phases, weights, say("weights (and a KV cache, by the GPU's size)"))
        yield make_need(engine, "gpu", phases, engine.cache_bytes or 0, say("KV cache"))
    if engine.sleep_level == 1:
        what = say("copy of the weights while it sleeps (level 1)")
        yield make_need(engine, "host", ALL, weights, what, pinned=True, held_for="sleep copy")
    if engine.swap_bytes:
        blocks = shape.layers * ceil_power_of_two(engine.swap_bytes // shape.layers)
        yield make_need(
            engine,
            "host",
            ALL,
            blocks,
            say("swap blocks, {layers} buffers", layers=shape.layers),
            pinned=True,
            held_for="swap blocks",
            asked=engine.swap_bytes,
        )


def weights_of(engine: Engine) -> int:
    """Bytes of its weights on one GPU."""
    return engine.width * engine.shape.parameters // engine.tensor_parallel
