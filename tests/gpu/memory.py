"""Where memory shows: every figure of the kernel that the recorder reads, before and after an allocation.

    RssAnon, RssShmem, RssFile, VmLck, VmPin   /proc/PID/status
    driver, shared                             mappings of /dev/nvidia*, shared anonymous ones (/proc/PID/maps)
    Pss                                        /proc/PID/smaps_rollup (the recorder never reads it; it stalls the process)
    cgroup anon, file, shmem, unevictable, kernel, current, used
                                               memory.stat of the process's own cgroup (used: less reclaimable file pages)
    MemAvailable, Shmem, AnonPages, Mlocked, Unevictable   /proc/meminfo
    foll_pin                                   pages pinned through pin_user_pages (/proc/vmstat: acquired - released)

All in bytes, read by the recorder's own readers.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlhfdoctor.sources.cgroupfs import find_hierarchy, find_path, read_level
from rlhfdoctor.sources.meminfo import PAGE_BYTES, find_numbers, parse_meminfo, parse_vmstat
from rlhfdoctor.sources.procfs import ProcReader, read_file
from rlhfdoctor.units import KIB

PROCESS = ("RssAnon", "RssShmem", "RssFile", "VmLck", "VmPin", "Pss", "driver", "shared")
CGROUP = ("cgroup anon", "cgroup file", "cgroup shmem", "cgroup unevictable", "cgroup kernel", "cgroup used")
MACHINE = ("MemAvailable", "Shmem", "AnonPages", "Mlocked", "Unevictable", "foll_pin")


def read(root: str = "", pid: int | None = None) -> dict[str, int]:
    """All figures of a process (by default this one), its cgroup and the machine; what is not there is left out."""
    pid = os.getpid() if pid is None else pid
    found: dict[str, int | None] = {**_process(root, pid), **_cgroup(root, pid), **_machine(root)}
    return {name: value for name, value in found.items() if value is not None}


def _process(root: str, pid: int) -> dict[str, int | None]:
    reader = ProcReader(root, pid)
    try:
        status, maps = reader.status(), reader.maps()
    finally:
        reader.close()
    found: dict[str, int | None] = dict(
        find_numbers(read_file(f"{root}/proc/{pid}/smaps_rollup") or b"", {b"\nPss:": "Pss"}, KIB)
    )
    if status is not None:
        found |= {
            "RssAnon": status.rss_anon_bytes,
            "RssShmem": status.rss_shmem_bytes,
            "RssFile": status.rss_file_bytes,
            "VmLck": status.locked_bytes,
            "VmPin": status.pinned_bytes,
        }
    if maps is not None:
        found |= {"driver": maps.driver_bytes, "shared": maps.anonymous_bytes}
    return found


def _cgroup(root: str, pid: int) -> dict[str, int | None]:
    hierarchy = find_hierarchy(root)
    folder = find_path(hierarchy, root, pid) if hierarchy is not None else None
    if hierarchy is None or folder is None or folder == hierarchy.mount:
        return {}
    level = read_level(hierarchy, folder)
    return {
        "cgroup anon": level.anon_bytes,
        "cgroup file": level.file_bytes,
        "cgroup shmem": level.shmem_bytes,
        "cgroup unevictable": level.unevictable_bytes,
        "cgroup kernel": level.kernel_bytes,
        "cgroup used": level.used_bytes,
    }


def _machine(root: str) -> dict[str, int | None]:
    host = parse_meminfo(read_file(f"{root}/proc/meminfo", 16384) or b"")
    counters = parse_vmstat(read_file(f"{root}/proc/vmstat", 32768) or b"")
    acquired, released = counters.get("foll_pin_acquired_count"), counters.get("foll_pin_released_count")
    return {
        "MemAvailable": host.get("available_bytes"),
        "Shmem": host.get("shmem_bytes"),
        "AnonPages": host.get("anon_bytes"),
        "Mlocked": host.get("locked_bytes"),
        "Unevictable": host.get("unevictable_bytes"),
        "foll_pin": None if acquired is None or released is None else (acquired - released) * PAGE_BYTES,
    }


def shares(before: Mapping[str, int], after: Mapping[str, int], size: int) -> dict[str, float]:
    """How much each figure grew, over the bytes that were asked for; MemAvailable is what it fell by.

    >>> shares({"RssAnon": 10, "MemAvailable": 90}, {"RssAnon": 110, "MemAvailable": 40, "VmLck": 7}, 100)
    {'RssAnon': 1.0, 'MemAvailable': 0.5}
    """
    grown = {name: after[name] - before[name] for name in before if name in after}
    return {name: round((-by if name == "MemAvailable" else by) / size, 3) for name, by in grown.items()}


@contextlib.contextmanager
def own_cgroup(limit_bytes: int | None = None) -> Iterator[Path]:
    """A memory cgroup of this machine, removed at the end; processes are moved by writing to its `cgroup.procs`.

    Raises:
        OSError: no memory controller that we may write to.
    """
    hierarchy = find_hierarchy()
    here = find_path(hierarchy, "", "self") if hierarchy is not None else None
    if hierarchy is None or here is None:
        raise OSError("no memory cgroup is mounted here")
    above = Path(here if hierarchy.version == 1 else hierarchy.mount)  # v2: no processes beside children
    if hierarchy.version == 2:
        with contextlib.suppress(OSError):
            (above / "cgroup.subtree_control").write_text("+memory")
    folder = Path(tempfile.mkdtemp(prefix="rlhfdoctor-gpu-", dir=above))
    try:
        if limit_bytes is not None:
            name = "memory.max" if hierarchy.version == 2 else "memory.limit_in_bytes"
            (folder / name).write_text(str(limit_bytes))
        yield folder
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()


@contextlib.contextmanager
def inside(folder: Path) -> Iterator[None]:
    """This process in that cgroup, and back again; what it allocated meanwhile stays charged there."""
    hierarchy = find_hierarchy()
    before = find_path(hierarchy, "", "self") if hierarchy is not None else None
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        if before is not None:
            Path(before, "cgroup.procs").write_text(str(os.getpid()))
