"""Runs a program under `doctor watch` in a memory cgroup of its own; its output and the kernel's lines are kept."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.bench.survive import limited

ROOT = Path(__file__).resolve().parents[3]
HERE = Path(__file__).resolve().parent
PACKAGES = Path(sys.prefix) / "programs"
"""Where `make test` installs what only these programs need (.ci/programs.txt)."""
WATCH = (sys.executable, "-m", "rlhfdoctor", "watch", "--no-view")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
_LONGEST_S = 150.0


@dataclass(frozen=True, slots=True)
class Left:
    """What a run left behind."""

    recording: Path
    job: Path
    """Folder of job.log, and Ray's logs where there are some."""
    kernel: Path
    """Folder of dmesg.txt: the kernel's lines of the run's time."""
    ended_s: float
    """Seconds since boot."""

    def kernel_killed(self, words: str = "Killed process") -> bool:
        """Whether the kernel's lines have a kill."""
        return words in (self.kernel / "dmesg.txt").read_text()


def kernel_lines() -> list[str]:
    """The kernel's log as it is now."""
    return subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout.splitlines()


def _newer(before: Sequence[str]) -> list[str]:
    """The lines behind the last one of an earlier reading."""
    now = kernel_lines()
    return now[now.index(before[-1]) + 1 :] if before and before[-1] in now else now


def environment(scratch: Path) -> dict[str, str]:
    """Offline, one thread a process, and without what a terminal of ours says."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith(("RLHFDOCTOR_", "RAY_", "PYTEST_"))}
    return plain | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{PACKAGES}",
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "RAY_TMPDIR": str(scratch),
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "TORCHDYNAMO_DISABLE": "1",
    }


def inside(cgroup: Path, mounts: Sequence[str], words: Sequence[str]) -> list[str]:
    """The command line that makes the mounts in a namespace of its own, joins the cgroup, and becomes the program."""
    entered = " && ".join([*mounts, f"echo 0 > {cgroup}/cgroup.procs", f"exec {shlex.join(words)}"])
    return [*(["unshare", "--mount"] if mounts else []), "sh", "-c", entered]


@contextmanager
def _started(line: Sequence[str], folder: Path, log: Path, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process with its output in a file; killed in the end with its group if it still runs."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            line,
            cwd=folder,
            env=environment(scratch),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(
    folder: Path,
    words: Sequence[str],
    *,
    limit_bytes: int,
    mounts: Sequence[str] = (),
    attach: bool = False,
    act: Callable[[Path, Path], bool] | None = None,
) -> Left:
    """Runs a program to its end.

    Args:
        folder: empty; it becomes the program's working directory.
        words: of the program, behind `python`.
        mounts: commands that mount something before it, in a mount namespace of the program.
        attach: the program is started by itself, and the recorder attached to it from outside.
        act: what is done to it from outside, given its log and its cgroup; called until it says that it is done.

    Raises:
        TimeoutError: it did not end in time.
    """
    home, recording, job, kernel = (folder / name for name in ("home", "run", "job", "kernel"))
    for each in (home, job, kernel):
        each.mkdir(parents=True)
    scratch = Path(tempfile.mkdtemp(prefix="p", dir="/tmp"))  # Ray's socket paths must stay below 108 bytes
    before = kernel_lines()
    with limited(folder.name[:20], limit_bytes) as cgroup:
        line = inside(cgroup, mounts, [sys.executable, *words])
        log = job / "job.log" if attach else folder / "watch.log"
        watch = [*WATCH, "--out", str(recording)]
        with _started(line if attach else [*watch, "--", *line], home, log, scratch) as process:
            if attach:
                with _started([*watch, "--pid", str(process.pid)], home, folder / "watch.log", scratch) as recorder:
                    _attend(process, act, log, cgroup)
                    recorder.wait(_LONGEST_S)
            else:
                _attend(process, act, recording / "logs" / "job.log", cgroup)
    ended_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    (kernel / "dmesg.txt").write_text("".join(f"{each}\n" for each in _newer(before)))
    if not attach:
        shutil.copy(recording / "logs" / "job.log", job)
    for logs in scratch.glob("session_2*/logs"):
        shutil.copytree(logs, job / "ray", dirs_exist_ok=True)
    shutil.rmtree(scratch, ignore_errors=True)
    return Left(recording, job, kernel, ended_s)


def _attend(
    process: subprocess.Popen[bytes], act: Callable[[Path, Path], bool] | None, log: Path, cgroup: Path
) -> None:
    """Waits for the end, and does to the program what is to be done."""
    due = time.monotonic() + _LONGEST_S
    while process.poll() is None:
        if time.monotonic() > due:
            raise TimeoutError(f"not at its end after {_LONGEST_S:.0f} s; see {log}")
        if act is not None and act(log, cgroup):
            act = None
        time.sleep(0.1)


def kill_rank(log: Path, cgroup: Path) -> bool:
    """As a person does it: `kill -9` of rank 1, once there are steps; whether it is done."""
    if not log.exists() or b"step 20/" not in log.read_bytes():
        return False
    for pid in (cgroup / "cgroup.procs").read_text().split():
        with suppress(OSError):
            if b"\0RANK=1\0" in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(int(pid), signal.SIGKILL)
                return True
    return False
