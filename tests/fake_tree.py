"""A small /proc and /sys of real files below a folder, with our own numbers in the kernel's format."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

PRIVATE = ("Vm", "Rss", "Hugetlb")
"""How the lines begin that a kernel thread and a zombie do not have."""
STATUS = """\
Name:\t{comm}
Umask:\t0022
State:\t{state} (sleeping)
Tgid:\t{pid}
Ngid:\t0
Pid:\t{pid}
PPid:\t{ppid}
TracerPid:\t0
Uid:\t1000\t1000\t1000\t1000
Gid:\t1000\t1000\t1000\t1000
FDSize:\t64
Groups:\t{groups}\x20
NStgid:\t{pids}
NSpid:\t{pids}
NSpgid:\t{pids}
NSsid:\t{pids}
Kthread:\t0
VmPeak:\t  907212 kB
VmSize:\t  903116 kB
VmLck:\t      12 kB
VmPin:\t      24 kB
VmHWM:\t    5100 kB
VmRSS:\t{rss:8d} kB
RssAnon:\t{anon:8d} kB
RssFile:\t{file:8d} kB
RssShmem:\t{shmem:8d} kB
VmData:\t  410660 kB
VmStk:\t     132 kB
VmExe:\t    2788 kB
VmLib:\t   14020 kB
VmPTE:\t     744 kB
VmSwap:\t      36 kB
HugetlbPages:\t       0 kB
CoreDumping:\t0
THP_enabled:\t1
Threads:\t{threads}
SigQ:\t0/96365
Cpus_allowed_list:\t0-63
voluntary_ctxt_switches:\t4021
nonvoluntary_ctxt_switches:\t97
"""


def make_status(
    pid: int = 7,
    *,
    comm: str = "python",
    state: str = "S",
    ppid: int = 1,
    threads: int = 3,
    anon_kb: int = 3000,
    file_kb: int = 1000,
    shmem_kb: int = 500,
    groups: str = "1000",
    pids: Sequence[int] = (),
) -> str:
    """/proc/PID/status as Linux 6 writes it; `pids` are the ids in nested namespaces, the outermost first."""
    return STATUS.format(
        pid=pid,
        comm=comm,
        state=state,
        ppid=ppid,
        threads=threads,
        groups=groups,
        anon=anon_kb,
        file=file_kb,
        shmem=shmem_kb,
        rss=anon_kb + file_kb + shmem_kb,
        pids="\t".join(str(number) for number in pids or (pid,)),
    )


def without_memory(status: str) -> str:
    """The same status of a kernel thread or a zombie."""
    return "".join(line for line in status.splitlines(keepends=True) if not line.startswith(PRIVATE))


def make_stat(
    pid: int = 7, *, comm: str = "python", state: str = "S", ppid: int = 1, start: int = 4711, cpu: int = 35
) -> str:
    """/proc/PID/stat; `cpu` is user and system time together, in ticks."""
    rest = f"0 -1 4194304 812 0 12 0 {cpu - 5} 5 0 0 20 0 3 0 {start} 924790784 1125 0"
    return f"{pid} ({comm}) {state} {ppid} {pid} {pid} {rest}\n"


def make_statm(anon_kb: int | None = 3000) -> str:
    """/proc/PID/statm that fits the status; None: a zombie's."""
    return "0 0 0 0 0 0 0\n" if anon_kb is None else f"225779 {(anon_kb + 1500) // 4} 375 697 0 102697 0\n"


class FakeTree:
    """Writes files below a folder whose path is the readers' `root`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = str(folder)

    def write(self, name: str, content: str | bytes) -> str:
        """One file with its folders. A process's is another one than before (its open descriptors keep the old)."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.startswith("proc/") and name.split("/")[1].isdigit():
            path.unlink(missing_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    def add_folder(self, name: str, files: Mapping[str, str | int] | None = None) -> str:
        """A folder with files."""
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        for file, content in (files or {}).items():
            self.write(f"{name}/{file}", f"{content}\n")
        return str(self.folder / name)

    def add_folders(self, name: str, below: Iterable[str]) -> None:
        """Empty folders below a folder."""
        for part in below:
            self.add_folder(f"{name}/{part}")

    def add_process(
        self,
        pid: int,
        ppid: int = 1,
        *,
        command: str = "python train.py",
        comm: str = "python",
        state: str = "S",
        start: int = 4711,
        cpu: int = 35,
        anon_kb: int = 3000,
        memory: bool = True,
    ) -> None:
        """A process; arguments of its command are parted by blanks. `memory=False`: a zombie or a kernel thread."""
        status = make_status(pid, comm=comm, state=state, ppid=ppid, anon_kb=anon_kb)
        self.write(f"proc/{pid}/status", status if memory else without_memory(status))
        self.write(f"proc/{pid}/statm", make_statm(anon_kb if memory else None))
        self.write(f"proc/{pid}/stat", make_stat(pid, comm=comm, state=state, ppid=ppid, start=start, cpu=cpu))
        self.write(f"proc/{pid}/cmdline", command.replace(" ", "\0") + "\0")

    def change(
        self, pid: int, *, anon_kb: int = 3000, state: str = "S", comm: str = "python", memory: bool = True
    ) -> None:
        """New sizes of a process, seen by descriptors that are open, as in /proc."""
        folder, status = self.folder / "proc" / str(pid), make_status(pid, comm=comm, state=state, anon_kb=anon_kb)
        (folder / "status").write_text(status if memory else without_memory(status))
        (folder / "statm").write_text(make_statm(anon_kb if memory else None))

    def end_process(self, pid: int) -> None:
        """A process is gone: open descriptors of it read nothing, and its folder is not there any more."""
        self.remove_folder(f"proc/{pid}")

    def remove_folder(self, name: str) -> None:
        """A folder that is gone: open descriptors of its files read nothing."""
        for path in (self.folder / name).iterdir():
            if path.is_file() and not path.is_symlink():
                path.write_bytes(b"")
        shutil.rmtree(self.folder / name)

    def set_last_pid(self, pid: int) -> None:
        """The newest pid of the system, by which a scan is spared."""
        self.write("proc/loadavg", f"0.31 0.22 0.13 1/412 {pid}\n")
