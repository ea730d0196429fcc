"""What belongs to no model: processes themselves, driver, Ray, object store, loaders, reward workers.

The figures for CPU were measured with the bundled trainer (Python 3.11, torch 2.13, DeepSpeed 0.19.8, Ray 2.60,
without pyarrow: Ray imports it into every worker that finds it, some 80 MB more each). Those for CUDA processes are
assumptions, marked as such in every estimate, and corrected by a trace if there is one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlhfdoctor.budget.needs import ALL
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.types import Need
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.units import GIB


@dataclass(frozen=True, slots=True)
class Constants:
    """Bytes of one process, without what it computes with."""

    rank: int
    """Of weights in fp32."""
    low_precision: int
    """Additional from its first pass on if it computes in bf16 (oneDNN's kernels on CPU)."""
    training: int
    """Additional for a rank that trains: optimizer, autograd, communication."""
    engine: int
    driver: int
    services: int
    """raylet, GCS, agents and the dashboard of a node: anonymous pages, and what the kernel keeps for them."""
    worker: int
    """A process of the reward function: it imports, and computes nothing on a device."""
    loader: int
    """What a worker of the data loader, which is a fork, does not share with its parent; a data set that it copies
    comes on top."""


ON_CPU = Constants(
    rank=320 * 10**6,
    low_precision=50 * 10**6,
    training=70 * 10**6,
    engine=900 * 10**6,
    driver=202 * 10**6,
    services=320 * 10**6,
    worker=300 * 10**6,
    loader=30 * 10**6,
)
ON_CUDA = Constants(
    rank=3 * GIB,
    low_precision=0,
    training=GIB,
    engine=4 * GIB,
    driver=GIB,
    services=2 * GIB,
    worker=GIB // 2,
    loader=GIB // 8,
)


def process_needs(plan: Plan) -> Iterator[Need]:
    """Processes of the node, and Ray's object store."""
    base = ON_CUDA if plan.device == "cuda" else ON_CPU
    seen: set[str] = set()
    for model in plan.models:
        if model.process not in seen:
            seen.add(model.process)
            trains = any(m.trained for m in plan.models if m.process == model.process)
            what = (
                say("the processes themselves: Python, torch, communication, CUDA")
                if plan.device == "cuda"
                else say("the processes themselves: Python, torch, communication")
            )
            size = base.rank + base.training * trains + (plan.imports if plan.device == "cpu" else 0)
            yield _on_host(model.role, model.process, size, model.local_ranks, what)
            if model.width == 2 and base.low_precision:
                what = say("kernels for bf16, from the first pass on")
                yield _on_host(
                    model.role, model.process, base.low_precision, model.local_ranks, what, phases=_COMPUTING
                )
    engine = plan.engine
    if engine is not None and engine.process not in seen:
        yield _on_host(
            "rollout engine", engine.process, base.engine, engine.local_ranks, say("the engine's processes themselves")
        )
    if plan.ray and plan.driver:
        yield _on_host("driver", "driver", base.driver, 1, say("the driver"))
    if plan.ray:
        yield _on_host("Ray", "ray", base.services, 1, say("raylet, GCS and agents"))
    if plan.device == "cuda":
        yield from _on_gpus(plan)
    if plan.loaders:
        yield _on_host(
            "data loader",
            "loader",
            base.loader,
            plan.loaders,
            say("workers of the data loader, without what they share"),
        )
    if plan.reward_workers:
        yield _on_host("reward worker", "reward worker", base.worker, plan.reward_workers, say("reward workers"))
    if plan.experience_bytes:
        size = min(plan.experience_bytes, plan.store_bytes or plan.experience_bytes)
        phases = ("rollout", "score", "update")
        what = say("experience of a step in the object store")
        yield Need(
            role="Ray",
            process="plasma",
            place="shm",
            phases=phases,
            bytes=size,
            count=1,
            what=what,
            held_for="object store",
        )


_COMPUTING = tuple(phase for phase in ALL if phase not in ("load", "resume"))


def _on_host(role: str, process: str, size: int, count: int, what: Message, *, phases: tuple[str, ...] = ALL) -> Need:
    """Host memory of some processes, throughout the run unless given."""
    return Need(
        role=role,
        process=process,
        place="host",
        phases=phases,
        bytes=size,
        count=count,
        what=what,
        held_for="process",
    )


def _on_gpus(plan: Plan) -> Iterator[Need]:
    """What each process takes of its GPU before it computes: the CUDA context, NCCL's buffers."""
    owners = {(model.process, model.gpus): model.role for model in plan.models}
    if (
        plan.engine is not None
        and plan.engine.process not in {process for process, _ in owners}
        and plan.gpu_bytes is None
    ):
        owners[plan.engine.process, plan.engine.gpus] = "rollout engine"
    for (process, gpus), role in owners.items():
        yield Need(
            role=role,
            process=process,
            place="gpu",
            phases=ALL,
            bytes=ON_GPU,
            count=1,
            what=say("CUDA context and NCCL's buffers"),
            held_for="process",
            gpus=gpus,
        )


ON_GPU = GIB
"""Assumed, for each process on a GPU."""
