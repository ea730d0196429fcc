"""Which limits there are, how full each is, and when it will be reached.

cgroup   unreclaimable memory against memory.max, one limit a level that has one
node     MemTotal - MemAvailable against MemTotal
ray      what Ray's memory monitor counts against its threshold (src/ray/common/memory_monitor.cc)
shm      /dev/shm
gpu      NVML's used against total
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.sources.nvml import Gpu
from rlhfdoctor.sources.procfs import read_file
from rlhfdoctor.sources.shm import SharedMemory
from rlhfdoctor.trace.growth import Forecast, Series

_REFIT_S = 5.0
_SOON_S = 120.0
_THRESHOLD = re.compile(rb"RAY_memory_usage_threshold=([0-9.]+)")
_REFRESH = re.compile(rb"RAY_memory_monitor_refresh_ms=(\d+)")


@dataclass(slots=True)
class Limit:
    """One limit with its history."""

    uid: int
    name: str
    """cgroup, node, ray, shm or gpu."""
    level: str
    """Path of the cgroup, index of the GPU, or empty."""
    limit_bytes: int
    used_bytes: int = 0
    series: Series = field(default_factory=Series)
    forecast: Forecast | None = None
    fitted_s: float = -1e9

    @property
    def full_ratio(self) -> float:
        """How full it is, 0 to 1."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def left_s(self) -> float | None:
        """Seconds until it is reached, as forecast; None: not in sight."""
        return None if self.forecast is None else self.forecast.left_s


class Limits:
    """All limits of what is followed."""

    def __init__(self) -> None:
        self.all: dict[tuple[str, str], Limit] = {}
        self._next = 1

    def update(
        self,
        now_s: float,
        host: Mapping[str, int],
        levels: Iterable[Level],
        shm: SharedMemory | None,
        gpus: Iterable[Gpu],
        ray_ratio: float | None,
    ) -> list[Limit]:
        """Takes the tick's figures; the limits that are new (or changed their size) are returned."""
        seen: list[tuple[str, str, int | None, int | None]] = []
        total, available = host.get("total_bytes"), host.get("available_bytes")
        node = None if total is None or available is None else total - available
        seen.append(("node", "", node, total))
        binding: tuple[int, int] | None = None
        for level in levels:
            limit = level.max_bytes
            if limit is None or (total is not None and limit >= total):
                continue  # a limit above the machine's memory is none
            seen.append(("cgroup", level.path, level.used_bytes, limit))
            if level.used_bytes is not None and (binding is None or limit < binding[1]):
                binding = (level.used_bytes, limit)
        if ray_ratio is not None and node is not None and total is not None:
            used, whole = binding or (node, total)
            seen.append(("ray", "", used, int(whole * ray_ratio)))
        if shm is not None and shm.size_bytes:
            seen.append(("shm", "", shm.used_bytes, shm.size_bytes))
        for number, gpu in enumerate(gpus):
            seen.append(("gpu", str(number), gpu.used_bytes, gpu.total_bytes))
        return [fresh for row in seen if (fresh := self._take(now_s, *row))]

    def _take(self, now_s: float, name: str, level: str, used: int | None, limit_bytes: int | None) -> Limit | None:
        if used is None or not limit_bytes:
            return None
        limit = self.all.get((name, level))
        fresh = limit is None or limit.limit_bytes != limit_bytes
        if limit is None:
            limit = self.all[name, level] = Limit(self._next, name, level, limit_bytes)
            self._next += 1
        limit.limit_bytes, limit.used_bytes = limit_bytes, used
        limit.series.add(now_s, used)
        if now_s - limit.fitted_s >= self._pause(limit):
            limit.forecast = limit.series.forecast(limit_bytes)
            limit.fitted_s = now_s
        return limit if fresh else None

    def _pause(self, limit: Limit) -> float:
        """A fit costs more than a sweep: seldom far from the limit, every second near it."""
        near = limit.full_ratio > 0.5 or (limit.left_s is not None and limit.left_s < _SOON_S)
        return 0.5 if near and (limit.left_s or 1e9) < _SOON_S else 1.0 if near else _REFIT_S

    def binding(self) -> Limit | None:
        """The limit that will be reached first, else the fullest one."""
        coming = [limit for limit in self.all.values() if limit.left_s is not None]
        if coming:
            return min(coming, key=lambda limit: limit.left_s or 0.0)
        return max(self.all.values(), key=lambda limit: limit.full_ratio, default=None)


def find_ray_ratio(pid: int, root: str = "") -> float | None:
    """The memory monitor's threshold by the raylet's environment; None where the monitor is off.

    Ray's default is 0.95 (RAY_memory_usage_threshold); RAY_memory_monitor_refresh_ms=0 switches it off.
    """
    environment = read_file(f"{root}/proc/{pid}/environ") or b""
    refresh = _REFRESH.search(environment)
    if refresh is not None and int(refresh[1]) == 0:
        return None
    told = _THRESHOLD.search(environment)
    try:
        return float(told[1]) if told is not None else 0.95
    except ValueError:
        return 0.95
