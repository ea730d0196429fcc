"""Programs of others (TRL, torchrun with DDP, DataLoader, Ray), ended for real: what the doctor says of each.

Each runs once, under `doctor watch`, in a memory cgroup of its own. It is analysed three times: the recording with the
logs; the logs alone (with the kernel's where the kernel killed it); the logs beside a kernel log with another job's
kill in the same second.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.trace.tables import read_trace
from rlhfdoctor.types import Incident
from tests.bench.survive import MEMORY
from tests.live.programs.place import HERE, PACKAGES, TORCHRUN, Left, kill_rank, run

pytest.importorskip("omegaconf", reason="the lab needs omegaconf (make test installs it)")
from trainer.lab.place import cache_programs

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup"),
    pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller"),
    pytest.mark.skipif(shutil.which("unshare") is None, reason="needs unshare (util-linux)"),
]
MIB = 1 << 20
PLENTY = 4096 * MIB
SMALL_SHM = "mount -t tmpfs -o size=16m tmpfs /dev/shm"
GRPO, DDP, LOADER, ACTORS = (str(HERE / f"{name}.py") for name in ("grpo", "ddp", "loader", "actors"))
OTHERS_KILL = """\
[{0:.6f}] python invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=977
[{0:.6f}] memory: usage 2097152kB, limit 2097152kB, failcnt 8214
[{0:.6f}] Tasks state (memory values in pages):
[{0:.6f}] [  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name
[{0:.6f}] [3141592]  1000 3141592  1294731   519824   512160     7664         0  4653056        0           977 python
[{0:.6f}] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=cri-containerd-{1}.scope,mems_allowed=0,\
oom_memcg=/kubepods.slice/kubepods-burstable.slice/cri-containerd-{1}.scope,\
task_memcg=/kubepods.slice/kubepods-burstable.slice/cri-containerd-{1}.scope,task=python,pid=3141592,uid=1000
[{0:.6f}] Memory cgroup out of memory: Killed process 3141592 (python) total-vm:5178924kB, anon-rss:2048640kB, \
file-rss:30656kB, shmem-rss:0kB, UID:1000 pgtables:4544kB oom_score_adj:977
"""
"""{0}: seconds since boot; {1}: the container's id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """One row of the table."""

    words: tuple[str, ...]
    """Behind `python`."""
    needs: tuple[str, ...] = ("torch",)
    limit_bytes: int = PLENTY
    mounts: tuple[str, ...] = ()
    attach: bool = False
    act: Callable[[Path, Path], bool] | None = None
    first: frozenset[str] = frozenset()
    """Right first causes with the recording; none: it ended well."""
    verdicts: frozenset[str] = frozenset({"cause"})
    """With the recording."""
    alone: frozenset[str] = frozenset()
    """First causes that are not false where there are logs only; `undecided` and `inconclusive` always are right."""
    by_kernel: bool = False


def torchrun(mode: str) -> tuple[str, ...]:
    """Two ranks."""
    return (*TORCHRUN, DDP, mode, "out")


ERROR = frozenset({"other-software-error"})
WAITED = frozenset({"comm-long-generation", "comm-slow-reward"})
SAVE = frozenset({"host-checkpoint-save"})
LIMIT = frozenset({"host-container-limit"})
LOADED = frozenset({"host-dataset"})
SHM = frozenset({"shm-too-small"})
BY_HAND = frozenset({"other-killed-by-operator"})
TRL = ("trl", "datasets")
TABLE: dict[str, Program] = {
    "grpo-healthy": Program(words=(GRPO, "healthy", "out"), needs=TRL, verdicts=frozenset({"healthy"})),
    "grpo-reward-leak": Program(
        words=(GRPO, "leak", "out"),
        needs=TRL,
        limit_bytes=1200 * MIB,
        by_kernel=True,
        first=frozenset({"host-leak"}),
        alone=frozenset({"host-leak"}) | LIMIT,
    ),
    "grpo-sys-exit": Program(
        words=(GRPO, "exit", "out"),
        needs=TRL,
        first=ERROR,
        alone=ERROR,
        verdicts=frozenset({"cause", "undecided"}),
    ),
    "grpo-full-disk": Program(
        words=(GRPO, "disk", "out"),
        needs=TRL,
        mounts=("mkdir out", "mount -t tmpfs -o size=64m tmpfs out"),
        first=frozenset({"other-disk-full"}),
        alone=frozenset({"other-disk-full"}),
    ),
    "ddp-straggler": Program(
        words=torchrun("straggler"), first=WAITED, alone=WAITED, verdicts=frozenset({"cause", "undecided"})
    ),
    "ddp-save-spike": Program(
        words=torchrun("save"), limit_bytes=1900 * MIB, by_kernel=True, first=SAVE, alone=SAVE | LIMIT
    ),
    "ddp-killed-by-hand": Program(
        words=torchrun("plain"),
        act=kill_rank,
        first=BY_HAND,
        alone=BY_HAND,
    ),
    "loader-workers": Program(
        words=(LOADER, "cache"), limit_bytes=1000 * MIB, by_kernel=True, first=LOADED, alone=LOADED | LIMIT
    ),
    "loader-small-shm": Program(words=(LOADER, "batches"), mounts=(SMALL_SHM,), first=SHM, alone=SHM),
    "loader-small-shm-attached": Program(
        words=(LOADER, "shared"), mounts=(SMALL_SHM,), attach=True, first=SHM, alone=SHM
    ),
    "ray-kill": Program(words=(ACTORS, "kill"), needs=("ray",), first=BY_HAND, alone=BY_HAND),
    "ray-exit": Program(words=(ACTORS, "exit"), needs=("ray",), first=ERROR, alone=ERROR),
}


@pytest.fixture(scope="module")
def found() -> dict[str, Left]:
    """What the programs that ran left behind."""
    return {}


@pytest.fixture
def left_by(
    found: dict[str, Left], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Left]:
    """Runs a program of the table when it is asked for first."""

    def left(name: str) -> Left:
        program = TABLE[name]
        for package in program.needs:
            if PathFinder.find_spec(package, [*sys.path, str(PACKAGES)]) is None:
                pytest.skip(f"needs {package} (make test installs it)")
        if name not in found:
            request.getfixturevalue("kernel_alone")  # a stranger's kill is in our kernel log
            cache_programs()  # else the kernel may find something to take back for minutes
            found[name] = run(
                tmp_path_factory.mktemp(name, numbered=False),
                program.words,
                limit_bytes=program.limit_bytes,
                mounts=program.mounts,
                attach=program.attach,
                act=program.act,
            )
        return found[name]

    return left


def first_of(incident: Incident) -> str | None:
    """The first cause."""
    return incident.findings[0].cause if incident.findings else None


def is_true(incident: Incident, program: Program) -> bool:
    """Whether nothing false is said from logs alone: no other cause, no death of what ended well."""
    if not program.first:
        return incident.verdict in ("healthy", "inconclusive") and not incident.findings
    return incident.verdict in ("undecided", "inconclusive") or (
        incident.verdict == "cause" and first_of(incident) in program.alone
    )


def said(incident: Incident) -> str:
    """For the message of a test that fails."""
    killer = incident.death.killer if incident.death is not None else None
    return f"{incident.verdict} {killer} {[(each.cause, each.confidence) for each in incident.findings]}"


@pytest.mark.parametrize("name", TABLE)
def test_with_the_recording(name: str, left_by: Callable[[str], Left]) -> None:
    """The first cause is the right one; what ended well is healthy."""
    left, program = left_by(name), TABLE[name]
    incident = analyze([str(left.recording), str(left.job), str(left.kernel)])
    assert left.kernel_killed() or not program.by_kernel
    assert (incident.verdict in program.verdicts, first_of(incident) in (program.first or {None})) == (
        True,
        True,
    ), said(incident)


@pytest.mark.parametrize("name", TABLE)
def test_logs_alone(name: str, left_by: Callable[[str], Left]) -> None:
    """Without the recording nothing false is said."""
    left, program = left_by(name), TABLE[name]
    incident = analyze([str(left.job), *([str(left.kernel)] if program.by_kernel else [])])
    assert is_true(incident, program), said(incident)


@pytest.mark.parametrize("name", TABLE)
def test_beside_another_jobs_kill(name: str, left_by: Callable[[str], Left], tmp_path: Path) -> None:
    """The kill of another job in the same second is not taken for this one's."""
    left, program = left_by(name), TABLE[name]
    own = (left.kernel / "dmesg.txt").read_text() if program.by_kernel else ""
    (tmp_path / "dmesg.txt").write_text(own + OTHERS_KILL.format(left.ended_s - 1, "5e1f" * 16))
    incident = analyze([str(left.job), str(tmp_path)])
    assert is_true(incident, program), said(incident)
    death = incident.death
    assert death is None or not death.certain or death.victim.pid != 3141592, said(incident)


@pytest.mark.parametrize("name", ["loader-small-shm", "loader-small-shm-attached"])
def test_shm_of_the_job(name: str, left_by: Callable[[str], Left]) -> None:
    """The recording has the /dev/shm of the job's mount namespace, not the recorder's own."""
    trace = read_trace(left_by(name).recording)
    assert 16 * MIB in set(trace["host"]["shm_size_bytes"])
