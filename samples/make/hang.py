"""recorded-hang: a run that fills its cgroup with a cold page cache, hangs there unkilled, and is ended from outside.

Ray's programs are read into memory by the run itself, so that their pages belong to its cgroup. At the limit the kernel takes those
away and reads them back, over and over. The caches of this machine are dropped for it, which slows everything else down for a while.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import lab
import recorded
import session

from rlhfdoctor import analyze

NAME = "recorded-hang"
LIMIT_BYTES = 1600 * session.MIB
PATIENCE_S = 75


def end(cgroup: Path) -> None:
    """As a kubelet ends a pod: SIGKILL to all that are in it, until nobody is left."""
    for _ in range(100):
        members = (cgroup / "cgroup.procs").read_text().split()
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        if not members:
            return
        time.sleep(0.1)


def record(folder: Path, scratch: Path) -> None:
    """Runs the job in a cgroup of its own, recorded into the folder, and ends it."""
    cgroup = recorded.CGROUPS / f"hang-{os.getpid()}"
    cgroup.mkdir()
    try:
        (cgroup / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
        shutil.copy(session.JOBS / "leak.py", scratch / "train.py")
        os.sync()
        Path("/proc/sys/vm/drop_caches").write_text("3")
        environment = {
            **os.environ,
            "PYTHONPATH": str(session.SAMPLES.parent),
            "RAY_TMPDIR": str(scratch),
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_memory_monitor_refresh_ms": "0",
        }
        inside = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} train.py"
        command = [
            sys.executable,
            "-m",
            "rlhfdoctor",
            "watch",
            "--no-view",
            "--out",
            str(folder),
            "--",
            "sh",
            "-c",
            inside,
        ]
        with subprocess.Popen(
            command, cwd=scratch, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as watch:
            try:
                watch.wait(PATIENCE_S)
                raise SystemExit("the run ended by itself, or the kernel killed")
            except subprocess.TimeoutExpired:
                end(cgroup)
    finally:
        end(cgroup)
        cgroup.rmdir()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="h", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        run = Path(scratch) / "recorded"
        record(run, Path(scratch))
        found = analyze([str(run)])
        if (
            found.gaps
            or found.death is None
            or found.death.killer != "sigkill-unknown"
            or found.best is None
            or found.best.cause != "host-leak"
        ):
            raise SystemExit(f"not as it should be: {found.death} {found.best} {found.gaps}")
        target = session.SAMPLES / NAME / "run"
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for part in lab.KEPT:
            source = run / part
            if source.is_dir():
                shutil.copytree(source, target / part)
            else:
                shutil.copy(source, target / part)
        for log in [path for path in (target / "logs").rglob("*") if path.is_file()]:
            text = session.cut(lab.clean(log.read_text(errors="replace").replace(scratch, "/tmp/ray")))
            log.write_text(text) if text else log.unlink()
    recorded.scrub(target / "run.json")
    session.write_truth(
        NAME,
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "sigkill-unknown",
            "accept": ["host-leak"],
            "story": """An actor keeps 64 MiB a step until the cgroup's 1600 MiB are full. Ray's programs were read from a cold page cache,
                so that their pages are the cgroup's own: the kernel takes them away and reads them back, and kills nobody. All processes
                wait for the disk, until somebody sends SIGKILL to all of them. Who did is not the cause.""",
        },
    )


if __name__ == "__main__":
    main()
