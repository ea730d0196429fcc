"""How often the recorder samples: more often as a limit comes near, less often when it costs too much."""

from __future__ import annotations

import time

from rlhfdoctor.record.limits import Limit

_FAST_S = 0.1
_BRISK_S = 0.25
_FAST_LEFT_S = 15.0
_BRISK_LEFT_S = 90.0
_BRISK_RATIO = 0.9
_HELD_S = 3.0
"""How long to keep fast sampling after a wake-up."""
_MOST_COST = 0.05
"""Share of one core; above it, the rate is lowered."""
_ENDING_S = 0.2


class Pace:
    """The sampling interval."""

    def __init__(self, base_s: float) -> None:
        """`base_s`: the interval while nothing is near."""
        self._base_s = base_s
        self.interval_s = base_s
        self._fast_until_s = 0.0
        self._cost_ratio = 0.0
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()

    @property
    def is_raised(self) -> bool:
        """Whether we sample more often than asked for."""
        return self.interval_s < self._base_s

    def start(self) -> None:
        """Counts our CPU time from now on."""
        self._cpu_s, self._wall_s = time.process_time(), time.monotonic()

    def measure_cost(self) -> None:
        """Our CPU time as a share of one core, since the last call."""
        cpu_s, wall_s = time.process_time(), time.monotonic()
        self._cost_ratio = (cpu_s - self._cpu_s) / max(wall_s - self._wall_s, 1e-3)
        self._cpu_s, self._wall_s = cpu_s, wall_s

    def wake(self) -> None:
        """A notification: samples fast for a while."""
        self._fast_until_s = time.monotonic() + _HELD_S
        self.interval_s = min(self._base_s, _FAST_S)

    def earliest_s(self, began_s: float) -> float:
        """When the tick after a notification may begin, where the last one began at a time."""
        return max(began_s + _FAST_S, time.monotonic() + 0.02)

    def update(self, now_s: float, limit: Limit | None, ending: bool) -> None:
        """Sets the next interval by the limit that binds; `ending`: no followed process is left."""
        if ending:
            self.interval_s = min(self._base_s, _ENDING_S)
            return
        wanted_s = min(self._base_s, self._wanted_s(now_s, limit))
        if wanted_s < self._base_s and self._cost_ratio > _MOST_COST:
            wanted_s = min(self._base_s, wanted_s * self._cost_ratio / _MOST_COST)
        self.interval_s = wanted_s

    def _wanted_s(self, now_s: float, limit: Limit | None) -> float:
        left_s = limit.left_s if limit is not None else None
        if now_s < self._fast_until_s or (left_s is not None and left_s < _FAST_LEFT_S):
            return _FAST_S
        near = limit is not None and limit.name != "node" and limit.full_ratio > _BRISK_RATIO
        return _BRISK_S if near or (left_s is not None and left_s < _BRISK_LEFT_S) else self._base_s
