"""What held most memory in a recording, by processes at its end or by lines of code on their GPUs."""

from __future__ import annotations

from rlhfdoctor.charts import CodeLine, GpuSnapshot, Holder
from rlhfdoctor.snapshot import OUT_OF_MEMORY
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.record import RecordEvent, mark_time_of
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_MOST = 10
_RECENT_S = 300.0
_LEAST_S = 10.0
_ALIVE_S = 15.0
"""A process that stands still is read every ten seconds; one that ended is not read again."""


def find_holders(trace: Recorded) -> tuple[Holder, ...]:
    """The largest processes that the last samples have; at most ten."""
    if not trace.node.times_ns:
        return ()
    end_s = trace.seconds(trace.node.times_ns[-1])
    found = []
    for uid in trace.keys("process"):
        point = trace.last_point("process", uid, "rss_anon_bytes")
        if point is not None and end_s - point[0] <= _ALIVE_S:
            found.append((point[1] + (trace.last("process", uid, "rss_shmem_bytes") or 0), uid))
    found.sort(reverse=True)
    return tuple(_holder(trace, uid, size) for size, uid in found[:_MOST])


def _holder(trace: Recorded, uid: int, size: int) -> Holder:
    known = trace.known["process"].get(uid, {})
    shared = dict(trace.series("process", uid, "rss_shmem_bytes"))
    history = [(at, anon + shared.get(at, 0)) for at, anon in trace.series("process", uid, "rss_anon_bytes")]
    return Holder(
        pid=known.get(R.pid),
        role=str(known.get(R.role) or ""),
        command=str(known.get(R.command) or known.get(R.name) or ""),
        held_bytes=size,
        peak_bytes=max((held for _, held in history), default=size),
        growth_bytes_per_s=_growth(history),
    )


def find_snapshots(trace: Recorded, begin_s: float) -> tuple[GpuSnapshot, ...]:
    """Of each process the last snapshot of torch's allocator; at most ten, those that ran out of memory first."""
    latest = {event.get(R.pid): event for event in trace.of(RECORD.process.snapshot)}
    found = [_snapshot(trace, event, begin_s) for event in latest.values()]
    return tuple(sorted(found, key=lambda one: (not one.ran_out, -one.held_bytes))[:_MOST])


def _snapshot(trace: Recorded, event: RecordEvent, begin_s: float) -> GpuSnapshot:
    lines = [
        CodeLine(text=text, held_bytes=size)
        for text, size in zip(event.get(R.lines) or (), event.get(R.sizes) or ())
        if isinstance(text, str) and isinstance(size, int)
    ]
    return GpuSnapshot(
        pid=event.get(R.pid),
        role=trace.role_of(event.get(R.pid))[0] or "",
        at_s=trace.seconds(mark_time_of(event)) - begin_s,
        ran_out=event.get(R.why) == OUT_OF_MEMORY,
        held_bytes=event.get(R.held_bytes) or 0,
        lines=tuple(lines),
    )


def _growth(history: list[tuple[float, int]]) -> float | None:
    """From the first to the last sample of the recent past."""
    recent = [point for point in history if history[-1][0] - point[0] <= _RECENT_S]
    length_s = recent[-1][0] - recent[0][0] if recent else 0.0
    return (recent[-1][1] - recent[0][1]) / length_s if length_s >= _LEAST_S else None
