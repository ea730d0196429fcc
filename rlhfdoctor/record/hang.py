"""Detects a run that hangs at its cgroup's limit.

Its programs' own pages are evicted and read back, again and again; the kernel does not kill as long as that frees one
(evidence/thrash.py says why, and looks at recorded runs).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from rlhfdoctor.record.limits import Limit

_ROOM_RATIO, _ROOM_BYTES = 0.03, 256 << 20
"""With less than this for page cache, the programs of a run do not stay in memory."""
_LEAST_S = 20.0
"""A process's faults are read every ten seconds: twice, at least."""
_LEAST_FAULTS_PER_S = 0.5
_MORE_THAN_BEFORE = 5.0
_EVERY_S = 60.0
Faults = Mapping[int, int]
"""Number of a process in the trace -> major faults since its start."""


class Hangs:
    """The limits at which the run hangs."""

    def __init__(self) -> None:
        self._full: dict[int, tuple[float, Faults]] = {}
        """Number of a limit -> since when it has been full, and the faults up to then."""
        self._before: tuple[float, Faults] | None = None
        self._rates: dict[int, float] = {}
        """Faults of each process in a second while no limit was full."""

    def check(self, now_s: float, limits: Iterable[Limit], read_faults: Callable[[], Faults]) -> None:
        """Sets `hangs_s` of each limit; `read_faults` is called once a minute, and while a limit is full."""
        cgroups = [limit for limit in limits if limit.name == "cgroup"]
        full = [limit for limit in cgroups if _is_full(limit)]
        self._full = {limit.uid: self._full[limit.uid] for limit in full if limit.uid in self._full}
        if not full:
            if cgroups and (self._before is None or now_s - self._before[0] >= _EVERY_S):
                self._look(now_s, read_faults())
        for limit in cgroups:
            limit.hangs_s = 0.0
        for limit in full:
            faults = read_faults()
            since_s, first = self._full.setdefault(limit.uid, (now_s, faults))
            if now_s - since_s >= _LEAST_S and self._most_read(faults, first, now_s - since_s):
                limit.hangs_s = now_s - since_s

    def _look(self, now_s: float, faults: Faults) -> None:
        if self._before is not None:
            before_s, before = self._before
            self._rates = {uid: (n - before[uid]) / (now_s - before_s) for uid, n in faults.items() if uid in before}
        self._before = now_s, faults

    def _most_read(self, faults: Faults, first: Faults, seconds: float) -> bool:
        """Whether half of the processes that were there all the time read pages back, which they had not before."""
        rates = {uid: (count - first[uid]) / seconds for uid, count in faults.items() if uid in first}
        least = {uid: max(_LEAST_FAULTS_PER_S, _MORE_THAN_BEFORE * self._rates.get(uid, 0.0)) for uid in rates}
        reading = sum(rate >= least[uid] for uid, rate in rates.items())
        return reading > 0 and 2 * reading >= len(rates)


def _is_full(limit: Limit) -> bool:
    return limit.used_bytes >= limit.limit_bytes - min(_ROOM_RATIO * limit.limit_bytes, _ROOM_BYTES)
