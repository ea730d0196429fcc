"""What the recorder follows: a command, process trees, a cgroup or a Ray node, through forks or respawns.

A process is (pid, start time, boot id); within a trace it has a number, its `uid`. Descendants are
found by their parent; once followed, a process stays followed when its parent dies. Where the
recorder started the command it is the subreaper, so that orphans come to it and are not lost.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.sources.cgroupfs import list_processes
from rlhfdoctor.sources.kept import KeptFiles
from rlhfdoctor.sources.procfs import Mappings, ProcReader, Stat, Status, has_moved, list_pids, parse_stat, read_file

_RECHECK_TICKS = 60
_STILL_READS = 3
"""Reads in a row in which a process did not move, from which on it is read more rarely."""
_STILL_EVERY = 4
"""In ticks."""
FORKED = "a forked copy of its parent"
"""What a role rests on that a better name may replace."""


@dataclass(slots=True, eq=False)
class Process:
    """A followed process with what was last read of it."""

    uid: int
    pid: int
    start_ticks: int
    ppid: int
    reader: ProcReader
    command: str = ""
    name: str = ""
    """Ray's name for it, or its own title."""
    role: str | None = None
    basis: str = ""
    """What the role rests on."""
    status: Status | None = None
    pages: bytes = b""
    """`statm` when `status` was read."""
    slow: tuple[int, int, int, int] = (0, 0, 0, 0)
    """CPU ticks, major faults, bytes read and written, as last read."""
    row: tuple[int, ...] = ()
    """The stored row; empty if it must be encoded again."""
    mappings: Mappings | None = None
    mapped_at_bytes: int = 0
    """RssShmem when `mappings` was read."""
    seen_ns: tuple[int, int] | None = None
    """When that was stored: wall clock and monotonic."""
    first_tick: int = 0
    """Tick at which it was first seen."""
    due: int = 0
    """Tick at which it is read in full again."""
    still_reads: int = 0
    """Reads in a row in which it did not move."""

    @property
    def is_still(self) -> bool:
        """Whether it has not moved for some reads."""
        return self.still_reads >= _STILL_READS

    @property
    def rss_bytes(self) -> int:
        """All three kinds together, as last read."""
        s = self.status
        return 0 if s is None else (s.rss_anon_bytes or 0) + (s.rss_file_bytes or 0) + (s.rss_shmem_bytes or 0)

    @property
    def held_bytes(self) -> int:
        """The same without pages of files."""
        s = self.status
        return 0 if s is None else (s.rss_anon_bytes or 0) + (s.rss_shmem_bytes or 0)


class Target:
    """The set of followed processes."""

    def __init__(
        self,
        root: str = "",
        *,
        pids: Iterable[int] = (),
        cgroup: str | None = None,
        adopt: int | None = None,
        ignore: Iterable[int] = (),
        named_ticks: int = sys.maxsize,
    ) -> None:
        """Follows these pids with all their descendants, or all processes of a cgroup folder.

        Args:
            adopt: orphans come to this pid (the recorder's own, as the subreaper).
            ignore: never followed (the recorder itself).
            named_ticks: by when `pids` were named, in the kernel's ticks since the boot; a later owner of such a pid
                is another process.
        """
        self._root, self._cgroup, self._adopt = root, cgroup, adopt
        self._roots = set(pids)
        self._named, self._named_ticks = frozenset(self._roots), named_ticks
        self._kept = KeptFiles()
        self.ignore = set(ignore)
        """Pids that are never followed: our own, and what we started ourselves."""
        self.processes: dict[int, Process] = {}
        """By pid."""
        self.ever: set[int] = set()
        """Every pid that was followed at some time."""
        self._others: set[int] = set()
        self._next_uid = 1
        self._last_pid = b""
        self._tick = 0
        self._left: list[Process] = []
        """Processes that the last sweep did not read."""
        self.moved_bytes = 0
        """What the processes that were read have gained since they were read before, files' pages left out."""

    def add_root(self, pid: int) -> None:
        """Follows one more tree."""
        self._roots.add(pid)
        self._others.clear()  # its children were not followed until now
        self._last_pid = b""

    def discover(self) -> list[Process]:
        """Processes that are new since the last call."""
        self._tick += 1
        last = (self._kept.read(f"{self._root}/proc/loadavg", 128) or b"").rsplit(b" ", 1)[-1]
        recheck = self._tick % _RECHECK_TICKS == 0
        if last and last == self._last_pid and not recheck and self._cgroup is None:
            return []  # no process and no thread was made meanwhile
        self._last_pid = last
        pids = list_pids(self._root)
        alive = set(pids)
        self._others &= alive
        if recheck:
            self._others.clear()  # a pid may have a new owner
        members = set(list_processes(self._cgroup)) if self._cgroup is not None else set()
        strangers: dict[int, Stat] = {}
        for pid in pids:
            if pid in self.processes or pid in self.ignore or (pid in self._others and pid not in members):
                continue
            stat = parse_stat(read_file(f"{self._root}/proc/{pid}/stat", 1024) or b"")
            if stat is not None:
                strangers[pid] = stat
        found: list[Process] = []
        grown = True
        while grown:  # a child may have a lower pid than its parent
            grown = False
            for pid, stat in list(strangers.items()):
                if self._is_ours(pid, stat) or pid in members:
                    del strangers[pid]
                    process = self._follow(pid, stat)
                    if process is not None:
                        found.append(process)
                        grown = True
        self._others.update(strangers)
        return found

    def _is_ours(self, pid: int, stat: Stat) -> bool:
        """Whether it is one that was named, or a child; between two ticks a pid may have got a new owner."""
        if pid in self._roots and (pid not in self._named or stat.start_ticks <= self._named_ticks):
            return True
        parent = self.processes.get(stat.ppid)
        if parent is None:
            return stat.ppid == self._adopt
        return bool(parent.reader.statm())

    def _follow(self, pid: int, stat: Stat) -> Process | None:
        try:
            reader = ProcReader(self._root, pid)
        except OSError:
            return None
        process = Process(uid=self._next_uid, pid=pid, start_ticks=stat.start_ticks, ppid=stat.ppid, reader=reader)
        self._next_uid += 1
        process.command = reader.cmdline()
        parent = self.processes.get(stat.ppid)
        if parent is not None and parent.command == process.command:
            process.command = parent.command  # of thousands of forks, one text
        self.processes[pid] = process
        self.ever.add(pid)
        self.name(process)
        return process

    def name(self, process: Process, ray_name: str | None = None) -> bool:
        """Finds name and role again; whether they changed."""
        before = (process.name, process.role)
        title = process.command
        comm = process.status.comm if process.status else ""
        if ray_name and not title.startswith("ray::" + ray_name):
            process.name = ray_name
        elif title.startswith(("ray::", "VLLM::", "sglang::")):
            process.name = title[:200]
        else:
            process.name = ray_name or comm or os.path.basename(title.split(" ", 1)[0])
        role, basis = self._role(process, title, comm, ray_name)
        if role is not None and process.basis != "probe":
            process.role, process.basis = role, basis
        return before != (process.name, process.role)

    def _role(self, process: Process, title: str, comm: str, ray_name: str | None) -> tuple[str | None, str]:
        if ray_name and (role := find_role(f"ray::{ray_name}")):
            return role, f"Ray names it {ray_name}"
        if comm == "pt_data_worker":
            return "data loader", "torch names its thread pt_data_worker"
        if title.startswith(("ray::", "VLLM::", "sglang::")):
            role = find_role(title)
            return role, f"its title {title[:60]}"
        parent = self.processes.get(process.ppid)
        if parent is not None and parent.command == process.command and "python" in title:
            return "data loader" if "loader" in comm else "worker", FORKED
        program = find_role(os.path.basename(title.split(" ", 1)[0]))
        if program is None and process.pid in self._roots:
            return "driver", "the command that is watched"
        return program or find_role(title), "its command line"

    def drop(self, process: Process) -> None:
        """A process that is gone."""
        process.reader.close()
        self.processes.pop(process.pid, None)
        self._roots.discard(process.pid)
        self._last_pid = b""

    def sweep(self, is_due: Callable[[Process], bool], *, every: bool = True) -> list[Process]:
        """Reads every process whose resident size moved, and those that are due; the gone ones are returned.

        `statm` of all of them costs a third of `status`; an idle process is read in full when
        it is due only, with CPU time. A figure is thus off by at most 127 pages.

        Args:
            is_due: whether a process is to be read in full.
            every: reads also those that stood still at their last reads and whose turn it is not (`sweep_rest`).
        """
        self._left.clear()
        self.moved_bytes = 0
        gone: list[Process] = []
        for process in self.processes.values():
            due = is_due(process)
            if (
                process.is_still
                and not (every or due)
                and (process.uid + self._tick) % _STILL_EVERY
                and process.pid not in self._roots
            ):
                self._left.append(process)
            elif not self._read(process, due):
                gone.append(process)
        return gone

    def sweep_rest(self) -> list[Process]:
        """Reads what the last sweep did not; the gone ones are returned."""
        left, self._left = self._left, []
        return [process for process in left if not self._read(process, False)]

    def _read(self, process: Process, due: bool) -> bool:
        """Whether it is still there."""
        pages = process.reader.statm()
        if not due and process.status is not None and not has_moved(process.pages, pages):
            process.still_reads += 1
            return True
        status = process.reader.status()
        if status is None or (status.state in "ZX" and status.rss_anon_bytes is None):
            self.moved_bytes -= process.held_bytes
            return False
        if status.rss_anon_bytes is None and process.status is not None:
            return True  # it is ending: its memory is given back, and the last sample is kept
        before = process.held_bytes
        process.still_reads = process.still_reads + 1 if due and not has_moved(process.pages, pages) else 0
        process.status, process.pages, process.row = status, pages, ()
        self.moved_bytes += process.held_bytes - before
        if due:
            stat = process.reader.stat()
            if stat is not None:
                process.slow = (stat.cpu_ticks, stat.major_faults_count, *process.slow[2:])
        return True
