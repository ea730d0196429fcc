"""cgroup memory, v2's names for v1's files: the whole chain of ancestors, with the level that binds.

Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst. A limit is often set on an ancestor
(pod, slice, Slurm step), and below a bind mount the path in /proc/PID/cgroup is the host's, of
which only a tail exists in the container. Levels that cannot be seen are reported as hidden.

    memory.max "max" or v1's 9223372036854771712 (a page-rounded LONG_MAX)  ->  None, no limit
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rlhfdoctor.files.walk import walk
from rlhfdoctor.sources.procfs import parse_cgroup, read_file

_NO_LIMIT_BYTES = 2**60
"""v1 has no value for "no limit"; from an exbibyte on it means unlimited."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A mounted cgroup hierarchy that has the memory controller."""

    version: int
    """1 or 2."""
    mount: str
    """Where it is mounted, below the root that was given."""
    top: str
    """Which cgroup is mounted there: "/" on the host, the container's own path with a bind mount."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One cgroup's memory at one moment. None: the kernel does not show it here."""

    path: str
    """Its folder."""
    current_bytes: int | None
    max_bytes: int | None
    """None: no limit."""
    high_bytes: int | None
    """Throttling starts here (v2; v1's soft limit does not throttle)."""
    peak_bytes: int | None
    anon_bytes: int | None
    file_bytes: int | None
    """Page cache, shmem included."""
    shmem_bytes: int | None
    kernel_bytes: int | None
    inactive_file_bytes: int | None
    active_file_bytes: int | None
    unevictable_bytes: int | None
    swap_bytes: int | None
    oom_count: int | None
    """How often an allocation found no memory below this level."""
    oom_kill_count: int | None
    """Processes of this cgroup and below that were killed."""
    oom_group: bool | None
    """memory.oom.group: all processes are killed together."""

    @property
    def used_bytes(self) -> int | None:
        """What cannot be reclaimed: current less the page cache that no one maps as shmem.

        The kernel kills when this reaches the limit; `current` alone reaches it by reading files.
        """
        if self.current_bytes is None:
            return None
        return max(0, self.current_bytes - (self.inactive_file_bytes or 0) - (self.active_file_bytes or 0))


def find_hierarchy(root: str = "", pid: int | str = "self") -> Hierarchy | None:
    """The hierarchy with the memory controller that a process sees, or None.

    On a hybrid machine (v1 controllers and an empty v2 tree) it is v1's; v2's root has no
    `memory` in cgroup.controllers there.
    """
    data = read_file(f"{root}/proc/{pid}/mountinfo") or b""
    found: list[Hierarchy] = []
    for line in data.decode("utf-8", "surrogateescape").splitlines():
        before, mark, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if not mark or len(fields) < 6 or len(kind) < 3:
            continue
        mount, top = _unescape(fields[4]), _unescape(fields[3])
        if kind[0] == "cgroup" and "memory" in kind[2].split(","):
            return Hierarchy(1, root + mount, top)
        if kind[0] == "cgroup2":
            controllers = read_file(f"{root}{mount}/cgroup.controllers") or b""
            if b"memory" in controllers.split():
                found.append(Hierarchy(2, root + mount, top))
    return found[0] if found else None


def _unescape(text: str) -> str:
    """mountinfo writes blanks and backslashes in octal."""
    return _ESCAPE.sub(lambda m: chr(int(m[1], 8)), text)


def find_path(hierarchy: Hierarchy, root: str, pid: int | str) -> str | None:
    """The folder of a process's memory cgroup, or None if the process is gone.

    With a bind mount or in a cgroup namespace the path is matched by its longest tail that exists.
    """
    data = read_file(f"{root}/proc/{pid}/cgroup")
    if data is None:
        return None
    path = parse_cgroup(data).get("memory" if hierarchy.version == 1 else "")
    if path is None:
        return None
    top = hierarchy.top.rstrip("/")
    relative = path[len(top) :] if f"{path}/".startswith(f"{top}/") else path
    parts = [part for part in relative.split("/") if part and part != ".."]
    for start in range(len(parts) + 1):
        folder = "/".join([hierarchy.mount, *parts[start:]])
        if os.path.isdir(folder):
            return folder
    return None


def find_chain(hierarchy: Hierarchy, folder: str) -> list[str]:
    """The folder and its ancestors up to the mount, the nearest first."""
    chain = [folder]
    while chain[-1] != hierarchy.mount and chain[-1].startswith(hierarchy.mount):
        chain.append(chain[-1].rsplit("/", 1)[0])
    return chain


def list_processes(folder: str) -> list[int]:
    """All processes of a cgroup and of those below it."""
    pids: list[int] = []
    for path, _ in walk(folder):
        data = read_file(f"{path}/cgroup.procs") or b""
        pids.extend(int(line) for line in data.split() if line.isdigit())
    return pids


Read = Callable[[str, int], bytes | None]
"""Reads a file, at most so many bytes of it."""
_STAT_V2 = (b"anon", b"file", b"shmem", b"kernel", b"slab", b"inactive_file", b"active_file", b"unevictable")
_STAT_V1 = (
    b"total_rss",
    b"total_cache",
    b"total_shmem",
    b"total_inactive_file",
    b"total_active_file",
    b"total_unevictable",
    b"total_swap",
)


def read_level(hierarchy: Hierarchy, folder: str, last: Level | None = None, read: Read = read_file) -> Level:
    """One level; what is not there is None (the root cgroup of v2 has hardly any of these files).

    Args:
        last: what changes seldom (limits, peak, swap) is taken from there: half of the cost.
        read: reads what changes often.
    """
    return _read_v2(folder, last, read) if hierarchy.version == 2 else _read_v1(folder, last, read)


def _read_v2(folder: str, last: Level | None, read: Read) -> Level:
    stat = _table(folder, "memory.stat", _STAT_V2, read)
    events = _table(folder, "memory.events", (b"oom", b"oom_kill"), read)
    return Level(
        path=folder,
        current_bytes=_number(folder, "memory.current", read),
        max_bytes=last.max_bytes if last else _limit(folder, "memory.max"),
        high_bytes=last.high_bytes if last else _limit(folder, "memory.high"),
        peak_bytes=last.peak_bytes if last else _number(folder, "memory.peak"),
        anon_bytes=stat.get(b"anon"),
        file_bytes=stat.get(b"file"),
        shmem_bytes=stat.get(b"shmem"),
        kernel_bytes=stat.get(b"kernel", stat.get(b"slab")),
        inactive_file_bytes=stat.get(b"inactive_file"),
        active_file_bytes=stat.get(b"active_file"),
        unevictable_bytes=stat.get(b"unevictable"),
        swap_bytes=last.swap_bytes if last else _number(folder, "memory.swap.current"),
        oom_count=events.get(b"oom"),
        oom_kill_count=events.get(b"oom_kill"),
        oom_group=last.oom_group if last else _flag(folder, "memory.oom.group"),
    )


def _read_v1(folder: str, last: Level | None, read: Read) -> Level:
    """The `total_` rows of memory.stat include the cgroups below, as v2's rows do.

    `cache` includes shmem, `rss` is anon, and `rss_huge` is part of `rss` (cgroup-v1/memory.rst 5.2).
    """
    stat = _table(folder, "memory.stat", _STAT_V1, read)
    oom = _table(folder, "memory.oom_control", (b"oom_kill",), read)
    return Level(
        path=folder,
        current_bytes=_number(folder, "memory.usage_in_bytes", read),
        max_bytes=last.max_bytes if last else _limit(folder, "memory.limit_in_bytes"),
        high_bytes=None,
        peak_bytes=last.peak_bytes if last else _number(folder, "memory.max_usage_in_bytes"),
        anon_bytes=stat.get(b"total_rss"),
        file_bytes=stat.get(b"total_cache"),
        shmem_bytes=stat.get(b"total_shmem"),
        kernel_bytes=last.kernel_bytes if last else _number(folder, "memory.kmem.usage_in_bytes"),
        inactive_file_bytes=stat.get(b"total_inactive_file"),
        active_file_bytes=stat.get(b"total_active_file"),
        unevictable_bytes=stat.get(b"total_unevictable"),
        swap_bytes=stat.get(b"total_swap"),
        oom_count=last.oom_count if last else _number(folder, "memory.failcnt"),
        oom_kill_count=oom.get(b"oom_kill"),
        oom_group=None,
    )


def _table(folder: str, name: str, keys: Sequence[bytes], read: Read) -> dict[bytes, int]:
    data = b"\n" + (read(f"{folder}/{name}", 16384) or b"")
    found: dict[bytes, int] = {}
    for key in keys:
        at = data.find(b"\n%b " % key)
        if at >= 0:
            start = at + len(key) + 2
            number = data[start : data.find(b"\n", start)]
            if number.isdigit():
                found[key] = int(number)
    return found


def _number(folder: str, name: str, read: Read = read_file) -> int | None:
    data = (read(f"{folder}/{name}", 64) or b"").strip()
    return int(data) if data.isdigit() else None


def _flag(folder: str, name: str) -> bool | None:
    value = _number(folder, name)
    return None if value is None else bool(value)


def _limit(folder: str, name: str) -> int | None:
    value = _number(folder, name)
    return None if value is None or value >= _NO_LIMIT_BYTES else value
