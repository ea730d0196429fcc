"""Failures dated outside of the run's time: another job's, another program's, an old log's."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze

SAMPLES = Path(__file__).parents[2] / "samples"
SEGFAULT = "kernel: [1234.5] python[999]: segfault at 0 ip 00007f1a sp 00007ffd error 4 in libc.so.6[7f00+1000]\n"
OTHERS = {
    "slurm-100.out": "slurmstepd: error: *** JOB 100 ON node1 CANCELLED AT {date}T03:04:05 DUE TO TIME LIMIT ***\n",
    "nvidia.log": "[{date} 03:04:05] NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.\n",
    "syslog": "{date}T03:04:05+00:00 node1 " + SEGFAULT,
    "tensorboard.log": "{date} 03:04:05 E tensorboard OSError: [Errno 28] No space left on device\n",
}
RUNS = {"openrlhf-healthy": ("2024-12-30", "2025-11-02"), "lab-software-error": ("2026-11-02", "2027-01-02")}
"""Each with a day before and a day after its time."""


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("sample", RUNS)
def test_a_failure_of_another_time(tmp_path: Path, sample: str, late: bool, name: str) -> None:
    """The verdict stays, and a gap says what was left out: it was another cause, nearly certain."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / sample / "run", run)
    before = analyze([str(run)])
    (run / name).write_text(OTHERS[name].format(date=RUNS[sample][late]))
    after = analyze([str(run)])
    assert (after.verdict, after.best and after.best.cause) == (before.verdict, before.best and before.best.cause)
    gaps = [str(gap.what) for gap in after.gaps if "did not live" in str(gap.why)]
    assert gaps == [str(run / name)]


def test_a_failure_of_its_time(tmp_path: Path) -> None:
    """Counts: some hours off, since stamps have no zones, and without a year, whatever that of the file is."""
    for stamp in ("2025-01-10T01:00:00+00:00", "Jan  9 10:00:00"):
        run = tmp_path / stamp[:3]
        shutil.copytree(SAMPLES / "openrlhf-healthy" / "run", run)
        (run / "syslog").write_text(f"{stamp} node1 {SEGFAULT}")
        assert analyze([str(run)]).death is not None


def test_the_end_of_a_run_that_stood_still(tmp_path: Path) -> None:
    """A scheduler ends it after a weekend without a line."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "openrlhf-healthy" / "run", run)
    (run / "slurm-1.out").write_text(OTHERS["slurm-100.out"].format(date="2025-01-12"))
    assert analyze([str(run)]).death is not None


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("install.log", "ModuleNotFoundError: No module named 'x'"),
        ("slurm-101.out", "slurmstepd: error: Detected 1 oom_kill event in StepId=101.batch. Some of the step tasks have been OOM Killed."),
        ("cron.log", "/bin/sh: line 1: 12345 Killed   python backup.py"),
        ("nohup.out", "Terminated"),
        ("eval.log", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."),
    ],
)
@pytest.mark.parametrize("sample", ["openrlhf-healthy", "lab-healthy-close"])
def test_another_log_beside_a_run_that_ended_well(tmp_path: Path, sample: str, name: str, line: str) -> None:
    """Nothing ties the two: undecided, and what would settle it; it was a cause, nearly certain."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / sample / "run", run)
    (run / name).write_text(f"{line}\n")
    incident = analyze([str(run)])
    assert incident.verdict == "undecided"
    assert all("ties the failure" in str(finding.missing[0].what) for finding in incident.findings[:1])
