"""Detects memcg thrashing without a kill: executable pages, evicted at the cgroup's limit, are read back.

A charge of some pages that is over a cgroup's limit is tried again as long as reclaim frees any, and a kill comes only
if it frees none (mm/memcontrol.c, try_charge_memcg). A program's own pages can always be freed, and its next
instruction reads them back: where they belong to the cgroup that is full, it goes on like this for minutes, the
processes hardly run, and the run appears to hang.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile, pairwise, takewhile

from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_ROOM_RATIO = 0.03
_ROOM_BYTES = 256 * MIB
"""Page cache of the whole run, at most: with less than this it cannot keep its programs in memory."""
_LEAST_S = 30.0
"""A kernel that kills does so within seconds of the limit; half a minute was seen once."""
_END_S = 10.0
"""In which processes that are killed give their memory back, before the death is seen."""
_LEAST_FAULTS_PER_S = 0.5
"""Of one process; 1.2 to 8 were measured here, and no process had any in the minute before."""
_MORE_THAN_BEFORE = 5.0
_BEFORE_S = 60.0


@dataclass(frozen=True, slots=True)
class Thrash:
    """The end of a run that was at its memory limit."""

    since_s: float
    """Unix seconds."""
    seconds: float
    reading_count: int
    """Followed processes that all the time had major faults, which they had not before: pages read from disk."""
    process_count: int


def find_thrash(trace: Recorded, use: Sequence[tuple[float, int]], limit_bytes: int, until_s: float) -> Thrash | None:
    """How long a cgroup was at its limit up to the end while most processes refaulted pages; None if they did not.

    Args:
        use: (Unix seconds, bytes in use, page cache left out), in order.
        until_s: end of the run, Unix seconds.
    """
    least_bytes = limit_bytes - min(_ROOM_RATIO * limit_bytes, _ROOM_BYTES)
    rest = dropwhile(lambda point: point[1] < least_bytes and until_s - point[0] < _END_S, reversed(use))
    full = list(takewhile(lambda point: point[1] >= least_bytes, rest))
    if not full or full[0][0] - full[-1][0] < _LEAST_S:
        return None
    end_s, since_s = full[0][0], full[-1][0]
    reading = [
        _reads(trace.series("process", uid, "major_faults_count"), since_s, end_s)
        for uid, row in trace.known["process"].items()
        if row.get(R.role) != "doctor"
    ]
    known = [each for each in reading if each is not None]
    if not any(known) or 2 * sum(known) < len(known):  # data that is mapped may well be read by one process
        return None
    return Thrash(since_s, end_s - since_s, sum(known), len(known))


def _reads(series: Sequence[tuple[float, int]], since_s: float, end_s: float) -> bool | None:
    """Whether a process had major faults all the time, and had not before; None if it was not there all the time.

    The recorder repeats a count that it reads every ten seconds or so: its time is known only when it changes.
    """
    if not series or series[0][0] > since_s or series[-1][0] < end_s - _END_S:
        return None
    changes = [later for earlier, later in pairwise(series) if later[1] != earlier[1] and since_s <= later[0] <= end_s]
    if len(changes) < 2:
        return False
    rate = (changes[-1][1] - changes[0][1]) / (changes[-1][0] - changes[0][0])
    before = [point for point in series if since_s - _BEFORE_S <= point[0] <= since_s]
    span_s = before[-1][0] - before[0][0] if before else 0.0  # no rate after a gap in the recording
    rate_before = (before[-1][1] - before[0][1]) / span_s if span_s else 0.0
    return rate >= max(_LEAST_FAULTS_PER_S, _MORE_THAN_BEFORE * rate_before)
