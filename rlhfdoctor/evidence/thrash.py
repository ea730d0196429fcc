"""Whether a run stood at its limit and was not killed: the kernel takes its programs' pages away, and they are read back.

A charge that is over a cgroup's limit is tried again as long as reclaim frees a page, and a kill comes only where it frees none
(mm/memcontrol.c, try_charge_memcg). A program's own pages can always be freed, and its next instruction reads them back: where they
belong to the cgroup that is full, it goes on like this for minutes, the processes hardly run, and to its user the run hangs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from rlhfdoctor.trace.events import Recorded

_FULL_RATIO = 0.97
_LEAST_S = 15.0
"""A kernel that kills does so within some seconds of the limit."""
_LEAST_FAULTS_PER_S = 0.5
"""Of one process; 1.4 to 8 were measured here, and none in processes that are well, once they are loaded."""


@dataclass(frozen=True, slots=True)
class Thrash:
    """The end of a run that stood at its limit."""

    since_s: float
    """Unix seconds."""
    seconds: float
    reading_count: int
    """Followed processes that all the time had major faults: pages that had to be read from disk."""
    process_count: int


def find_thrash(trace: Recorded, use: Sequence[tuple[float, int]], limit_bytes: int, until_s: float) -> Thrash | None:
    """The time for which the limit was full to the end while most programs were read back; None where they were not.

    Args:
        use: (Unix seconds, bytes in use, page cache left out), in order.
        until_s: end of the run, Unix seconds.
    """
    full = list(takewhile(lambda point: point[1] >= _FULL_RATIO * limit_bytes, reversed(use)))
    if not full or until_s - full[-1][0] < _LEAST_S:
        return None
    since_s = full[-1][0]
    rates = []
    for uid in trace.keys("process"):
        series = trace.series("process", uid, "major_faults_count")
        inside = [point for point in series if since_s <= point[0] <= until_s]
        if inside and inside[-1][0] - inside[0][0] >= _LEAST_S:
            rates.append((inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]))
    reading = sum(rate >= _LEAST_FAULTS_PER_S for rate in rates)
    if not reading or 2 * reading < len(rates):  # a data set that is mapped is read by its loader alone
        return None
    return Thrash(since_s, until_s - since_s, reading, len(rates))
