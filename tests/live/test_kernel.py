"""The real kernel and real Ray: an actor killed in a memory cgroup is recognised from what it leaves behind."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 192 * 1024**2
pytestmark = [
    pytest.mark.usefixtures("kernel_alone"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup"),
    pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller"),
]
HOG = "import time\nblocks = []\nwhile True:\n    blocks.append(bytearray(8 << 20))\n    time.sleep(0.01)\n"
RAY_HOG = """
import os, ray
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=True, _temp_dir=os.environ["RAY_HOME"], object_store_memory=80 << 20)

@ray.remote
class Trainer:
    def enter(self, cgroup):
        open(cgroup + "/cgroup.procs", "w").write(str(os.getpid()))

    def grow(self):
        blocks = []
        while True:
            blocks.append(bytearray(8 << 20))

trainer = Trainer.remote()
ray.get(trainer.enter.remote(os.environ["CGROUP"]))
ray.get(trainer.grow.remote())
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A child memory cgroup with a limit, removed afterwards."""
    path = MEMORY / f"rlhfdoctor-test-{os.getpid()}"
    path.mkdir()
    (path / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield path
    for _ in range(50):
        try:
            path.rmdir()
            return
        except OSError:
            time.sleep(0.1)


def kernel_log(since: str) -> str:
    """The kernel's lines behind a marker line."""
    text = subprocess.run(["dmesg"], capture_output=True, text=True, check=True).stdout
    return text.rpartition(since)[2] if since else text


def test_kernel_kill_in_a_cgroup(cgroup: Path, tmp_path: Path) -> None:
    """A real OOM kill at a cgroup's limit yields killer, victim and limit."""
    before = (kernel_log("").splitlines() or [""])[-1]
    child = subprocess.Popen(
        [sys.executable, "-c", f"open('{cgroup}/cgroup.procs', 'w').write('0')\n{HOG}"], stderr=subprocess.DEVNULL
    )
    assert child.wait(timeout=60) == -9
    (tmp_path / "dmesg.txt").write_text(kernel_log(before))
    (tmp_path / "limit.txt").write_text(f"$ cat /sys/fs/cgroup/memory/memory.limit_in_bytes\n{LIMIT_BYTES}\n")
    (tmp_path / "meminfo.txt").write_text(Path("/proc/meminfo").read_text())
    incident = analyze([str(tmp_path)])
    assert incident.death is not None
    assert (incident.death.killer, incident.death.victim.pid) == ("kernel-oom-cgroup", child.pid)
    assert incident.best is not None
    assert incident.best.cause == "host-container-limit"


def test_ray_actor_killed_by_the_kernel(cgroup: Path, tmp_path: Path) -> None:
    """The same end of a Ray actor: undecided from Ray's own files, a cause with the kernel's log."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    before = (kernel_log("").splitlines() or [""])[-1]
    home, run = (
        Path(tempfile.mkdtemp(prefix="r", dir="/tmp")),
        tmp_path / "run",
    )  # Ray's socket paths must stay below 108 bytes
    run.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", RAY_HOG],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
        env={
            **os.environ,
            "RAY_HOME": str(home),
            "CGROUP": str(cgroup),
            "RAY_memory_monitor_refresh_ms": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "HOME": str(tmp_path),
        },
    )
    (run / "driver.log").write_text(done.stdout + done.stderr)
    logs = next(home.glob("session_2*/logs"))
    without = analyze([str(run), str(logs)])
    (run / "dmesg.txt").write_text(kernel_log(before))
    (run / "meminfo.txt").write_text(Path("/proc/meminfo").read_text())
    with_kernel = analyze([str(run), str(logs)])
    shutil.rmtree(home)
    assert without.death is not None
    assert (without.verdict, without.death.killer) == ("undecided", "sigkill-unknown")
    assert with_kernel.death is not None
    assert (with_kernel.verdict, with_kernel.death.killer) == ("cause", "kernel-oom-cgroup")
    assert re.match("ray::", str(with_kernel.death.victim.name))
