"""An incident on its four axes: the limit that was hit, the consumer that filled it, the moment, the course.

They are no rivals: a container's limit was full, an offloaded optimizer filled most of it, and the peak fell into a
save. Sizes are bytes, shares 0 to 1; None: unknown.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from rlhfdoctor.vocabulary.run import Component, Phase

LimitHit: TypeAlias = Literal["cgroup", "node", "numa node", "ray", "gpu", "object store", "shm"]
Shape: TypeAlias = Literal["level", "slope", "staircase", "sawtooth", "spike"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """The limit that was hit."""

    name: LimitHit
    bytes: int | None = None
    """Its size; of Ray's monitor the memory that its threshold is a share of."""
    threshold_ratio: float | None = None
    """Of Ray's monitor."""
    request_bytes: int | None = None
    """Of a GPU the request that failed."""
    node_bytes: int | None = None
    level: str | None = None
    """The cgroup, as the kernel names it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """Whose processes held most of the memory."""

    role: str | None
    name: str | None
    pid: int | None = None
    count: int = 1
    """Processes of that kind."""
    bytes: int | None = None
    locked_bytes: int | None = None
    """Of it page-locked or shared."""
    total_bytes: int | None = None
    """What all processes held that were measured."""
    component: Component | None = None
    """The part of its budget that explains most of it, where that is certain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """When it happened, in the words of a training run."""

    phase: Phase | None
    step: int | None
    peak_phase: str | None = None
    """Phase in which the recorder saw the peak."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """How memory came to its peak."""

    shape: Shape | None
    bytes_per_step: int | None = None
    rising_ratio: float | None = None
    """Share of the steps in which it rose."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause with its share of an axis."""

    cause: str
    share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """What is known of each; None where nothing is."""

    limit: Limit | None = None
    consumer: Consumer | None = None
    moment: Moment | None = None
    course: Course | None = None
    candidates: dict[str, tuple[Candidate, ...]] = field(default_factory=dict)
    """Axis -> the causes that compete on it; what is missing to one is the share of something else."""
