"""The nouns of a picture: what was in use over time, in panels that share one axis, at several levels of detail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from rlhfdoctor.i18n.message import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """Samples of a panel: at each time one value for each of its names. Every point is a real sample, never a mean."""

    times_s: Sequence[float]
    """Seconds since the chart's begin, ascending."""
    values: Sequence[Sequence[int]]
    """For each name its bytes at these times; -1: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit as a line in a panel."""

    name: Message
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """Memory by one division: by role, by kind, or by GPU."""

    kind: Literal["role", "kind", "gpu"]
    title: Message
    stacked: bool
    names: tuple[Message, ...]
    bounds: tuple[Bound, ...]
    levels: tuple[Level, ...]
    """From coarse to fine; the last one holds every sample that was read."""

    @property
    def top_bytes(self) -> int:
        """The highest point that is drawn, limits left out; each level of a stack has it."""
        if self.stacked:
            return max(
                (sum(v for v in column if v > 0) for column in zip(*self.levels[0].values, strict=True)), default=0
            )
        return max((max(row, default=0) for row in self.levels[-1].values), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A phase from its mark to the next one."""

    phase: str
    begin_s: float
    """Since the chart's begin, as `end_s`."""
    end_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """Something that happened at one time."""

    at_s: float
    """Since the chart's begin."""
    kind: Literal["death", "kill", "alarm", "step"]
    says: Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """A process among those that held most at the end, by what is charged to it alone or shared: anon and shmem."""

    pid: int | None
    role: str
    """Empty: unknown."""
    command: str
    held_bytes: int
    """At its last sample."""
    peak_bytes: int
    growth_bytes_per_s: float | None
    """Over its last five minutes; None where it was seen for less than ten seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLine:
    """Where tensors that held memory of a GPU were allocated."""

    text: str
    """`FILE:LINE FUNCTION`, the file by the end of its path."""
    held_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuSnapshot:
    """What lines of code held the GPU of one process, by torch's own allocator."""

    pid: int | None
    role: str
    """Empty: unknown."""
    at_s: float
    """Since the chart's begin."""
    ran_out: bool
    """Whether torch ran out of memory at this moment; else the GPU was nearly full."""
    held_bytes: int
    lines: tuple[CodeLine, ...]
    """The largest first; tensors without a known line are not among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """The memory of one node over the run."""

    node: str
    begin_s: float
    """Unix seconds."""
    length_s: float
    panels: tuple[Panel, ...]
    spans: tuple[Span, ...] = ()
    marks: tuple[Mark, ...] = ()
    holders: tuple[Holder, ...] = ()
    """The largest processes that were alive at the last sample, the largest first."""
    snapshots: tuple[GpuSnapshot, ...] = ()
    """The last one of each process, those that ran out of memory first."""
    notes: tuple[Message, ...] = field(default=())
    """What the picture leaves out, in sentences."""
