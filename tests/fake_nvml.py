"""A library with the calls of NVML that are used, and devices that a test describes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace

NOT_AVAILABLE = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE as an unsigned long long."""


class FakeError(Exception):
    """NVMLError of the fake library."""


@dataclass
class FakeGpu:
    """One device or MIG instance; `fails` names the calls that raise for it."""

    name: str | bytes = "NVIDIA H200"
    total: int | None = 144 << 30
    used: int | None = 20 << 30
    busy_percent: int = 75
    processes: Sequence[tuple[int, int | None]] = ()
    instances: Sequence[FakeGpu | None] = ()
    """MIG instances; None: a slot without one."""
    fails: Mapping[str, str] = field(default_factory=dict)


class FakeNvml:
    """NVML with these devices; `fails` names the calls that raise for the library as a whole."""

    NVMLError = FakeError

    def __init__(self, *gpus: FakeGpu, fails: Mapping[str, str] | None = None) -> None:
        self.gpus, self.fails = gpus, dict(fails or {})

    def _check(self, call: str, gpu: FakeGpu | None = None) -> None:
        fails = self.fails if gpu is None else gpu.fails
        if call in fails:
            raise FakeError(fails[call])

    def nvmlInit(self) -> None:
        self._check("nvmlInit")

    def nvmlDeviceGetCount(self) -> int:
        self._check("nvmlDeviceGetCount")
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        self._check("nvmlDeviceGetHandleByIndex", self.gpus[index])
        return self.gpus[index]

    def nvmlDeviceGetMigMode(self, gpu: FakeGpu) -> tuple[int, int]:
        self._check("nvmlDeviceGetMigMode", gpu)
        return int(bool(gpu.instances)), int(bool(gpu.instances))

    def nvmlDeviceGetMaxMigDeviceCount(self, gpu: FakeGpu) -> int:
        self._check("nvmlDeviceGetMaxMigDeviceCount", gpu)
        return len(gpu.instances)

    def nvmlDeviceGetMigDeviceHandleByIndex(self, gpu: FakeGpu, index: int) -> FakeGpu:
        found = gpu.instances[index]
        if found is None:
            raise FakeError("Not Found")
        return found

    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> SimpleNamespace:
        self._check("nvmlDeviceGetMemoryInfo", gpu)
        return SimpleNamespace(total=gpu.total, used=gpu.used, free=0)

    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> SimpleNamespace:
        self._check("nvmlDeviceGetUtilizationRates", gpu)
        return SimpleNamespace(gpu=gpu.busy_percent, memory=3)

    def nvmlDeviceGetName(self, gpu: FakeGpu) -> str | bytes:
        self._check("nvmlDeviceGetName", gpu)
        return gpu.name

    def nvmlDeviceGetComputeRunningProcesses(self, gpu: FakeGpu) -> list[SimpleNamespace]:
        self._check("nvmlDeviceGetComputeRunningProcesses", gpu)
        return [SimpleNamespace(pid=pid, usedGpuMemory=used) for pid, used in gpu.processes]
