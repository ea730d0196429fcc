"""recorded-*: small runs under `doctor watch` in a real memory cgroup, killed by the real kernel or not at all.

What the recorder left is the sample: trace, run.json, the job's output, the kernel's lines. One of them
is kept a second time without the kernel log: the kill counters in the trace must tell.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import session

HERE = Path(__file__).resolve().parent
CGROUPS = Path("/sys/fs/cgroup/memory")
RUNS = {
    "recorded-leak": (
        "30 20 40 0 0",
        420,
        "cause",
        "kernel-oom-cgroup",
        ["host-leak"],
        "The actor keeps 20 MiB a step for good, beside a rollout that takes 40 MiB and gives them back, until the cgroup's 420 MiB are full.",
    ),
    "recorded-checkpoint-spike": (
        "12 1 60 320 6",
        300,
        "cause",
        "kernel-oom-cgroup",
        ["host-checkpoint-save"],
        "Memory stands still over five steps; in the sixth a checkpoint takes 320 MiB at once, and the cgroup's 300 MiB are full.",
    ),
    "recorded-model-load": (
        "3 1 40 0 0 500",
        380,
        "cause",
        "kernel-oom-cgroup",
        ["host-model-load", "host-container-limit"],
        "Loading takes 560 MiB in a cgroup of 380 MiB: killed before the first step.",
    ),
    "recorded-sawtooth-healthy": (
        "12 0 200 0 0",
        420,
        "healthy",
        None,
        [],
        "Each rollout takes 200 MiB and gives them back: a sawtooth that looks like growth for a moment, and ends well.",
    ),
}


def record(arguments: str, limit_mib: int, folder: Path) -> None:
    """Runs the job in a cgroup of its own, recorded into the folder."""
    cgroup = CGROUPS / f"recorded-{os.getpid()}"
    cgroup.mkdir()
    work = Path(tempfile.mkdtemp(prefix="recorded-"))
    try:
        (cgroup / "memory.limit_in_bytes").write_text(str(limit_mib << 20))
        shutil.copy(HERE / "jobs" / "marked.py", work / "train.py")
        inside = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} train.py {arguments}"
        environment = {**os.environ, "PYTHONPATH": str(session.SAMPLES.parent)}
        subprocess.run(
            [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--out", str(folder), "--", "sh", "-c", inside],
            cwd=work,
            env=environment,
            capture_output=True,
            check=False,
        )
    finally:
        shutil.rmtree(work)
        cgroup.rmdir()


def main() -> None:
    for name, (arguments, limit, verdict, killer, accept, story) in RUNS.items():
        target = session.SAMPLES / name / "run"
        shutil.rmtree(target, ignore_errors=True)
        record(arguments, limit, target)
        for spare in ("lock", "orders.json", "recorder.log", "marks", "config", "command.sh"):
            path = target / spare
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        scrub(target / "run.json")
        session.write_truth(
            name, {"kind": "decidable", "verdict": verdict, "killer": killer, "accept": accept, "story": story}
        )
    blind = session.SAMPLES / "recorded-leak-no-kernel-log" / "run"
    shutil.rmtree(blind, ignore_errors=True)
    shutil.copytree(session.SAMPLES / "recorded-leak" / "run", blind, ignore=shutil.ignore_patterns("kernel.log"))
    session.write_truth(
        "recorded-leak-no-kernel-log",
        {
            "kind": "decidable",
            "verdict": "cause",
            "killer": "kernel-oom-cgroup",
            "accept": ["host-leak"],
            "story": "The run of recorded-leak without the kernel log: the cgroup's kill counter and the slope in the trace must do.",
        },
    )


def scrub(path: Path) -> None:
    """The folders of this machine do not belong into a sample."""
    import json

    run = json.loads(path.read_text())
    run["argv"], run["cwd"], run["environment"] = ["python", "train.py"], "/workspace", {}
    path.write_text(json.dumps(run, indent=1))


if __name__ == "__main__":
    main()
