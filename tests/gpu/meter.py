"""Memory of a device around a computation: torch's allocator on CUDA, the process's resident pages on a CPU.

The kernel's high-water mark is set back by writing 5 to /proc/self/clear_refs (proc(5)); it counts what malloc keeps,
too, so that figures of a CPU are for trying the steps only.
"""

from __future__ import annotations

import gc
import os
from pathlib import Path

from rlhfdoctor.sources.procfs import ProcReader, Status
from tests.gpu.step import Device


class Meter:
    """Bytes above those at its start."""

    def __init__(self, device: Device) -> None:
        self._device = device
        gc.collect()
        if device == "cuda":
            import torch

            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        else:
            Path("/proc/self/clear_refs").write_text("5")
        self._base = self._now()

    def held(self) -> int:
        """Now."""
        return self._now() - self._base

    def peak(self) -> int:
        """The highest since the start."""
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()
            return torch.cuda.max_memory_allocated() - self._base
        return (_status().peak_bytes or 0) - self._base

    def _now(self) -> int:
        if self._device == "cuda":
            import torch

            torch.cuda.synchronize()
            return torch.cuda.memory_allocated()
        status = _status()
        return (status.rss_anon_bytes or 0) + (status.rss_file_bytes or 0) + (status.rss_shmem_bytes or 0)


def _status() -> Status:
    reader = ProcReader("", os.getpid())
    try:
        found = reader.status()
    finally:
        reader.close()
    assert found is not None
    return found
