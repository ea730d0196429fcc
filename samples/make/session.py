"""Run a real Ray job in a session of its own and keep what a user would hand over.

Every script beside this file calls `run` with a launch line and a job, then `Run.keep` with the
truth about it. Nothing here writes a log line: all text comes from Ray, Python or the kernel, and
is only cut (`[...]`), stripped of this machine's names and addresses, and copied.

Linux, root and a cgroup v1 memory controller are needed, because each run has a memory cgroup of
its own: it sets the limit, and it names the processes that have to be ended afterwards.
"""

from __future__ import annotations

import datetime
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from dataclasses import dataclass, field
from pathlib import Path

SAMPLES = Path(__file__).resolve().parent.parent
JOBS = Path(__file__).resolve().parent / "jobs"
MEMORY_CGROUPS = Path("/sys/fs/cgroup/memory")
MIB = 1 << 20

# The files of a session's log folder that tell a story; the empty ones among the first group stay,
# because "raylet.err is empty" is an observation too.
ALWAYS = ("raylet.out", "raylet.err", "gcs_server.out", "worker-*.out", "worker-*.err")
IF_NOT_EMPTY = ("gcs_server.err", "python-core-*.log", "events/*.log")

WHOLE_FILE_LIMIT = 30_000  # longer files are cut
SAMPLE_LIMIT = 150_000
BANNER_LINES = 45
TAIL_LINES = 25
AROUND = 6
TELLING = re.compile(
    r" [EF] \d+ \d+\]|SIG[A-Z]{3}|[Kk]ill|OOM|died|exit_type|at capacity|% full|"
    r"MemoryMonitor|Out-of-disk|Disconnect|Traceback|Error"
)


@dataclass
class Run:
    """One finished run, still in its scratch folder."""

    scratch: Path
    driver_log: str
    kernel_log: str
    scrub: list[tuple[re.Pattern[str], str]] = field(default_factory=list)

    @property
    def logs(self) -> Path:
        return (self.scratch / "ray" / "session_latest" / "logs").resolve()

    def log_text(self) -> str:
        """All that Ray and the driver wrote, for the assertions of the scripts."""
        parts = [path.read_text(errors="replace") for path in sorted(self.logs.rglob("*")) if path.is_file()]
        return "\n".join([self.driver_log, *parts])

    def keep(self, name: str, truth: dict[str, object], *, with_files: tuple[str, ...] = ()) -> None:
        """Write samples/<name>/ anew: the hand-over in run/, the truth beside it."""
        target = SAMPLES / name / "run"
        shutil.rmtree(target, ignore_errors=True)
        (target / "logs").mkdir(parents=True)
        _write(target / "driver.log", self._clean(self.driver_log))
        for given in with_files:
            _write(target / given, self._clean((self.scratch / "work" / given).read_text()))
        for pattern in ALWAYS + IF_NOT_EMPTY:
            for source in sorted(self.logs.glob(pattern)):
                text = source.read_text(errors="replace")
                if text or pattern in ALWAYS:
                    _write(target / "logs" / source.relative_to(self.logs), self._clean(cut(text)))
        if self.kernel_log:
            _write(target / "dmesg.txt", self.kernel_log)
        write_truth(name, truth)
        size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
        if size > SAMPLE_LIMIT:
            raise SystemExit(f"{name}: {size} bytes, more than a sample should have")
        shutil.rmtree(self.scratch)
        print(f"{name}: {size} bytes")

    def _clean(self, text: str) -> str:
        for pattern, replacement in self.scrub:
            text = pattern.sub(replacement, text)
        return text


def run(
    job: str,
    launch: str,
    *,
    memory_limit: int | None = None,
    session_disk: int | None = None,
    after: tuple[float, str] | None = None,
    timeout: float = 90,
) -> Run:
    """Run `launch` (the text of launch.sh) with jobs/<job> as job.py, and wait for its end.

    memory_limit  limit of the cgroup that the whole session lives in, as a container or a Slurm job
                  has it; None: no limit
    session_disk  size of a file system of its own for Ray's session folder; None: plain /tmp
    after         (seconds, shell command) that somebody else types on the node meanwhile. The run
                  then gets a PID namespace, so that `ray stop` cannot reach anybody else's Ray.
    """
    scratch = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    work, ray_dir = scratch / "work", scratch / "ray"
    work.mkdir()
    ray_dir.mkdir()
    shutil.copy(JOBS / job, work / "job.py")
    (work / "launch.sh").write_text(launch)
    command = "bash launch.sh > ../driver.log 2>&1"
    argv = ["bash", "-c", command]
    if after is not None:
        delay, interference = after
        script = f"{command} & sleep {delay}; {interference} > ../operator.log 2>&1; wait %1; sleep 1"
        argv = ["unshare", "--pid", "--fork", "--mount-proc", "bash", "-c", script]

    cgroup = MEMORY_CGROUPS / f"job-{os.getpid()}"
    cgroup.mkdir()
    kernel_before = _dmesg()
    try:
        if memory_limit is not None:
            for limit in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):  # this order
                if (cgroup / limit).exists():
                    (cgroup / limit).write_text(str(memory_limit))
        if session_disk is not None:
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={session_disk}", "tmpfs", ray_dir], check=True)
        process = subprocess.Popen(
            argv,
            cwd=work,
            env=_environment(scratch),
            preexec_fn=lambda: (cgroup / "cgroup.procs").write_text("0"),
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SystemExit(f"{job} did not end within {timeout} s; see {scratch}") from None
        time.sleep(2)  # raylet and GCS still write their last lines
    finally:
        _end(cgroup)
        if session_disk is not None:
            _unmount_keeping_files(ray_dir)
    return Run(
        scratch=scratch,
        driver_log=(scratch / "driver.log").read_text(errors="replace"),
        kernel_log=_new_kernel_lines(kernel_before, cgroup.name),
        scrub=_scrubbing(scratch),
    )


def cut(text: str) -> str:
    """A long log shortened to its start banner, the telling lines with their surroundings, its end."""
    if len(text) <= WHOLE_FILE_LIMIT:
        return text
    lines = text.splitlines()
    wanted = set(range(min(BANNER_LINES, len(lines)))) | set(range(max(0, len(lines) - TAIL_LINES), len(lines)))
    for number, line in enumerate(lines):
        if "[state-dump]" not in line and TELLING.search(line):
            wanted |= set(range(max(0, number - AROUND), min(len(lines), number + AROUND + 1)))
    kept: list[str] = []
    last = -1
    for number in sorted(wanted):
        if number != last + 1:
            kept.append("[...]")
        kept.append(lines[number])
        last = number
    return "\n".join(kept) + "\n"


def write_truth(name: str, truth: dict[str, object]) -> None:
    """samples/<name>/truth.yaml; `made_by` is filled in here."""
    script = Path(sys.argv[0]).name
    made_by = (
        f"samples/make/{script}, ray {ray_version()}, kernel {platform.release()}, {datetime.date.today().isoformat()}"
    )
    lines = []
    for key, value in {**truth, "made_by": made_by}.items():
        if key == "story":
            continue
        if isinstance(value, (list, tuple)):
            value = "[" + ", ".join(value) + "]"
        lines.append(f"{key}: {'null' if value is None else value}")
    story = textwrap.fill(" ".join(str(truth["story"]).split()), 100, initial_indent="  ", subsequent_indent="  ")
    _write(SAMPLES / name / "truth.yaml", "\n".join(lines) + f"\nstory: >-\n{story}\n")


def ray_version() -> str:
    from importlib.metadata import version

    return version("ray")


def memory_total_and_used() -> tuple[int, int]:
    """Bytes of this node, as `free` counts them."""
    meminfo = dict(re.findall(r"^(\w+):\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.M))
    total, available = int(meminfo["MemTotal"]) * 1024, int(meminfo["MemAvailable"]) * 1024
    return total, total - available


def _environment(scratch: Path) -> dict[str, str]:
    """A small environment: `python` and `ray` of this interpreter, session and auth token in scratch."""
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
        "HOME": str(scratch),
        "RAY_TMPDIR": str(scratch),
        "RAY_USAGE_STATS_ENABLED": "0",
        "LANG": "C.UTF-8",
    }


def _end(cgroup: Path) -> None:
    """End what is left of the run (the members of its cgroup, by pid) and remove the cgroup."""
    for _ in range(50):
        members = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
        if not members:
            break
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
    for _ in range(20):
        try:
            cgroup.rmdir()
            return
        except OSError:  # the last members are still being torn down
            time.sleep(0.25)
    raise SystemExit(f"could not remove {cgroup}")


def _unmount_keeping_files(mounted: Path) -> None:
    copy = mounted.with_name("ray-copy")
    if (mounted / "session_latest").exists():
        newest = (mounted / "session_latest").resolve()
        shutil.copytree(newest / "logs", copy / "session_latest" / "logs", symlinks=True)
    subprocess.run(["umount", mounted], check=True)
    if copy.exists():
        mounted.rmdir()
        copy.rename(mounted)


def _dmesg() -> list[str]:
    return subprocess.run(["dmesg"], capture_output=True, text=True, errors="replace", check=True).stdout.splitlines()


def _new_kernel_lines(before: list[str], cgroup_name: str) -> str:
    """The kernel lines since `before`, unchanged, if they speak of this run's cgroup; else nothing."""
    seen = set(before)
    fresh = [line for line in _dmesg() if line not in seen]
    victims = [line for line in fresh if "oom-kill:" in line]
    if not any(f"/{cgroup_name}," in line for line in victims):
        return ""
    if not all(f"/{cgroup_name}," in line for line in victims):
        raise SystemExit("another job's OOM kill is mixed into the kernel lines; run again")
    first = next(i for i, line in enumerate(fresh) if "invoked oom-killer" in line)
    return "\n".join(fresh[first:]) + "\n"


def _scrubbing(scratch: Path) -> list[tuple[re.Pattern[str], str]]:
    addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
    host = re.escape(socket.gethostname())
    return [
        (re.compile(re.escape(str(scratch / "work"))), "/workspace"),
        (re.compile(re.escape(str(scratch))), "/tmp"),
        (re.compile(re.escape(sys.prefix)), "/opt/venv"),
        # Ray shortens command lines of other processes in its memory reports, our folder with them.
        (re.compile(r"/tmp/r[\w-]*(?=\.\.\.)"), "/tmp/ray"),
        *[(re.compile(rf"(?<![\d.]){re.escape(address)}(?![\d.])"), "10.0.0.1") for address in addresses],
        (re.compile(rf"(?<![\w./-]){host}(?![\w./-])"), "node01"),
    ]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
