"""GPUs as every vendor's library can report them: devices, processes on them, the form of a source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from rlhfdoctor.types import Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU or MIG instance at one moment."""

    index: int
    name: str
    total_bytes: int | None
    used_bytes: int | None
    """All processes and the driver's own."""
    busy_ratio: float | None
    mig: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """What one process holds on one GPU."""

    gpu: int
    pid: int
    """In the host's namespace."""
    used_bytes: int | None
    """None where the driver does not say (WSL, MIG without rights)."""


GpuReading: TypeAlias = tuple[list[Gpu], list[GpuProcess], list[Gap]]
"""All devices, their processes, and what could not be read."""


class GpuSource(Protocol):
    """A vendor's library, opened once; without it ImportError or OSError with the cause and the next step."""

    def read(self) -> GpuReading:
        """What its devices hold now; never raises."""
        ...
