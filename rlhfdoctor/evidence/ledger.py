"""The ledger: named parts that add up to what was in use, the remainder always shown."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, page_size, whole
from rlhfdoctor.evidence.recorded import Scene, find_holders, find_scene
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Death, Part
from rlhfdoctor.units import show_time


def make_ledger(case: Case, death: Death | None = None) -> Iterator[Part]:
    """Parts of the recorder's last sample, else of the kernel's task table against the cgroup's use, else of Ray's table."""
    scene = find_scene(case, death)
    if scene is not None and scene.use:
        yield from _recorded(scene)
        return
    usage = case.first("kernel.memcg_usage")
    rows = case.of("kernel.task")
    if rows:
        page = page_size(rows, case.first("kernel.killed"))
        table: dict[int, tuple[str, int]] = {}
        for row in rows:
            table[whole(row, "pid") or 0] = (str(row.fields["comm"]), (whole(row, "rss_pages") or 0) * page)
        yield from _parts(list(table.values()), whole(usage, "usage_bytes"), "rss of the kernel's task table")
        return
    kill = case.first("ray.memory_kill", "ray.memory_kill_numbers")
    header = case.first("ray.memory_top")
    top = read_top(header.after, header.text) if header is not None else []
    if top:
        yield from _parts([(name, size) for _, size, name in top], whole(kill, "used_bytes"), "Ray's ten largest")


def _recorded(scene: Scene) -> Iterator[Part]:
    """Anonymous memory by role, then what no process owns alone; the rest is shown, whatever its sign."""
    trace, until_s = scene.trace, scene.until_s
    roles: dict[str, int] = {}
    for holder in find_holders(scene):
        roles[holder.role] = roles.get(holder.role, 0) + holder.anon_bytes
    at = f"at the last sample, {show_time(scene.use[-1][0])}"
    for role, size in sorted(roles.items(), key=lambda item: -item[1]):
        yield Part(part=f"{role} anon", bytes=size, basis=f"RssAnon {at}")
    if scene.limit == "node":
        total = scene.use[-1][1]
        rows = {"shmem (plasma, /dev/shm, page-locked)": "shmem_bytes", "kernel page tables": "page_tables_bytes", "kernel stacks": "kernel_stack_bytes"}  # fmt: skip
        parts = {name: trace.last("host", 0, column, until_s) or 0 for name, column in rows.items()}
        anon = trace.last("host", 0, "anon_bytes", until_s)
        slab, free_slab = (trace.last("host", 0, f"slab{kind}_bytes", until_s) or 0 for kind in ("", "_reclaimable"))
        parts["kernel slab"] = slab - free_slab
        names = ("free", "buffers", "cached", "available")
        free, buffers, cached, available = (trace.last("host", 0, f"{name}_bytes", until_s) or 0 for name in names)
        reclaimable = free + buffers + cached - (trace.last("host", 0, "shmem_bytes", until_s) or 0) + free_slab
        parts["reserves and cache that MemAvailable leaves out"] = max(0, reclaimable - available)
        basis = "/proc/meminfo"
    else:
        uid = next(int(uid) for uid, row in trace.known["cgroup"].items() if row.get("path") == scene.limit)
        values = {name: trace.last("cgroup", uid, f"{name}_bytes", until_s) or 0 for name in ("current", "anon", "file", "shmem", "kernel")}  # fmt: skip
        total, anon = values["current"], values["anon"]
        parts = {"shmem (plasma, /dev/shm, page-locked)": values["shmem"], "page cache": max(0, values["file"] - values["shmem"]), "kernel": values["kernel"]}  # fmt: skip
        basis = f"memory.stat of {scene.limit}"
    if anon is not None and anon - sum(roles.values()) > 0:
        parts["anon of other processes"] = anon - sum(roles.values())
    for name, size in sorted(parts.items(), key=lambda item: -item[1]):
        if size:
            yield Part(part=name, bytes=size, basis=basis)
    rest = total - sum(parts.values()) - sum(roles.values())
    yield Part(part="unexplained", bytes=rest, basis=f"use of {scene.limit if scene.limit != 'node' else 'the node'} less the rows above")  # fmt: skip


def _parts(rows: list[tuple[str, int]], total: int | None, basis: str) -> Iterator[Part]:
    sums: dict[str, int] = {}
    for name, size in rows:
        part = find_role(name) or ("other Ray workers" if name.startswith("ray::") else "other processes")
        sums[part] = sums.get(part, 0) + size
    for part, size in sorted(sums.items(), key=lambda item: -item[1]):
        yield Part(part=part, bytes=size, basis=basis)
    if total is not None:
        rest = total - sum(sums.values())
        yield Part(part="unexplained", bytes=rest, basis="use of the limit's owner less the rows above")
