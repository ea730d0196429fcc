"""The place of a run: its memory cgroup, mounts, namespaces, made before it, taken away after it.

Linux, root and a cgroup v1 memory controller are needed. The recorder stays outside of the job's cgroup, as a node's
agent does. Slurm's part is played here: the limit is read from the `#SBATCH --mem` line of the launch script.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import files, version
from pathlib import Path

from trainer.lab.scenario import LabError, Scenario, size_of

CGROUPS = Path("/sys/fs/cgroup/memory")
ROOT = Path(__file__).resolve().parents[2]
NOT_COMPILED = {"TORCHDYNAMO_DISABLE": "1"}
"""DeepSpeed decorates a function of its Muon with torch.compile as it is imported; that loads torch's inductor and
starts its pool of compilers in every rank, which is most of the time that a short run takes. For runs without limits
and without vLLM, and for the incidents of `make test`: the limits of the lab's others were chosen with what it
holds."""
_LONGEST_S = 400
_COMPILE_S = 900
_OPERATORS = ("CPUAdamBuilder", "ShareMemCommBuilder")


def why_not() -> str | None:
    """Why this machine cannot run the lab; None if it can."""
    if not sys.platform.startswith("linux"):
        return "Linux is needed"
    if os.geteuid() != 0:
        return "root is needed, for cgroups and mounts"
    if not (CGROUPS / "memory.limit_in_bytes").exists():
        return f"a cgroup v1 memory controller is needed at {CGROUPS}"
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is needed"
    missing = [name for name in ("ray", "deepspeed", "transformers") if importlib.util.find_spec(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed: pip install 'rlhfdoctor[trainer]'"
    probe = CGROUPS / f"lab-probe-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup can be made in {CGROUPS}: {error.strerror}"
    tried = subprocess.run(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "tmpfs", "/dev/shm"], capture_output=True, text=True, check=False
    )
    return f"no mounts of its own: {tried.stderr.strip()}" if tried.returncode else None


def has_gpu() -> bool:
    """Whether CUDA runs here."""
    import torch

    return torch.cuda.is_available()


def extensions() -> Path:
    """Folder of DeepSpeed's compiled operators for this interpreter: the lab's own, so that no lock is shared."""
    mark = hashlib.sha256(sys.prefix.encode()).hexdigest()[:12]
    return Path.home() / ".cache" / "rlhfdoctor" / "torch_extensions" / mark


def unlock() -> None:
    """Takes away the lock files of processes that were killed while they loaded an operator.

    torch.utils.cpp_extension waits for a file named `lock` to vanish, for ever, and a SIGKILL leaves it behind. Who
    holds one has it open (torch/utils/file_baton.py); such a lock stays, since trainings run beside each other.
    """
    before = {lock: _identity(lock) for lock in extensions().glob("*/lock")}
    held = _open_files() if before else set()
    for lock, identity in before.items():
        if identity is not None and identity[:2] not in held and identity == _identity(lock):
            lock.unlink(missing_ok=True)


def _identity(path: Path) -> tuple[int, int, int] | None:
    """Device, inode and time of the last change; None if it is gone."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_ctime_ns


def _open_files() -> set[tuple[int, int]]:
    """Device and inode of every file that a process has open."""
    found = set()
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):  # closed meanwhile
            status = link.stat()
            found.add((status.st_dev, status.st_ino))
    return found


def warm() -> None:
    """Compiles DeepSpeed's CPU Adam and its collectives where no limit holds, once for this installation.

    That takes minutes and 2 GiB; who comes meanwhile waits. An environment that was made anew at the same path has
    newer headers, for which ninja compiles again: inside of a scenario's limit, if it is not done here.
    """
    extensions().mkdir(parents=True, exist_ok=True)
    releases = installation()
    with (extensions() / "compiled.txt").open("a+") as note:
        fcntl.flock(note, fcntl.LOCK_EX)
        note.seek(0)
        if note.read() == releases and len(list(extensions().glob("*/*.so"))) >= len(_OPERATORS):
            return
        unlock()
        _compile()
        note.truncate(0)
        note.write(releases)


def installation() -> str:
    """The releases that operators are compiled for, with the time of their installation."""
    return " ".join(f"{name}=={version(name)} of {_installed_ns(name)}" for name in ("torch", "deepspeed"))


def _installed_ns(package: str) -> int:
    """When a package was installed, in nanoseconds since 1970."""
    found = files(package) or []
    return max((Path(str(file.locate())).stat().st_mtime_ns for file in found if file.name == "RECORD"), default=0)


def _compile() -> None:
    names = ", ".join(_OPERATORS)
    code = f"from deepspeed.ops.op_builder.cpu import {names}\nfor each in ({names}): each().load(verbose=False)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=_environment("/tmp"),
        capture_output=True,
        text=True,
        check=False,
        timeout=_COMPILE_S,
    )
    if done.returncode:
        raise LabError(f"DeepSpeed's operators do not compile here: {done.stderr.strip().splitlines()[-1:]}")


def programs() -> list[Path]:
    """The files of this interpreter's environment that a run maps: Python, extensions, shared objects, Ray's
    programs."""
    libraries, standard = Path(sysconfig.get_path("platlib")), Path(sysconfig.get_path("stdlib"))
    python = Path(sysconfig.get_config_var("LIBDIR") or "", sysconfig.get_config_var("LDLIBRARY") or "")
    found = [
        Path(sys.executable),
        python,
        *standard.glob("lib-dynload/*.so"),
        *libraries.rglob("*.so*"),
        *libraries.glob("ray/core/src/ray/*/*"),
        *extensions().rglob("*.so"),
    ]
    return [path for path in found if path.is_file()]


def cache_programs() -> int:
    """Reads what a run maps into the page cache, from outside of its cgroup; how many bytes.

    They are 1.4 GB with all of the lab's packages.

    A page belongs to the cgroup that reads it first. Of a cold cache that is the run's, and at its limit the kernel
    takes programs away and reads them back for minutes before it kills; that was seen to last 400 s with 2 MiB of page
    cache left.
    """
    read = 0
    for path in programs():
        with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
            while block := file.read(1 << 20):
                read += len(block)
    return read


def _environment(scratch: str) -> dict[str, str]:
    """A small environment: this interpreter's programs first, and the trainer of this checkout."""
    device = {} if has_gpu() else {"DS_ACCELERATOR": "cpu"}
    return device | {
        "PATH": f"{Path(sys.executable).parent}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(ROOT),
        "TORCH_EXTENSIONS_DIR": str(extensions()),
        "HOME": os.environ.get("HOME", "/root"),
        "RAY_TMPDIR": scratch,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "LANG": "C.UTF-8",
        "TOKENIZERS_PARALLELISM": "false",
        "MALLOC_ARENA_MAX": "2",
    }


def run(scenario: Scenario, config: Path, target: Path, limited: bool = True) -> int:
    """Runs `launch.sh` of a configuration folder under `doctor watch`, which writes to `target`; its exit status.

    Raises:
        LabError: it did not end in time.
    """
    unlock()
    cache_programs()
    with _cgroup(scenario, config, limited) as cgroup, _scratch() as scratch:
        inside = f"echo 0 > {cgroup}/cgroup.procs && exec bash launch.sh"
        watch = [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--out", str(target)]
        watch += ["--", "sh", "-c", inside]
        shm = scenario.place.shm if limited and scenario.place.shm else "50%"
        before = [
            f"mount -t tmpfs -o size={shm} tmpfs /dev/shm"
        ]  # its own, as in a container: killed ranks leave buffers there
        if limited and scenario.place.ray_disk:
            before.append(f"mount -t tmpfs -o size={scenario.place.ray_disk} tmpfs {scratch}")
        if limited and scenario.place.disk:
            (config / "out").mkdir(exist_ok=True)
            before.append(f"mount -t tmpfs -o size={scenario.place.disk} tmpfs out")
        namespaces = ["--mount"]
        if (scenario.act or {}).get("do") == "ray-stop":
            namespaces += ["--pid", "--fork", "--mount-proc"]
        command = ["unshare", *namespaces, "sh", "-c", " && ".join([*before, f"exec {shlex.join(watch)}"])]
        environment = _environment(scratch) | (NOT_COMPILED if scenario.seed else {})
        log = target.with_name(f"{target.name}.watch.log")
        with open(log, "wb") as out:
            process = subprocess.Popen(
                command,
                cwd=config,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
            try:
                _attend(process, scenario, cgroup, target, limited)
            finally:
                _end(cgroup)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode if process.returncode is not None else -1


def _attend(process: subprocess.Popen[bytes], scenario: Scenario, cgroup: Path, target: Path, limited: bool) -> None:
    """Waits for the end, and performs the scenario's action meanwhile."""
    act = scenario.act if limited else None
    deadline = time.monotonic() + _LONGEST_S
    while process.poll() is None:
        if time.monotonic() > deadline:
            raise LabError(f"{scenario.name}: not at its end after {_LONGEST_S} s; see {target}")
        if act and any(act["at"] in path.read_text(errors="replace") for path in target.glob("logs/job.*log")):
            _do(act["do"], process.pid, cgroup)
            act = None
        time.sleep(0.2)


def _do(what: str, watch: int, cgroup: Path) -> None:
    """A user's action on the node: `kill -9` of one rank, or `ray stop --force`."""
    members = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
    if what == "ray-stop":
        ray = Path(sys.executable).with_name("ray")
        subprocess.run(
            ["nsenter", "--target", str(members[0]), "--pid", "--mount", str(ray), "stop", "--force"],
            capture_output=True,
            check=False,
        )
        return
    ranks = []
    for pid in members:
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/cmdline").read_text(errors="replace").startswith("ray::ActorModel"):
                ranks.append(pid)
    if not ranks:
        raise LabError("no rank was there to be killed")
    os.kill(max(ranks), signal.SIGKILL)


@contextlib.contextmanager
def _cgroup(scenario: Scenario, config: Path, limited: bool) -> Iterator[Path]:
    """A memory cgroup of its own; inside another one where the node's limit is short."""
    outer = CGROUPS / f"lab-{os.getpid()}"
    inner = outer / "job"
    try:
        outer.mkdir()
        inner.mkdir()
        if limited:
            if scenario.place.node_memory:
                _limit(outer, scenario.place.node_memory)
            asked = re.search(r"^#SBATCH --mem=(\S+)", (config / "launch.sh").read_text(), re.MULTILINE)
            if asked:
                _limit(inner, asked[1])
        yield inner
    finally:
        for cgroup in (inner, outer):
            if cgroup.exists():
                _end(cgroup)
                _remove(cgroup)


def _limit(cgroup: Path, size: str) -> None:
    for name in ("memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):  # this order
        if (cgroup / name).exists():
            (cgroup / name).write_text(str(size_of(size)))


def _end(cgroup: Path) -> None:
    """Ends what is left of a run: the members of its cgroup."""
    for _ in range(50):
        members = [int(pid) for pid in (cgroup / "cgroup.procs").read_text().split()]
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if not members:
            return
        time.sleep(0.1)


def _remove(cgroup: Path) -> None:
    for _ in range(40):
        with contextlib.suppress(OSError):  # the last members are still being torn down
            cgroup.rmdir()
            return
        time.sleep(0.1)
    raise LabError(f"{cgroup} cannot be removed; cat {cgroup}/cgroup.procs names who is left")


@contextlib.contextmanager
def _scratch() -> Iterator[str]:
    """A short path for Ray's session (its sockets must fit into 107 characters)."""
    with tempfile.TemporaryDirectory(prefix="lab-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder
