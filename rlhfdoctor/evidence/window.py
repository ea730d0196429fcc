"""The time before a recorded failure: the limit that counts, its use, the steps, what each process held."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.thrash import Thrash
from rlhfdoctor.logs.kernel import read_oom_kill
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.record import mark_time_of, time_of
from rlhfdoctor.types import Death, Origin, Process
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE
from rlhfdoctor.vocabulary.recorder_events import KERNEL_LOG
from rlhfdoctor.vocabulary.run import KERNEL_KILLERS, OTHER, SIGKILLERS

_NEAR_S = 10.0
_SAMPLE_S = 0.05
"""What one sample reads bears one time, to within this."""
NO_ROLE = OTHER
SIGNIFICANT_RATIO = 0.02
"""Who held less than this share of the limit is no culprit."""


@dataclass(frozen=True, slots=True)
class FailureWindow:
    """The node on which it happened, until the moment when it happened."""

    trace: Recorded
    until_s: float
    limit: str
    """What the use is measured against: path of a cgroup, or NODE."""
    limit_bytes: int | None
    use: Sequence[tuple[float, int]]
    """(Unix seconds, bytes in use below the limit, page cache left out)."""
    thrash: Thrash | None = None

    @property
    def of_node(self) -> bool:
        """Whether the use is measured against the memory of the node."""
        return self.limit == NODE

    def origin(self) -> Origin:
        """The trace as a place to quote."""
        return Origin(file=self.trace.node.folder)


def find_failure_window(case: Case, death: Death | None) -> FailureWindow | None:
    """The trace of the node that the death names, else the first one; cut at the death."""
    traces = case.traces
    if not traces:
        return None
    node = death.node if death is not None else None
    where = death.event.origin.file if death is not None and death.event is not None else ""
    trace = next((t for t in traces if where.startswith(f"{t.node.folder}/")), None) or next(
        (t for t in traces if node is not None and node in (t.node.node, t.node.run.get("host"))), traces[0]
    )
    times = trace.node.times_ns
    end_s = trace.seconds(times[-1]) if times else 0.0
    until_s = min(death.time, end_s) if death is not None and death.time is not None else end_s
    kills = [trace.seconds(time_of(event)) for event in trace.of(RECORD.note.oom_kill, RECORD.kernel.line)]
    if death is not None and death.killer in KERNEL_KILLERS:
        near = [at for at in kills if abs(at - until_s) < _NEAR_S or death.time is None]
        until_s = min([until_s, *near])
    limit, limit_bytes, use = _use(trace, case, death, until_s)
    return FailureWindow(trace, until_s, limit, limit_bytes, use)


def _use(
    trace: Recorded, case: Case, death: Death | None, until_s: float
) -> tuple[str, int | None, list[tuple[float, int]]]:
    """The level that the kernel names, else the fullest limit at the end."""
    paths = {int(uid): str(row.get(R.path)) for uid, row in trace.known["cgroup"].items()}
    levels = []
    for uid, path in paths.items():
        limit = trace.last("cgroup", uid, "max_bytes", until_s)
        series = until(trace.series("cgroup", uid, "used_bytes"), until_s)
        if limit is not None and series:
            levels.append((_fullest(series) / limit, path, limit, series))
    total = trace.last("host", 0, "total_bytes")
    available = until(trace.series("host", 0, "available_bytes"), until_s)
    node = [(at, total - value) for at, value in available] if total is not None else []
    named = case.first(EVENT.kernel.oom_kill, EVENT.trace.cgroup_kill)
    if death is not None and death.killer == "kernel-oom-node":
        return NODE, total, node
    if named is not None:
        level = named.fields.get(FIELD.level_text) or read_oom_kill(str(named.fields.get(FIELD.rest_text, ""))).get(
            "oom_memcg"
        )
        match = next((row for row in levels if level not in (None, "/") and row[1].endswith(str(level))), None)
        if match is not None:
            return match[1], match[2], match[3]
    if levels and (not node or total is None or max(row[0] for row in levels) >= _fullest(node) / total):
        best = max(levels, key=lambda row: row[0])
        return best[1], best[2], best[3]
    return NODE, total, node


def _fullest(series: Sequence[tuple[float, int]]) -> int:
    """The largest value near the end: processes that are killed have given their memory back in the last sample."""
    return max(value for at, value in series if at >= series[-1][0] - _NEAR_S)


def until(series: list[tuple[float, int]], until_s: float) -> list[tuple[float, int]]:
    """The points of a series up to a time, in Unix seconds."""
    return series[: bisect_right(series, (until_s, 2**62))]


def kernel_was_silent(trace: Recorded) -> bool:
    """Whether the recorder read the kernel log until the run's end, and no process of the run was killed in it."""
    return kernel_was_read(trace) and bool(trace.of(RECORD.recorder.end)) and not trace.of(RECORD.kernel.line)


def kernel_was_read(trace: Recorded) -> bool:
    """Whether the recorder could read the kernel log."""
    return not any(gap.get(R.what) == KERNEL_LOG for gap in trace.of(RECORD.note.gap))


def find_steps(trace: Recorded) -> list[float]:
    """When each step began, in order; by marks of the trainer, the logs, or both."""
    starts: dict[int, float] = {}
    for event in trace.of(RECORD.note.mark):
        if isinstance(event.get(R.step), int) and event[R.step] >= 0:
            starts.setdefault(int(event[R.step]), trace.seconds(mark_time_of(event)))
    return sorted(starts.values())


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """A process at its last sample."""

    uid: int
    pid: int
    role: str
    name: str
    anon_bytes: int
    shmem_bytes: int
    locked_bytes: int
    first_bytes: int
    """Anon and shmem at its first sample."""

    @property
    def bytes(self) -> int:
        """Anon and shmem."""
        return self.anon_bytes + self.shmem_bytes


def find_process_usage(window: FailureWindow, at_s: float | None = None) -> list[ProcessUsage]:
    """The processes that lived within five seconds of the end, or in the sample of a given time; the largest first."""
    usages = []
    until_s = window.until_s if at_s is None else at_s
    oldest_s = until_s - (5 if at_s is None else _SAMPLE_S)
    for uid, row in window.trace.known["process"].items():
        if row.get(R.role) == "doctor":
            continue
        anon = window.trace.last_point("process", uid, "rss_anon_bytes", until_s)
        if anon is None or anon[0] < oldest_s:
            continue
        shmem = window.trace.last("process", uid, "rss_shmem_bytes", until_s) or 0
        first = [window.trace.first("process", uid, f"rss_{kind}_bytes") or 0 for kind in ("anon", "shmem")]
        usages.append(
            ProcessUsage(
                uid=uid,
                pid=int(row.get(R.pid) or 0),
                role=str(row.get(R.role) or NO_ROLE),
                name=str(row.get(R.name) or ""),
                anon_bytes=anon[1],
                shmem_bytes=shmem,
                first_bytes=sum(first),
                locked_bytes=window.trace.last("process", uid, "locked_bytes", until_s) or 0,
            )
        )
    return sorted(usages, key=lambda usage: -usage.bytes)


def find_culprit(case: Case, death: Death) -> Process | None:
    """Who held most at the last sample before the death."""
    window = find_failure_window(case, death)
    usages = find_process_usage(window) if window is not None else []
    if not usages or death.killer not in SIGKILLERS:
        return None
    top = usages[0]
    if window is None or top.bytes < SIGNIFICANT_RATIO * (window.limit_bytes or 0):
        return None
    return Process(role=None if top.role == NO_ROLE else top.role, name=top.name, pid=top.pid, bytes=top.bytes)
