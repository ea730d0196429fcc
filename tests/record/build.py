"""Limits, levels, samples and whole recorded runs, so that a test names only what it is about."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.recorded import find_recorded
from rlhfdoctor.logs.events import order_events
from rlhfdoctor.record.limits import Limit
from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.trace.events import Recorded, make_events
from rlhfdoctor.trace.forecast import Forecast
from rlhfdoctor.trace.frames import Rows, Sample
from rlhfdoctor.trace.read import RUN_SCHEMA, read_node
from rlhfdoctor.trace.schema import NULL, TABLES
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.types import Death, Process, Value
from rlhfdoctor.units import GIB, MIB

START_S = 1_700_000_000
CGROUP = "/sys/fs/cgroup/memory/job"
TOTAL_BYTES = 64 * GIB
LIMIT_BYTES = 16 * GIB
Row = Mapping[str, int | float | None]
Course = Callable[[int], float]
"""MiB at a second of the run."""


def make_level(used: int | None, limit: int | None, path: str = CGROUP, *, cache: int = 0) -> Level:
    """A cgroup; `cache` is reclaimable page cache on top of what is used."""
    known: dict[str, Any] = dict.fromkeys(Level.__dataclass_fields__)
    current = None if used is None else used + cache
    return Level(**{**known, "path": path, "current_bytes": current, "max_bytes": limit, "inactive_file_bytes": cache})


def make_forecast(left_s: float, steps: int = 0) -> Forecast:
    """A forecast from steady growth, over so many steps of ten seconds."""
    return Forecast(
        left_s=left_s,
        low_s=left_s,
        high_s=left_s,
        slope_bytes_per_s=1.0 * MIB,
        rise_bytes=10.0 * MIB,
        steps_count=steps,
        seen_s=1000.0,
    )


def make_limit(
    ratio: float = 0.6,
    left_s: float | None = None,
    *,
    uid: int = 1,
    name: str = "cgroup",
    level: str = "",
) -> Limit:
    """A limit of 10 GiB that is so full, with its forecast."""
    limit = Limit(uid, name, level, 10 * GIB, used_bytes=int(10 * GIB * ratio))
    limit.forecast = None if left_s is None else make_forecast(left_s)
    return limit


def rows(table: str, found: Mapping[int, Row]) -> Rows:
    """Rows as the store takes them; what is not given is unknown."""
    columns: list[Sequence[int]] = [[_stored(row.get(column)) for row in found.values()] for column in TABLES[table]]
    return list(found), columns


def _stored(value: float | None) -> int:
    return NULL if value is None else int(value)


def make_sample(second: float, **tables: Mapping[int, Row]) -> Sample:
    """A sample as a follower gives it."""
    at_ns = int(second * 1e9)
    return Sample(1, START_S * 10**9 + at_ns, at_ns, {name: rows(name, found) for name, found in tables.items()})


def event(kind: str, second: float = 0.0, **fields: Any) -> dict[str, Any]:
    """An event at a second of the run."""
    return {"kind": kind, "wall_ns": int((START_S + second) * 1e9), "mono_ns": int(second * 1e9), **fields}


def steps(count: int, every_s: float, first_s: float = 0.0) -> list[dict[str, Any]]:
    """Marks of steps from 1 on, in even distances."""
    return [event("mark", first_s + index * every_s, step=index + 1, basis="trainer") for index in range(count)]


def step(second: float, number: int) -> dict[str, Any]:
    """The mark of a step."""
    return event("mark", second, step=number, basis="log line")


def phase(second: float, name: str, **fields: Any) -> dict[str, Any]:
    """The mark of a phase."""
    return event("mark", second, phase=name, basis="trainer", **fields)


def write_run(
    folder: Path,
    seconds: int,
    *,
    use: Course | None = None,
    anon: Mapping[str, Course] | None = None,
    shmem: Mapping[str, Course] | None = None,
    host: Mapping[str, Course] | None = None,
    level: Mapping[str, Course] | None = None,
    locked: Mapping[str, Course] | None = None,
    faults: Mapping[str, Course] | None = None,
    events: Iterable[Mapping[str, Any]] = (),
    run: Mapping[str, Any] | None = None,
    limit_bytes: int = LIMIT_BYTES,
    node: str = "n1",
    gpus: Sequence[Course] = (),
    clock: Course = float,
) -> Path:
    """Writes a recorded run with a sample a second; processes are named by their role, with pids from 1001 on.

    Several of one role are told apart by what stands behind a `#`.

    Args:
        use: unreclaimable memory of the cgroup; without it there is no cgroup.
        anon: RssAnon of one process for each role, negative while it is not there; `shmem` and `locked` likewise.
        faults: major faults of one process for each role since its start.
        host, level: more columns of these tables, in MiB; nearly all of the node is available by default.
        run: more of run.json.
        gpus: GPU memory in use, of 80 GiB each; negative where it cannot be read.
        clock: the wall clock at a second, which may have been set.
    """
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps({"schema": RUN_SCHEMA, "node": node, "host": node, **(run or {})}))
    writer = Writer(str(folder), {"node": node, "host": node, "pid": 1})
    writer.event(event("recorder.start"))
    roles = {role: 1 + number for number, role in enumerate(anon or {})}
    for role, uid in roles.items():
        known = role.partition("#")[0]
        writer.event(event("process.seen", uid=uid, pid=1000 + uid, name=known, role=known, command=known))
    if use is not None:
        writer.event(event("cgroup.seen", uid=1, path=CGROUP, version=1, own=True))
    for item in events:
        writer.event(dict(item))
    for second in range(seconds):

        def column(courses: Mapping[str, Course] | None, name: str, at: int = second) -> int | None:
            return int(courses[name](at) * MIB) if courses and name in courses else None

        sizes = {"available_bytes": TOTAL_BYTES * 63 // 64, **{name: column(host, name) for name in host or {}}}
        tables: dict[str, Rows] = {"host": rows("host", {0: {"total_bytes": TOTAL_BYTES, **sizes}})}
        if roles:
            tables["process"] = rows(
                "process",
                {
                    uid: {
                        "rss_anon_bytes": column(anon, role),
                        "rss_shmem_bytes": column(shmem, role) or 0,
                        "locked_bytes": column(locked, role) or 0,
                        "major_faults_count": int(faults[role](second)) if faults and role in faults else None,
                    }
                    for role, uid in roles.items()
                    if (column(anon, role) or 0) >= 0
                },
            )
        if use is not None:
            used = int(use(second) * MIB)
            more = {name: column(level, name) for name in level or {}}
            tables["cgroup"] = rows(
                "cgroup", {1: {"current_bytes": used, "used_bytes": used, "max_bytes": limit_bytes, **more}}
            )
        if gpus:
            used = [int(course(second) * MIB) for course in gpus]
            sizes = [{"total_bytes": 80 * GIB, "used_bytes": size if size >= 0 else NULL} for size in used]
            tables["gpu"] = rows("gpu", dict(enumerate(sizes)))
        writer.sample(int((START_S + clock(second)) * 1e9), int(second * 1e9), tables)
    writer.event(event("recorder.end", seconds, why="the command ended"))
    writer.close()
    return folder


def make_death(
    second: float, pid: int | None = 1001, killer: str = "kernel-oom-cgroup", node: str | None = None
) -> Death:
    """A death at a second of the run."""
    return Death(killer=killer, time=START_S + second, node=node, victim=Process(pid=pid))


def make_case(*folders: Path) -> Case:
    """A case of recorded runs alone."""
    traces = [Recorded(read_node(folder)) for folder in folders]
    return Case(order_events([item for trace in traces for item in make_events(trace)]), traces=traces)


def facts(folder: Path, death: Death | None = None) -> dict[str, Value]:
    """What the recorder's figures say, by name."""
    return {item.name: item.value for item in find_recorded(make_case(folder), death)}


def kernel_lines(second: float, pid: int, path: str = "/job") -> str:
    """What the recorder keeps of the kernel log when the kernel kills in a cgroup."""
    at = f"2023-11-14T22:{13 + int(20 + second) // 60:02d}:{int(20 + second) % 60:02d},000000+00:00"
    return (
        f"{at} oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
        f"oom_memcg={path},task_memcg={path},task=python,pid={pid},uid=0\n"
        f"{at} Memory cgroup out of memory: Killed process {pid} (python) total-vm:20000000kB, "
        "anon-rss:15000000kB, file-rss:0kB, shmem-rss:0kB, UID:0\n"
    )
