"""NVML: memory of the GPUs, by process.

Same numbers: `nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv` and
`nvidia-smi --query-compute-apps=pid,used_memory --format=csv`. NVML gives pids of the host's
namespace, and all-ones values (NVML_VALUE_NOT_AVAILABLE) where the value is unknown: these become None.
"""

from __future__ import annotations

from typing import Any

from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.sources.gpus import Gpu, GpuProcess, GpuReading
from rlhfdoctor.sources.procfs import read_file
from rlhfdoctor.types import Gap

_UNKNOWN = 2**64 - 1
_LARGEST_BYTES = 2**50
"""No GPU has a pebibyte; a size beyond is a sentinel of some driver."""


class Nvml:
    """The library, opened once; reading never raises."""

    def __init__(self, library: Any = None) -> None:
        """Opens NVML, or `library` in its place.

        Raises:
            ImportError: nvidia-ml-py is not installed.
            OSError: no driver, or no right to use it.
        """
        if library is None:
            try:
                import pynvml
            except ImportError:
                raise ImportError("the package nvidia-ml-py is missing: pip install nvidia-ml-py") from None
            library = pynvml
        self._nvml = library
        try:
            library.nvmlInit()
        except library.NVMLError as error:
            raise OSError(f"NVML: {error}") from None
        self._failed: set[Message] = set()

    def read(self) -> GpuReading:
        """All devices, their processes, and what could not be read (each gap is reported once)."""
        gpus: list[Gpu] = []
        processes: list[GpuProcess] = []
        gaps: list[Gap] = []
        for index in range(self._ask(gaps, say("devices"), "nvmlDeviceGetCount") or 0):
            handle = self._ask(gaps, say("GPU {index}", index=index), "nvmlDeviceGetHandleByIndex", index)
            if handle is None:
                continue
            instances = self._instances(handle)
            for part in instances or [handle]:
                memory = self._ask(gaps, say("memory of GPU {index}", index=index), "nvmlDeviceGetMemoryInfo", part)
                rates = (
                    None
                    if instances
                    else self._ask(
                        gaps, say("utilization of GPU {index}", index=index), "nvmlDeviceGetUtilizationRates", part
                    )
                )
                name = self._ask(gaps, say("name of GPU {index}", index=index), "nvmlDeviceGetName", part) or "GPU"
                gpus.append(
                    Gpu(
                        index=index,
                        name=name.decode(errors="replace") if isinstance(name, bytes) else str(name),
                        total_bytes=known(getattr(memory, "total", None)),
                        used_bytes=known(getattr(memory, "used", None)),
                        busy_ratio=None if rates is None else rates.gpu / 100,
                        mig=bool(instances),
                    )
                )
                found = self._ask(
                    gaps, say("processes of GPU {index}", index=index), "nvmlDeviceGetComputeRunningProcesses", part
                )
                processes.extend(
                    GpuProcess(gpu=index, pid=p.pid, used_bytes=known(getattr(p, "usedGpuMemory", None)))
                    for p in found or ()
                )
        return gpus, processes, gaps

    def _instances(self, handle: Any) -> list[Any]:
        """The MIG instances of a device; empty if MIG is off or unknown."""
        nvml = self._nvml
        try:
            current, _ = nvml.nvmlDeviceGetMigMode(handle)
            if not current:
                return []
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
        except nvml.NVMLError:
            return []
        found = []
        for index in range(most):
            try:
                found.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index))
            except nvml.NVMLError:
                continue
        return found

    def _ask(self, gaps: list[Gap], what: Message, call: str, *args: Any) -> Any:
        try:
            return getattr(self._nvml, call)(*args)
        except self._nvml.NVMLError as error:
            if what not in self._failed:
                self._failed.add(what)
                gaps.append(Gap(what=what, why=say("NVML: {error}", error=str(error))))
            return None


def known(value: Any) -> int | None:
    """A size, or None for NVML's sentinels for an unknown value.

    >>> known(17), known(None), known(2**64 - 1), known(2**63)
    (17, None, None, None)
    """
    if not isinstance(value, int) or value == _UNKNOWN or not 0 <= value < _LARGEST_BYTES:
        return None
    return value


def find_own_pid(host_pid: int, pids: list[int], root: str = "") -> int | None:
    """The pid in our namespace of a pid that NVML gave, or None if that cannot be determined.

    A process below us shows all its ids in NSpid, the outermost first; from inside a container the
    host's id is not visible, and only an equal number that is among ours is taken.
    """
    for pid in pids:
        data = read_file(f"{root}/proc/{pid}/status", 4096) or b""
        at = data.find(b"\nNSpid:")
        if at >= 0:
            ids = data[at + 7 : data.find(b"\n", at + 1)].split()
            if ids and ids[0].isdigit() and int(ids[0]) == host_pid:
                return pid
    return None
