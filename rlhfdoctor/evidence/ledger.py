"""The ledger: named parts that add up to what was in use, the remainder always shown."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, page_size, whole
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window, find_process_usage
from rlhfdoctor.i18n.message import Message, quoted, say, term
from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Death, Part
from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary import RECORD_FIELD as R


def make_ledger(case: Case, death: Death | None = None) -> Iterator[Part]:
    """Parts of the recorder's last sample, else of the kernel's task table against the cgroup's use, else of Ray's."""
    window = find_failure_window(case, death)
    if window is not None and window.use:
        yield from _recorded(window)
        return
    rows = case.of(EVENT.kernel.task)
    if rows:
        files = {row.origin.file for row in rows}
        where = death.event.origin.file if death is not None and death.event is not None else ""
        file = where if where in files else rows[0].origin.file  # each kernel log is another machine's
        rows = [row for row in rows if row.origin.file == file]
        usage = next((e for e in case.of(EVENT.kernel.memcg_usage) if e.origin.file == file), None)
        page = page_size(rows, case.first(EVENT.kernel.killed))
        table: dict[int, tuple[str, int]] = {}
        for row in rows:
            table[whole(row, FIELD.pid) or 0] = (str(row.fields[FIELD.comm]), (whole(row, FIELD.rss_pages) or 0) * page)
        yield from _parts(list(table.values()), whole(usage, FIELD.usage_bytes), say("rss of the kernel's task table"))
        return
    kill = case.first(EVENT.ray.memory_kill, EVENT.ray.memory_kill_numbers)
    header = case.first(EVENT.ray.memory_top)
    top = read_top(header.after, header.text) if header is not None else []
    if top:
        yield from _parts(
            [(name, size) for _, size, name in top], whole(kill, FIELD.used_bytes), say("Ray's ten largest")
        )


def _recorded(window: FailureWindow) -> Iterator[Part]:
    """At the peak of the use: anonymous and page-locked memory by role, then what no process owns alone, then the rest.

    What the kernel counts once and processes count each (pages shared after a fork) is a row of its own, below zero;
    the rest is always shown.
    """
    peak_s, total = max(window.use, key=lambda point: point[1])
    at = say("at the peak, {at:time}", at=peak_s)
    anon_by_role: dict[str, int] = {}
    locked_by_role: dict[str, int] = {}
    for usage in find_process_usage(window, peak_s):
        anon_by_role[usage.role] = anon_by_role.get(usage.role, 0) + usage.anon_bytes
        locked_by_role[usage.role] = locked_by_role.get(usage.role, 0) + min(usage.locked_bytes, usage.shmem_bytes)
    kept, sums = _node_parts(window, peak_s) if window.of_node else _cgroup_parts(window, peak_s)
    total, anon, shmem = sums.get("use", total), sums["anon"], sums["shmem"]
    rows = [
        (say("{role} anon", role=term(role)), size, say("RssAnon {at}", at=at)) for role, size in anon_by_role.items()
    ]
    rows += [
        (say("{role} page-locked", role=term(role)), size, say("VmLck within RssShmem {at}", at=at))
        for role, size in locked_by_role.items()
        if size
    ]
    rest = shmem - sum(locked_by_role.values())
    basis = quoted("/proc/meminfo") if window.of_node else say("memory.stat of {limit}", limit=window.limit)
    rows += [*_shared(window, peak_s, rest, basis), *((name, size, basis) for name, size in kept.items())]
    others = anon - sum(anon_by_role.values())
    word = (
        say("anon of other processes")
        if others >= 0
        else say("pages that processes share after a fork, counted in each row")
    )
    rows.append((word, others, basis))
    for part, size, why in sorted(rows, key=lambda row: -row[1]):
        if size:
            yield Part(part=part, bytes=size, basis=why)
    left = total - sum(size for _, size, _ in rows)
    yield Part(
        part=say("unexplained"),
        is_rest=True,
        bytes=left,
        basis=say(
            "use of {limit} less the rows above",
            limit=say("the node") if window.of_node else quoted(window.limit),
        ),
    )


def _shared(window: FailureWindow, at_s: float, rest: int, basis: Message) -> Iterator[tuple[Message, int, Message]]:
    """Shared memory that is not page-locked: named files in /dev/shm, unlinked ones, and the rest.

    Plasma unlinks its files at once. All is in one row where the recorder's /dev/shm holds more than that: then it is a
    different mount than the job's, or other jobs use it, too.
    """
    used, unlinked = (window.trace.last("host", 0, f"shm_{name}_bytes", at_s) or 0 for name in ("used", "unlinked"))
    if not MIB <= used <= rest:
        yield say("other shared memory (object store, /dev/shm)"), rest, basis
        return
    nameless = min(unlinked, used)
    yield say("object store (unlinked files of /dev/shm)"), nameless, say("statvfs of /dev/shm less its files")
    yield say("files in /dev/shm"), used - nameless, say("sizes of the files in /dev/shm")
    yield say("other shared memory"), rest - used, say("{basis}, less /dev/shm", basis=basis)


def _node_parts(window: FailureWindow, at_s: float) -> tuple[dict[Message, int], dict[str, int]]:
    """Memory that MemAvailable does not count, from /proc/meminfo; the caller splits `anon` and `shmem` further."""

    def last(name: str) -> int:
        return window.trace.last("host", 0, f"{name}_bytes", at_s) or 0

    free_slab = last("slab_reclaimable")
    reclaimable = last("free") + last("buffers") + last("cached") - last("shmem") + free_slab
    parts = {
        say("kernel page tables"): last("page_tables"),
        say("kernel stacks"): last("kernel_stack"),
        say("kernel slab"): last("slab") - free_slab,
        say("free pages in the CPUs' own lists"): last("cpu_lists"),
        say("reserves and cache that MemAvailable leaves out"): max(0, reclaimable - last("available")),
    }
    return parts, {"anon": last("anon"), "shmem": last("shmem")}


def _cgroup_parts(window: FailureWindow, at_s: float) -> tuple[dict[Message, int], dict[str, int]]:
    """Memory from memory.stat; `use` is the total, page cache included."""
    uid = next(int(uid) for uid, row in window.trace.known["cgroup"].items() if row.get(R.path) == window.limit)
    values = {
        name: window.trace.last("cgroup", uid, f"{name}_bytes", at_s) or 0
        for name in ("current", "anon", "file", "shmem", "kernel")
    }
    parts = {
        say("page cache"): max(0, values["file"] - values["shmem"]),
        say("kernel"): values["kernel"],
    }
    return parts, {"use": values["current"], "anon": values["anon"], "shmem": values["shmem"]}


def _parts(rows: list[tuple[str, int]], total: int | None, basis: Message) -> Iterator[Part]:
    sums: dict[Message, int] = {}
    for name, size in rows:
        role = find_role(name)
        other = say("other Ray workers") if name.startswith("ray::") else say("other processes")
        part = term(role) if role else other
        sums[part] = sums.get(part, 0) + size
    for part, size in sorted(sums.items(), key=lambda item: -item[1]):
        yield Part(part=part, bytes=size, basis=basis)
    if total is not None:
        rest = total - sum(sums.values())
        yield Part(
            part=say("unexplained"), is_rest=True, bytes=rest, basis=say("use of the limit's owner less the rows above")
        )
