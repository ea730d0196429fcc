"""Which limits there are, how full each is, when it will be reached.

cgroup   unreclaimable memory against memory.max, one limit a level that has one
node     MemTotal - MemAvailable against MemTotal
ray      what Ray's memory monitor counts against its threshold (src/ray/common/memory_monitor.cc)
shm      /dev/shm
gpu      NVML's used against total
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.sources.gpus import Gpu
from rlhfdoctor.sources.shm import SharedMemory
from rlhfdoctor.trace.forecast import Forecast, Peaks
from rlhfdoctor.vocabulary.limits import LimitName

_SOON_S = 120.0
_RELEVANT_RATIO = 0.2
_GONE_S = 10.0
_MONITOR = re.compile(rb"MemoryMonitor initialized with usage threshold at (\d{1,18}) bytes[^\n]*")


class RayLimit(NamedTuple):
    """What Ray's memory monitor compares."""

    threshold_bytes: int
    total_bytes: int | None
    """Of the memory that it looks at; None in versions that do not report it."""


@dataclass(slots=True)
class Limit:
    """One limit with its history."""

    uid: int
    name: LimitName
    level: str
    """Path of the cgroup, index of the GPU, or empty."""
    limit_bytes: int
    used_bytes: int = 0
    peaks: Peaks = field(default_factory=Peaks)
    forecast: Forecast | None = None
    seen_s: float = 0.0
    """When it was there last; a cgroup may vanish, Ray may stop."""
    hangs_s: float = 0.0
    """For how long the run has been hanging at it."""

    @property
    def full_ratio(self) -> float:
        """How full it is, 0 to 1."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0

    @property
    def left_s(self) -> float | None:
        """Forecast seconds until it is reached; None: not in sight."""
        return None if self.forecast is None else self.forecast.left_s


def is_coming(left_s: float | None, full_ratio: float) -> bool:
    """Whether a forecast is shown: not the slow change of a nearly unused limit."""
    return left_s is not None and (full_ratio >= _RELEVANT_RATIO or left_s < _SOON_S)


class Limits:
    """All limits of what is followed."""

    def __init__(self) -> None:
        self.all: dict[tuple[LimitName, str], Limit] = {}
        self._next = 1
        self._gone: list[int] = []
        self.step: int | None = None

    def update(
        self,
        now_s: float,
        host: Mapping[str, int],
        levels: Iterable[Level],
        shm: SharedMemory | None,
        gpus: Iterable[Gpu],
        ray: RayLimit | None,
    ) -> list[Limit]:
        """Takes the tick's figures; the limits that are new (or changed their size) are returned."""
        seen: list[tuple[LimitName, str, int | None, int | None]] = []
        total, available = host.get("total_bytes"), host.get("available_bytes")
        node = None if total is None or available is None else total - available
        seen.append(("node", "", node, total))
        for level in levels:
            limit = level.max_bytes
            if limit is None or (total is not None and limit >= total):
                continue  # limits above physical memory are not binding
            seen.append(("cgroup", level.path, level.used_bytes, limit))
        if ray is not None:
            same = next((row for row in seen if row[0] == "cgroup" and row[3] == ray.total_bytes), None)
            seen.append(("ray", "", same[2] if same is not None else node, ray.threshold_bytes))
        if shm is not None and shm.size_bytes:
            seen.append(("shm", "", shm.used_bytes, shm.size_bytes))
        for number, gpu in enumerate(gpus):
            seen.append(("gpu", str(number), gpu.used_bytes, gpu.total_bytes))
        fresh = [taken for row in seen if (taken := self._take(now_s, *row))]
        for key, known in list(self.all.items()):
            if now_s - known.seen_s >= _GONE_S:
                self._gone.append(self.all.pop(key).uid)
        return fresh

    def take_gone(self) -> list[int]:
        """Numbers of the limits that are gone since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def _take(
        self, now_s: float, name: LimitName, level: str, used: int | None, limit_bytes: int | None
    ) -> Limit | None:
        if used is None or not limit_bytes:
            return None
        limit = self.all.get((name, level))
        fresh = limit is None or limit.limit_bytes != limit_bytes
        if limit is None:
            limit = self.all[name, level] = Limit(self._next, name, level, limit_bytes)
            self._next += 1
        limit.limit_bytes, limit.used_bytes, limit.seen_s = limit_bytes, used, now_s
        limit.peaks.add(now_s, used)
        limit.forecast = limit.peaks.forecast(limit_bytes)
        return limit if fresh else None

    def begin_step(self, now_s: float, number: int) -> None:
        """The run begins another step; a number below 0 is its start-up, one less than the last another rank's."""
        if number < 0 or (self.step is not None and number in (self.step, self.step - 1)):
            return
        self.step = number
        for limit in self.all.values():
            limit.peaks.begin_step(now_s)

    def binding(self) -> Limit | None:
        """The limit that will be reached first, else the fullest one."""
        coming = [limit for limit in self.all.values() if is_coming(limit.left_s, limit.full_ratio)]
        if coming:
            return min(coming, key=lambda limit: limit.left_s or 0.0)
        return max(self.all.values(), key=lambda limit: limit.full_ratio, default=None)


def find_ray_limit(logs: str, owners: Collection[int] = ()) -> RayLimit | None:
    """Threshold and total of Ray's memory monitor, by its own line in raylet.out; None if it is off or did not log.

    Which memory it looks at differs by version and mount (the node's, or the cgroup that it sees as the
    root), so it is not guessed: "MemoryMonitor initialized with usage threshold at 34664513536 bytes (0.97
    system memory), total system memory bytes: 35736612864".

    Args:
        logs: folder of the session's logs.
        owners: user ids whose files there are read; empty for anyone's.
    """
    data = b""
    with contextlib.suppress(OSError):
        data = read_bytes(f"{logs}/raylet.out", 1 << 20, follow=False, owners=owners)
    found = _MONITOR.search(data)
    if found is None:
        return None
    total = re.search(rb"total system memory bytes: (\d{1,18})\b", found[0])
    return RayLimit(int(found[1]), int(total[1]) if total is not None else None)
