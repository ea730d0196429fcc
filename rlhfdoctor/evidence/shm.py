"""Shared memory that is never released: files in /dev/shm without an owner, or named files that only grow.

Unlinked objects are left out, since Ray's object store is one and fills up by design; so are files that appear at
once at the start, as NCCL's and vLLM's do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window
from rlhfdoctor.i18n.message import NOTHING, say
from rlhfdoctor.types import Death, Evidence
from rlhfdoctor.vocabulary import FACT
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.run import SIGKILLERS

_START_S = 120.0
_LEAST_RISES = 3
_FALL_RATIO = 0.15
"""A fall by more than this share of the growth is a release."""


def find_leaks(case: Case, death: Death | None) -> Iterator[Evidence]:
    """What ownerless files and growing files in /dev/shm are of the limit that was hit."""
    window = find_failure_window(case, death)
    if window is None:
        return
    origin = window.origin()
    limit, what = _limit(window, death)
    if not limit:
        return
    orphaned = [p for p in window.trace.series("host", 0, "shm_orphaned_bytes") if p[0] <= window.until_s]
    if orphaned:
        before = max(value for at, value in orphaned if at <= orphaned[0][0] + _START_S)
        grown = max(0, orphaned[-1][1] - before)
        charged = _charged(window) if what == "the memory limit" else None
        size = (
            orphaned[-1][1]
            if charged is None
            else min(before, charged[0]) + min(grown, max(0, charged[1] - charged[0]))
        )
        ratio = size / limit
        yield Evidence(
            name=FACT.shm.orphaned_ratio,
            value=ratio,
            origin=origin,
            says=say(
                "{size:bytes} in /dev/shm belong to no process of the run that is alive, {ratio:share} of {what}",
                size=size,
                ratio=ratio,
                what=what,
            ),
        )
        yield Evidence(
            name=FACT.shm.orphaned_early,
            value=charged is None and grown < orphaned[-1][1] / 5,
            origin=origin,
            says=(
                say("it was there when the run began, and may be in use by another job")
                if grown < orphaned[-1][1] / 5
                else NOTHING
            ),
        )
        if orphaned[-1][1]:
            yield Evidence(
                name=FACT.shm.orphaned_growth_ratio,
                value=grown / orphaned[-1][1],
                origin=origin,
                says=(
                    say("{grown:bytes} of it came during the run", grown=grown)
                    if grown
                    else say("it was there when the run began")
                ),
            )
    named = _named(window)
    if len(named) >= 10:
        rise, rises = climb(named)
        yield Evidence(
            name=FACT.shm.climb_ratio,
            value=rise / limit if rises >= _LEAST_RISES else 0.0,
            origin=origin,
            says=say(
                "named files in /dev/shm grew by {rise:bytes} in {rises} rises and never fell, {part:share} of {what}",
                rise=rise,
                rises=rises,
                part=rise / limit,
                what=what,
            ),
        )


def _limit(window: FailureWindow, death: Death | None) -> tuple[int | None, str]:
    """/dev/shm's own size if a page could not be backed, else the memory limit."""
    size = window.trace.last("host", 0, "shm_size_bytes", window.until_s)
    if death is None or death.killer not in SIGKILLERS:
        return size, "/dev/shm"
    return window.limit_bytes or size, "the node" if window.of_node else "the memory limit"


def _charged(window: FailureWindow) -> tuple[int, int] | None:
    """Shared memory charged to the cgroup whose limit was hit, at first and at last; files of other jobs are not."""
    uids = [int(uid) for uid, row in window.trace.known["cgroup"].items() if row.get(R.path) == window.limit]
    if not uids:
        return None
    first = window.trace.first("cgroup", uids[0], "shmem_bytes")
    last = window.trace.last("cgroup", uids[0], "shmem_bytes", window.until_s)
    return None if first is None or last is None else (first, last)


def _named(window: FailureWindow) -> list[tuple[float, int]]:
    """Bytes of the files that have a name, over time; empty where unlinked ones are not known."""
    used = dict(window.trace.series("host", 0, "shm_used_bytes"))
    unlinked = window.trace.series("host", 0, "shm_unlinked_bytes")
    return [(at, max(0, used[at] - value)) for at, value in unlinked if at in used and at <= window.until_s]


def climb(points: Sequence[tuple[float, int]]) -> tuple[int, int]:
    """(bytes, number of rises) of a series that only grows; (0, 0) if it falls, or rises at its start only.

    >>> climb([(0.0, 0), (200.0, 50), (400.0, 100), (600.0, 150)])
    (150, 3)
    >>> climb([(0.0, 0), (200.0, 50), (400.0, 10), (600.0, 150)])
    (0, 0)
    """
    rise = points[-1][1] - points[0][1]
    if rise <= 0:
        return 0, 0
    top, rises, last = points[0][1], 0, points[0][1]
    for _, value in points:
        if top - value > _FALL_RATIO * rise:
            return 0, 0
        top = max(top, value)
        if value - last >= rise / 20:
            rises, last = rises + 1, value
    half = points[len(points) // 2][1]
    return (rise, rises) if points[-1][1] - half >= rise / 5 else (0, 0)
