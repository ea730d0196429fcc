"""What the recorder's figures say: growth and its model, phase of the peak, who grew, pinned and shared memory, limits.

A trace decides what logs leave open: a slope per step against a sawtooth, the victim against the one
who grew, shmem that is no file. Evidence that is also available from logs has the same name; logs take precedence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.thrash import Thrash, find_thrash
from rlhfdoctor.logs.kernel import read_oom_kill
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.growth import fit_growth, theil_sen
from rlhfdoctor.trace.read import mark_time_of, time_of
from rlhfdoctor.types import Death, Evidence, Origin, Process, Value
from rlhfdoctor.units import show_bytes, show_count, show_ratio, show_seconds
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import HOST_KILLERS, KERNEL_KILLERS, SIGKILLERS

_LEAST_STEPS = 3
_NEAR_S = 10.0
_SAMPLE_S = 0.05
"""Values of one sample have the same time, to within this."""
_NO_ROLE = "other"
_TELLING_RATIO = 0.02
"""Who held less than this share of the limit is no culprit."""


@dataclass(frozen=True, slots=True)
class FailureWindow:
    """The node on which it happened, until the moment when it happened."""

    trace: Recorded
    until_s: float
    limit: str
    """What the use is measured against: path of a cgroup, or `node`."""
    limit_bytes: int | None
    use: Sequence[tuple[float, int]]
    """(Unix seconds, bytes in use below the limit, page cache left out)."""
    thrash: Thrash | None = None

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
    kills = [trace.seconds(time_of(event)) for event in trace.of("oom_kill", "kernel.line")]
    if death is not None and death.killer in KERNEL_KILLERS:
        near = [at for at in kills if abs(at - until_s) < _NEAR_S or death.time is None]
        until_s = min([until_s, *near])
    limit, limit_bytes, use = _use(trace, case, death, until_s)
    return FailureWindow(trace, until_s, limit, limit_bytes, use)


def _use(
    trace: Recorded, case: Case, death: Death | None, until_s: float
) -> tuple[str, int | None, list[tuple[float, int]]]:
    """The level that the kernel names, else the fullest limit at the end."""
    paths = {int(uid): str(row.get("path")) for uid, row in trace.known["cgroup"].items()}
    levels = []
    for uid, path in paths.items():
        limit = trace.last("cgroup", uid, "max_bytes", until_s)
        series = _until(trace.series("cgroup", uid, "used_bytes"), until_s)
        if limit is not None and series:
            levels.append((_fullest(series) / limit, path, limit, series))
    total = trace.last("host", 0, "total_bytes")
    available = _until(trace.series("host", 0, "available_bytes"), until_s)
    node = [(at, total - value) for at, value in available] if total is not None else []
    named = case.first(EVENT.kernel.oom_kill, EVENT.trace.cgroup_kill)
    if death is not None and death.killer == "kernel-oom-node":
        return "node", total, node
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
    return "node", total, node


def _fullest(series: Sequence[tuple[float, int]]) -> int:
    """The largest value near the end: processes that are killed have given their memory back in the last sample."""
    return max(value for at, value in series if at >= series[-1][0] - _NEAR_S)


def _until(series: list[tuple[float, int]], until_s: float) -> list[tuple[float, int]]:
    return series[: bisect_right(series, (until_s, 2**62))]


def kernel_was_silent(trace: Recorded) -> bool:
    """Whether the recorder read the kernel log until the run's end, and no process of the run was killed in it."""
    unread = any(gap.get("what") == "kernel log" for gap in trace.of("gap"))
    return not unread and bool(trace.of("recorder.end")) and not trace.of("kernel.line")


def find_recorded(case: Case, death: Death | None) -> Iterator[Evidence]:
    """All evidence of the trace."""
    scene = find_failure_window(case, death)
    if scene is None:
        return
    if scene.limit != "node" and scene.limit_bytes:
        scene = replace(scene, thrash=find_thrash(scene.trace, scene.use, scene.limit_bytes, scene.until_s))

    def fact(name: Fact, value: Value, says: str) -> Evidence:
        return Evidence(name=name, value=value, says=says, origin=scene.origin())

    if kernel_was_silent(scene.trace):
        yield fact(FACT.trace.kernel_silent, True, "the recorder read the kernel log to the end: the kernel killed no process of the run")  # fmt: skip
    for part in (_limits, _growth, _phases, _processes, _shared):
        for name, value, says in part(scene, death):
            yield fact(name, value, says)


Facts = Iterator[tuple[Fact, Value, str]]


def _limits(scene: FailureWindow, death: Death | None) -> Facts:
    trace = scene.trace
    total = trace.last("host", 0, "total_bytes")
    limits = [value for uid in trace.keys("cgroup") if (value := trace.last("cgroup", uid, "max_bytes")) is not None]
    limits = [value for value in limits if total is None or value < total]
    if total is not None:
        yield FACT.host.total_bytes, total, f"the node has {show_bytes(total)}"
        available = trace.last("host", 0, "available_bytes", scene.until_s)
        if available is not None:
            yield FACT.host.available_ratio, available / total, f"{show_bytes(available)} of the node's {show_bytes(total)} were available at the last sample"  # fmt: skip
        if limits:
            yield FACT.host.limit_ratio, min(limits) / total, f"the limit of {show_bytes(min(limits))} is {show_ratio(min(limits) / total)} of the node's {show_bytes(total)}"  # fmt: skip
        elif trace.keys("cgroup"):
            yield FACT.host.unlimited, True, "no level of the cgroup has a memory limit"
    if limits:
        yield FACT.host.limit_bytes, min(limits), f"the cgroup's memory limit is {show_bytes(min(limits))}"
    if scene.use and scene.limit_bytes:
        peak = max(value for _, value in scene.use)
        yield FACT.trace.full_ratio, peak / scene.limit_bytes, f"use reached {show_ratio(peak / scene.limit_bytes)} of {'the node' if scene.limit == 'node' else 'the limit'} ({show_bytes(peak)} of {show_bytes(scene.limit_bytes)}, page cache left out)"  # fmt: skip
        thrash = scene.thrash
        if thrash is not None and death is not None and death.killer not in HOST_KILLERS:
            yield FACT.trace.thrashed_s, thrash.seconds, f"for {show_seconds(round(thrash.seconds))} use stood at the limit, and {thrash.reading_count} of {thrash.process_count} processes had pages read back from disk: the kernel takes programs out of memory before it kills, and the run hangs"  # fmt: skip


def find_steps(trace: Recorded) -> list[float]:
    """When each step began, in order; by marks of the trainer, the logs, or both."""
    starts: dict[int, float] = {}
    for event in trace.of("mark"):
        if isinstance(event.get("step"), int) and event["step"] >= 0:
            starts.setdefault(int(event["step"]), trace.seconds(mark_time_of(event)))
    return sorted(starts.values())


def _growth(scene: FailureWindow, _death: Death | None) -> Facts:
    """The growth model over the run, and the rise of the peaks from step to step."""
    if len(scene.use) < 5 or not scene.limit_bytes:
        return
    starts = [at for at in find_steps(scene.trace) if at <= scene.until_s]
    if starts and len(starts) <= _LEAST_STEPS:
        return  # loading and the first optimizer step rise in every run
    end_s = scene.until_s if scene.thrash is None else scene.thrash.since_s  # after that, nothing can grow
    settled = [point for point in scene.use if point[0] <= end_s and (not starts or point[0] >= starts[1])]
    growth = fit_growth(_thin(settled), scene.limit_bytes)
    if growth is not None:
        rate = show_bytes(growth.slope_bytes_per_s * 60)
        says = {
            "level": "memory in use stood still",
            "slope": f"memory in use rose steadily by {rate} a minute",
            "staircase": f"memory in use rose in jumps of about {show_bytes(growth.jump_bytes)} every {show_seconds(round(growth.jump_s))}",
            "sawtooth": f"memory in use rose and fell every {show_seconds(round(growth.jump_s))}; its peaks {'rose by ' + rate + ' a minute' if growth.slope_bytes_per_s else 'did not rise'}",
        }[growth.kind]  # fmt: skip
        yield FACT.trace.growth, growth.kind, says
        yield FACT.trace.is_growing, growth.slope_bytes_per_s > 0, says
    yield from _grown_shmem(scene, settled[0][0] if settled else scene.until_s)
    if not starts:
        return
    peaks: list[tuple[float, int]] = []
    for begin, end in zip(starts, [*starts[1:], scene.until_s]):
        inside = [value for at, value in scene.use if begin <= at <= end]
        if inside:
            peaks.append((float(len(peaks)), max(inside)))
    if len(peaks) < _LEAST_STEPS:
        return
    warm = peaks[1:] if len(peaks) > _LEAST_STEPS else peaks  # the first step loads and warms up
    slope, _, _ = theil_sen(warm)
    rises = [two[1] - one[1] for one, two in pairwise(warm)]
    up = sum(1 for rise in rises if rise > 0.001 * warm[0][1])
    grown = (warm[-1][1] - warm[0][1]) / max(warm[0][1], 1)
    yield FACT.host.slope_bytes_per_step, int(slope), f"the peak of each step rose by {show_bytes(slope)} a step over {show_count(len(warm), 'step')}"  # fmt: skip
    yield FACT.host.rising_steps_ratio, up / max(1, len(rises)), f"it rose in {up} of {show_count(len(rises), 'step')}"
    yield FACT.host.growth_ratio, grown, f"the peaks grew by {show_ratio(grown)}"


def _grown_shmem(scene: FailureWindow, since_s: float) -> Facts:
    """How much of what the limit's cgroup grew by is shmem (page-locked or shared) rather than anonymous memory."""
    uid = next((int(u) for u, row in scene.trace.known["cgroup"].items() if row.get("path") == scene.limit), None)
    if uid is None:
        return
    grown = {}
    for kind in ("anon", "shmem"):
        series = [
            value for at, value in scene.trace.series("cgroup", uid, f"{kind}_bytes") if since_s <= at <= scene.until_s
        ]
        grown[kind] = max(0, series[-1] - series[0]) if series else 0
    total = sum(grown.values())
    if total >= _TELLING_RATIO * (scene.limit_bytes or 0):
        ratio = grown["shmem"] / total
        yield (
            FACT.trace.grown_shmem_ratio,
            ratio,
            f"{show_ratio(ratio)} of the growth of {show_bytes(total)} is shmem (page-locked or shared)",
        )


def _thin(points: Sequence[tuple[float, int]], count: int = 480) -> list[tuple[float, int]]:
    step = max(1, len(points) // count)
    return list(points[::step]) if step == 1 else [max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step)]  # fmt: skip


def _phases(scene: FailureWindow, _death: Death | None) -> Facts:
    """In which phase the peak fell, and how much memory rose within the last phase."""
    marks = [
        (scene.trace.seconds(mark_time_of(e)), str(e["phase"]))
        for e in scene.trace.of("mark")
        if e.get("phase") and e.get("edge") != "end"
    ]
    marks = sorted(mark for mark in marks if mark[0] <= scene.until_s)
    if not marks or not scene.use:
        return
    peak_s, peak = max(scene.use, key=lambda p: p[1])
    place = bisect_right(marks, (peak_s, "\uffff")) - 1
    if place >= 0:
        yield FACT.trace.peak_phase, marks[place][1], f"the peak of {show_bytes(peak)} fell into the {marks[place][1].replace('_', ' ')} phase"  # fmt: skip
    phase = marks[-1][1]
    begin_s = next(begin for begin, _ in reversed(list(takewhile(lambda mark: mark[1] == phase, reversed(marks)))))
    begin_s = max(
        [begin_s, *(at for at in find_steps(scene.trace) if at <= scene.until_s)]
    )  # a phase may last for several steps
    before = [value for at, value in scene.use if at <= begin_s]
    inside = [value for at, value in scene.use if at >= begin_s]
    if before and inside and scene.limit_bytes:
        rise = max(inside) - before[-1]
        yield FACT.trace.last_phase_rise_ratio, rise / scene.limit_bytes, f"in the last phase ({phase.replace('_', ' ')}) use rose by {show_bytes(rise)}, {show_ratio(rise / scene.limit_bytes)} of the limit"  # fmt: skip


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


def find_process_usage(scene: FailureWindow, at_s: float | None = None) -> list[ProcessUsage]:
    """The processes that lived within five seconds of the end, or in the sample of a given time; the largest first."""
    holders = []
    until_s = scene.until_s if at_s is None else at_s
    oldest_s = until_s - (5 if at_s is None else _SAMPLE_S)
    for uid, row in scene.trace.known["process"].items():
        if row.get("role") == "doctor":
            continue
        anon = scene.trace.last_point("process", uid, "rss_anon_bytes", until_s)
        if anon is None or anon[0] < oldest_s:
            continue
        shmem = scene.trace.last("process", uid, "rss_shmem_bytes", until_s) or 0
        first = [scene.trace.first("process", uid, f"rss_{kind}_bytes") or 0 for kind in ("anon", "shmem")]
        holders.append(
            ProcessUsage(
                uid=uid, pid=int(row.get("pid") or 0), role=str(row.get("role") or _NO_ROLE), name=str(row.get("name") or ""),
                anon_bytes=anon[1], shmem_bytes=shmem, first_bytes=sum(first),
                locked_bytes=scene.trace.last("process", uid, "locked_bytes", until_s) or 0,
            )
        )  # fmt: skip
    return sorted(holders, key=lambda holder: -holder.bytes)


def find_culprit(case: Case, death: Death) -> Process | None:
    """Who held most at the last sample before the death."""
    scene = find_failure_window(case, death)
    holders = find_process_usage(scene) if scene is not None else []
    if not holders or death.killer not in SIGKILLERS:
        return None
    top = holders[0]
    if scene is None or top.bytes < _TELLING_RATIO * (scene.limit_bytes or 0):
        return None
    return Process(role=None if top.role == _NO_ROLE else top.role, name=top.name, pid=top.pid, bytes=top.bytes)


def _processes(scene: FailureWindow, _death: Death | None) -> Facts:
    holders = find_process_usage(scene)
    if not holders:
        return
    total = sum(holder.anon_bytes for holder in holders) + max(holder.shmem_bytes for holder in holders)
    top = holders[0]
    share = top.bytes / max(total, 1)
    yield (
        FACT.trace.culprit_role,
        top.role,
        f"{top.role} (pid {top.pid}) held most at the last sample: {show_bytes(top.bytes)}",
    )
    yield FACT.trace.culprit_ratio, share, f"that is {show_ratio(share)} of what all followed processes held"
    growth: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for holder in holders:
        growth[holder.role] = growth.get(holder.role, 0) + holder.bytes - holder.first_bytes
        sizes[holder.role] = sizes.get(holder.role, 0) + holder.bytes
    grower = max(growth, key=lambda role: growth[role])
    risen = sum(value for value in growth.values() if value > 0)
    if risen > 0:
        yield FACT.trace.grower_role, grower, f"{grower} grew most: by {show_bytes(growth[grower])}"
        yield (
            FACT.trace.grower_ratio,
            growth[grower] / risen,
            f"that is {show_ratio(growth[grower] / risen)} of all growth",
        )
    roles = [
        role
        for role, size in sizes.items()
        if role not in (_NO_ROLE, "driver", "raylet") and size > 0.1 * max(total, 1)
    ]
    yield (
        FACT.trace.role_count,
        len(roles),
        "roles with a tenth or more of the memory: " + (", ".join(sorted(roles)) or "none"),
    )


def _shared(scene: FailureWindow, _death: Death | None) -> Facts:
    """Shared and page-locked memory: of the culprit, of the host, and what /dev/shm holds of it."""
    trace, until_s = scene.trace, scene.until_s
    holders = find_process_usage(scene)
    if holders:
        top = holders[0]
        ratio = top.shmem_bytes / max(top.bytes, 1)
        yield (
            FACT.trace.shmem_ratio,
            ratio,
            f"{show_ratio(ratio)} of the largest process is shmem (pinned or shared), the rest anonymous",
        )
        locked = max(holder.locked_bytes for holder in holders)
        yield (
            FACT.trace.locked_ratio,
            locked / max(top.bytes, 1),
            f"{show_bytes(locked)} mlocked against {show_bytes(top.bytes)} held",
        )
    shmem, used = trace.last("host", 0, "shmem_bytes", until_s), trace.last("host", 0, "shm_used_bytes", until_s)
    size = trace.last("host", 0, "shm_size_bytes", until_s)
    if used is not None:
        yield FACT.shm.used_bytes, used, f"/dev/shm held {show_bytes(used)}"
    if size:
        yield FACT.shm.size_bytes, size, f"/dev/shm is {show_bytes(size)} large"
        fullest = max((value for _, value in _until(trace.series("host", 0, "shm_used_bytes"), until_s)), default=0)
        yield FACT.shm.full_ratio, fullest / size, f"/dev/shm was up to {show_ratio(fullest / size)} full"
    if shmem is not None and used is not None:
        free = max(0, shmem - used)
        yield FACT.trace.shm_without_files_bytes, free, f"{show_bytes(free)} of shmem are no files in /dev/shm (page-locked, or anonymous shared memory)"  # fmt: skip
    orphaned = trace.last("host", 0, "shm_orphaned_bytes", until_s)
    if orphaned:
        yield (
            FACT.shm.orphaned_bytes,
            orphaned,
            f"{show_bytes(orphaned)} in /dev/shm belong to no process that is alive",
        )
