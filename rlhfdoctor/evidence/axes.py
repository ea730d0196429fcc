"""Facts about a death -> the four axes of an incident."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeVar, get_args

from rlhfdoctor.axes import Axes, Consumer, Course, Limit, LimitHit, Moment, Shape
from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.explanation import Explanation
from rlhfdoctor.types import Death
from rlhfdoctor.vocabulary import FACT
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import Killer

_BOUND: Final = ("CONSTRAINT_MEMORY_POLICY", "CONSTRAINT_CPUSET")
"""The kernel's words for memory that a policy or a cpuset leaves to a process (mm/oom_kill.c)."""
_SPIKE_RATIO = 0.15
"""Judgement: a rise by this share of the limit within the last phase is a spike."""
_LIMITS: Mapping[Killer, LimitHit] = {
    "kernel-oom-cgroup": "cgroup",
    "kernel-oom-node": "node",
    "ray-memory-monitor": "ray",
    "cuda-oom": "gpu",
    "object-store-full": "object store",
}
AnyValue = TypeVar("AnyValue", int, float, str)


def place_on_axes(death: Death | None, facts: Facts, explained: Explanation | None) -> Axes:
    """What the facts say of each axis; empty where no resource ran out."""
    limit = _limit(death, facts)
    if death is None or limit is None:
        return Axes()
    return Axes(
        limit=limit,
        consumer=_consumer(death, facts, explained) if limit.name in ("cgroup", "node", "numa node", "ray") else None,
        moment=_moment(death, facts),
        course=_course(death, facts),
    )


def _limit(death: Death | None, facts: Facts) -> Limit | None:
    if death is None:
        return None
    name = _LIMITS.get(death.killer)
    if death.killer == "sigbus" and facts.evidence.get(FACT.shm.full_ratio):
        name = "shm"
    if name is None and _known(facts, FACT.trace.thrashed_s, float) is not None:
        name = "cgroup"  # full until it was killed externally
    if name == "node" and _known(facts, FACT.kernel.constraint, str) in _BOUND:
        name = "numa node"
    if name is None:
        return None
    size: Mapping[LimitHit, Fact] = {
        "cgroup": FACT.host.limit_bytes,
        "node": FACT.host.total_bytes,
        "ray": FACT.ray.total_bytes,
        "gpu": FACT.cuda.total_bytes,
        "object store": FACT.store.capacity_bytes,
        "shm": FACT.shm.size_bytes,
    }
    return Limit(
        name=name,
        bytes=_known(facts, size[name], int) if name in size else None,
        threshold_ratio=_known(facts, FACT.ray.threshold_ratio, float) if name == "ray" else None,
        request_bytes=_known(facts, FACT.cuda.request_bytes, int) if name == "gpu" else None,
        node_bytes=_known(facts, FACT.host.total_bytes, int),
        level=_known(facts, FACT.kernel.limit_level, str) if name == "cgroup" else None,
    )


def _consumer(death: Death, facts: Facts, explained: Explanation | None) -> Consumer | None:
    """The processes of a role that held most, or the one process that was measured."""
    if explained is not None:
        row, likely = explained.rows[0], explained.likely
        return Consumer(
            role=row.role,
            name=row.name,
            count=row.count,
            bytes=row.bytes,
            total_bytes=explained.total_bytes,
            component=likely.component if likely is not None else None,
        )
    held = death.culprit if death.culprit is not None and death.culprit.bytes else death.victim
    if not held.bytes:
        return None
    same = held.pid == death.victim.pid
    return Consumer(
        role=held.role,
        name=held.name,
        pid=held.pid,
        bytes=held.bytes,
        locked_bytes=_known(facts, FACT.kernel.victim_shmem_bytes, int) if same else None,
        total_bytes=_known(facts, FACT.kernel.table_bytes, int) or _known(facts, FACT.ray.top_bytes, int),
    )


def _moment(death: Death, facts: Facts) -> Moment | None:
    peak = _known(facts, FACT.trace.peak_phase, str)
    if death.phase is None and death.step is None and peak is None:
        return None
    return Moment(phase=death.phase, step=death.step, peak_phase=peak)


def _course(death: Death, facts: Facts) -> Course | None:
    on_host = death.killer != "cuda-oom"
    recorded = _known(facts, FACT.trace.growth, str) if on_host else None
    shape = next((shape for shape in get_args(Shape) if shape == recorded), None)
    rise = _known(facts, FACT.trace.last_phase_rise_ratio, float)
    if on_host and shape in (None, "level") and rise is not None and rise >= _SPIKE_RATIO:
        shape = "spike"
    slope = FACT.host.slope_bytes_per_step if on_host else FACT.gpu.slope_bytes_per_step
    rising = FACT.host.rising_steps_ratio if on_host else FACT.gpu.rising_steps_ratio
    per_step = _known(facts, slope, int)
    if shape is None and per_step is None:
        return None
    return Course(shape=shape, bytes_per_step=per_step, rising_ratio=_known(facts, rising, float))


def _known(facts: Facts, name: Fact, of: type[AnyValue]) -> AnyValue | None:
    """The value of a fact in this type; None if it is unknown or of another one."""
    found = facts.evidence.get(name)
    value = found.value if found is not None else None
    if isinstance(value, bool) or not isinstance(value, int | float | str) or isinstance(value, str) != (of is str):
        return None
    return of(value)
