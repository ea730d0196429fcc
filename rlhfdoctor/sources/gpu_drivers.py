"""Which GPUs a machine has, by the device files of their drivers; a vendor is one row with what reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass

from rlhfdoctor.sources.gpus import GpuSource
from rlhfdoctor.sources.nvml import Nvml


@dataclass(frozen=True, slots=True)
class Driver:
    """A vendor's driver."""

    name: str
    devices: tuple[str, ...]
    """Any of these files shows that the driver is loaded."""
    open: Callable[[], GpuSource]
    """Raises ImportError or OSError with the cause."""


def _unread(what: str, command: str) -> Callable[[], GpuSource]:
    """For devices that no source reads: the recording says so, instead of looking like a machine without GPUs."""

    def refuse() -> GpuSource:
        raise OSError(f"{what} memory is not read by this version; {command} shows it")

    return refuse


DRIVERS = (
    Driver("GPUs", ("/dev/nvidiactl", "/dev/dxg"), Nvml),
    Driver("AMD GPUs", ("/dev/kfd",), _unread("AMD GPU", "rocm-smi --showmeminfo vram")),
    Driver("Ascend NPUs", ("/dev/davinci_manager",), _unread("Ascend NPU", "npu-smi info")),
)


def find_drivers(root: str = "") -> list[Driver]:
    """The drivers that are loaded on this machine."""
    return [driver for driver in DRIVERS if any(os.path.exists(root + device) for device in driver.devices)]
