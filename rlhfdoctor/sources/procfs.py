"""/proc/PID of one process: status, stat, io, cmdline, cgroup, maps.

Documented in proc(5) and Documentation/filesystems/proc.rst. `status` and `stat` cost the same at
any size of the process (7 to 20 us); `smaps_rollup` walks page tables and stalls the process for as
long (123 ms at 10 GiB), so nothing here reads it. `maps` walks no page table.

    VmRSS:   12345 kB      ->  12641280 (kB of the kernel is 1024 bytes)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from rlhfdoctor.files.read import open_descriptor
from rlhfdoctor.sources.meminfo import find_numbers
from rlhfdoctor.units import KIB

TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Status(NamedTuple):
    """Memory of one process, from /proc/PID/status. None: the kernel does not show that line."""

    comm: str
    state: str
    """One letter: R, S, D, Z, T, X."""
    threads_count: int
    rss_anon_bytes: int | None
    rss_file_bytes: int | None
    rss_shmem_bytes: int | None
    swap_bytes: int | None
    locked_bytes: int | None
    """VmLck: mlock(2)."""
    pinned_bytes: int | None
    """VmPin: pages that may not move (RDMA, io_uring)."""
    peak_bytes: int | None
    """VmHWM: the highest RSS so far."""


class Stat(NamedTuple):
    """Identity and CPU time of one process, from /proc/PID/stat."""

    ppid: int
    start_ticks: int
    """Start time in clock ticks since boot; with pid and boot id it names the process for ever."""
    cpu_ticks: int
    """User and system time."""
    major_faults_count: int


class Io(NamedTuple):
    """Bytes that a process really moved, from /proc/PID/io."""

    read_bytes: int
    write_bytes: int


@dataclass(frozen=True, slots=True)
class Mappings:
    """Sizes of shared mappings by kind, from /proc/PID/maps: address space, not resident pages."""

    plasma_bytes: int
    """Ray's object store."""
    dev_shm_bytes: int
    """Files in /dev/shm that still have a name."""
    deleted_bytes: int
    """/dev/shm files that were unlinked and are still mapped."""
    memfd_bytes: int
    driver_bytes: int
    """Device files of the GPU driver: page-locked host buffers and GPU apertures."""
    anonymous_bytes: int
    """Shared anonymous memory (/dev/zero)."""
    objects: tuple[tuple[int, str, int], ...]
    """(inode, path, mapped bytes) of every object in /dev/shm."""


_STATUS_LINES = {
    b"\nRssAnon:": "anon",
    b"\nRssFile:": "file",
    b"\nRssShmem:": "shmem",
    b"\nVmSwap:": "swap",
    b"\nVmLck:": "locked",
    b"\nVmPin:": "pinned",
    b"\nVmHWM:": "peak",
}
_STATUS_ROW = [
    b"VmLck:",
    b"VmPin:",
    b"VmHWM:",
    b"VmRSS:",
    b"RssAnon:",
    b"RssFile:",
    b"RssShmem:",
    b"VmData:",
    b"VmStk:",
    b"VmExe:",
    b"VmLib:",
    b"VmPTE:",
    b"VmSwap:",
]
"""The lines from VmLck on as Linux 4.5 and later write them (fs/proc/task_mmu.c, task_mem)."""


def parse_status(data: bytes) -> Status | None:
    """Memory of a process; None if it is not a status file. Kernel threads have no memory lines.

    >>> s = parse_status(b"Name:\\tpython\\nState:\\tS (sleeping)\\nRssAnon:\\t 8 kB\\nThreads:\\t3\\n")
    >>> s.comm, s.state, s.threads_count, s.rss_anon_bytes, s.rss_shmem_bytes
    ('python', 'S', 3, 8192, None)
    """
    if not data.startswith(b"Name:\t"):
        return None
    state = data.find(b"\nState:\t")
    threads = data.find(b"\nThreads:\t")
    count = data[threads + 10 : data.find(b"\n", threads + 10)] if threads >= 0 else b""
    sizes: tuple[int | None, ...]
    at = data.find(b"\nVmLck:")
    row = data[at : at + 512].split() if at >= 0 else []
    if row[0:39:3] == _STATUS_ROW:
        try:
            sizes = tuple([int(kib) << 10 for kib in (row[13], row[16], row[19], row[37], row[1], row[4], row[7])])
        except (IndexError, ValueError):
            return None
    else:  # a kernel thread, or a kernel with other lines
        found = find_numbers(data, _STATUS_LINES, KIB)
        sizes = tuple(found.get(name) for name in _STATUS_LINES.values())
    return Status(
        data[6 : data.find(b"\n")].decode("utf-8", "replace"),
        chr(data[state + 8]) if state >= 0 and state + 8 < len(data) else "?",
        int(count) if count.isdigit() else 0,
        *sizes,
    )


def parse_stat(data: bytes) -> Stat | None:
    """Fields behind the last parenthesis, since a command name may hold spaces and parentheses.

    >>> parse_stat(b"7 (a) b) S 1 7 7 0 -1 4 0 0 12 0 30 5 0 0 20 0 1 0 4711 0 0")
    Stat(ppid=1, start_ticks=4711, cpu_ticks=35, major_faults_count=12)
    """
    fields = data[data.rfind(b")") + 1 :].split()
    try:
        return Stat(int(fields[1]), int(fields[19]), int(fields[11]) + int(fields[12]), int(fields[9]))
    except (IndexError, ValueError):
        return None


def parse_io(data: bytes) -> Io | None:
    """Bytes read from and written to storage.

    >>> parse_io(b"rchar: 9\\nread_bytes: 4096\\nwrite_bytes: 0\\n")
    Io(read_bytes=4096, write_bytes=0)
    """
    found = dict(line.split(b": ", 1) for line in data.split(b"\n") if b": " in line)
    try:
        return Io(int(found[b"read_bytes"]), int(found[b"write_bytes"]))
    except (KeyError, ValueError):
        return None


def parse_cmdline(data: bytes, most_count: int = 2000) -> str:
    """The command line for people: arguments joined by blanks, cut to a number of characters.

    >>> parse_cmdline(b"python\\x00train.py\\x00")
    'python train.py'
    """
    return data.replace(b"\0", b" ").strip()[:most_count].decode("utf-8", "replace")


def parse_cgroup(data: bytes) -> dict[str, str]:
    """Controller -> path; "" is the v2 hierarchy. Paths keep their colons.

    >>> parse_cgroup(b"4:memory:/a:b\\n3:cpu,cpuacct:/c\\n0::/d\\n")
    {'memory': '/a:b', 'cpu': '/c', 'cpuacct': '/c', '': '/d'}
    """
    found: dict[str, str] = {}
    for line in data.decode("utf-8", "surrogateescape").split("\n"):
        parts = line.split(":", 2)
        if len(parts) == 3:
            for controller in parts[1].split(","):
                found[controller] = parts[2]
    return found


_DRIVERS = ("/dev/nvidia", "/dev/dri/", "/dev/kfd", "/dev/infiniband")


def parse_maps(data: bytes) -> Mappings:
    """Shared mappings by kind; an object that is mapped several times counts once, at its largest.

    >>> deleted = b"7f00-7f01 rw-s 0 00:18 9 /dev/shm/plasmaX (deleted)\\n"
    >>> m = parse_maps(deleted + b"7f01-7f03 rw-s 0 00:18 8 /dev/shm/a b\\n")
    >>> m.plasma_bytes, m.dev_shm_bytes, m.objects
    (1, 2, ((9, '/dev/shm/plasmaX', 1), (8, '/dev/shm/a b', 2)))
    """
    sums = {"plasma": 0, "shm": 0, "deleted": 0, "memfd": 0, "driver": 0, "anonymous": 0}
    objects: dict[int, tuple[str, int]] = {}
    for line in data.split(b"\n"):
        parts = line.split(maxsplit=5)
        if len(parts) < 6 or parts[1][3:4] != b"s":
            continue
        low, _, high = parts[0].partition(b"-")
        try:
            size, inode = int(high, 16) - int(low, 16), int(parts[4])
        except ValueError:
            continue
        path = parts[5].decode("utf-8", "replace")
        if path.startswith("/dev/shm/"):
            name = path.removesuffix(" (deleted)")
            kind = "plasma" if name.startswith("/dev/shm/plasma") else "shm" if name == path else "deleted"
            before = objects.get(inode, (name, 0))[1]
            objects[inode] = (name, max(before, size))
            size = max(0, size - before)
        elif path.startswith("/memfd:"):
            kind = "memfd"
        elif path.startswith(_DRIVERS):
            kind = "driver"
        elif path.startswith("/dev/zero"):
            kind = "anonymous"
        else:
            continue
        sums[kind] += size
    return Mappings(
        sums["plasma"],
        sums["shm"],
        sums["deleted"],
        sums["memfd"],
        sums["driver"],
        sums["anonymous"],
        tuple((inode, name, size) for inode, (name, size) in objects.items()),
    )


def read_file(path: str, limit_bytes: int = 1 << 20, folder: int | None = None) -> bytes | None:
    """A small file at once, or None where it is absent or not readable; `folder` is what a relative path is below."""
    try:
        handle = open_descriptor(path, follow=False, folder=folder)
    except OSError:
        return None
    try:
        data = os.read(handle, limit_bytes)
        while len(data) < limit_bytes:  # /proc gives at most a page or so a read for some files
            more = os.read(handle, limit_bytes - len(data))
            if not more:
                break
            data += more
        return data
    except OSError:
        return None
    finally:
        os.close(handle)


class ProcReader:
    """One process through kept descriptors: a dead process cannot be mistaken for its pid's next owner."""

    __slots__ = ("_folder", "_statm", "_status")

    def __init__(self, root: str, pid: int) -> None:
        """Raises OSError where the process is gone or not ours to read."""
        self._status = self._statm = -1
        self._folder = os.open(f"{root}/proc/{pid}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._status = os.open("status", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
            self._statm = os.open("statm", os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._folder)
        except OSError:
            self.close()
            raise

    def statm(self) -> bytes:
        """Sizes in pages as the kernel writes them; a third of the cost of `status`. Empty once the process is gone."""
        try:
            return os.pread(self._statm, 128, 0)
        except OSError:
            return b""

    def status(self) -> Status | None:
        """None once the process is gone."""
        try:
            return parse_status(os.pread(self._status, 16384, 0))
        except OSError:
            return None

    def stat(self) -> Stat | None:
        """None once the process is gone."""
        return parse_stat(read_file("stat", 2048, self._folder) or b"")

    def io(self) -> Io | None:
        """None where the kernel does not let us (another user's process)."""
        return parse_io(read_file("io", 512, self._folder) or b"")

    def cmdline(self) -> str:
        """Empty for kernel threads and zombies."""
        return parse_cmdline(read_file("cmdline", 4096, self._folder) or b"")

    def maps(self) -> Mappings | None:
        """Shared mappings by kind; takes about a millisecond for a large Python process."""
        data = read_file("maps", 16 << 20, self._folder)
        return None if data is None else parse_maps(data)

    def close(self) -> None:
        """Gives the descriptors back."""
        for handle in (self._folder, self._status, self._statm):
            if handle >= 0:
                os.close(handle)
        self._folder = self._status = self._statm = -1


def has_moved(before: bytes, after: bytes, pages: int = 128) -> bool:
    """Whether the resident size in two texts of `statm` differs by at least a number of pages; a zombie's are all zero.

    >>> has_moved(b"900 100 50 1 0 9 0", b"950 227 50 1 0 9 0"), has_moved(b"900 100 5 1 0 9 0", b"0 0 0 0 0 0 0")
    (False, True)
    """
    if before == after:
        return False
    try:
        one, two = int(before.split(b" ", 2)[1]), int(after.split(b" ", 2)[1])
        return abs(one - two) >= pages or two == 0
    except (IndexError, ValueError):
        return True


def read_boot_id(root: str = "") -> str:
    """The id of this boot, or "" where it cannot be read."""
    return (read_file(f"{root}/proc/sys/kernel/random/boot_id", 64) or b"").decode("ascii", "replace").strip()


def has_host_pids(root: str = "") -> bool:
    """Whether our pids are the kernel log's: the first pid namespace has a fixed inode (include/linux/proc_ns.h)."""
    try:
        return os.stat(f"{root}/proc/self/ns/pid").st_ino == 0xEFFFFFFC
    except OSError:
        return False


def list_pids(root: str = "") -> list[int]:
    """All process ids in ascending order."""
    try:
        return sorted(int(name) for name in os.listdir(f"{root}/proc") if name.isdigit())
    except OSError:
        return []
