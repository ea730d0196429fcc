"""The limit around a job is proposed in the words and units of who set it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlhfdoctor import analyze
from rlhfdoctor.types import Patch

KILL = """\
[ 100.000001] memory: usage 307200kB, limit 307200kB, failcnt 50
[ 100.000002] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg={path},task_memcg={path},task=python3,pid=264,uid=1001
[ 100.000003] Memory cgroup out of memory: Killed process 264 (python3) total-vm:321208kB, anon-rss:305792kB, file-rss:5336kB, shmem-rss:0kB
"""
SLURM = "slurmstepd-vm: error: Detected 1 oom-kill event(s) in StepId=1.batch. Some of your processes may have been killed.\n"
MANIFEST = "kind: Pod\nspec:\n  containers:\n  - name: trainer\n    resources:\n      limits:\n        memory: 300Mi\n"


def limit(folder: Path) -> Patch:
    """The change of the limit that a run's folder gets."""
    (found,) = [p for finding in analyze(folder).findings for p in finding.patches if p.setting == "container.memory"]
    return found


@pytest.mark.parametrize(
    ("path", "spelled", "after"),
    [
        ("/slurm_vm/uid_1001/job_1", "--mem", "375M"),
        ("/system.slice/slurmstepd.scope/job_7/step_0", "--mem", "375M"),
        ("/docker/ab12/slurm/uid_1/job_2", "--mem", "375M"),
        ("/kubepods/burstable/pod12/ab", "resources.limits.memory", "375Mi"),
        ("/docker/ab12", "--memory", "375m"),
        ("/machine.slice/libpod-ab12.scope", "--memory", "375m"),
        ("/mine", "--memory", "375m"),
    ],
)
def test_by_the_cgroup_that_was_full(path: str, spelled: str, after: str, tmp_path: Path) -> None:
    """The innermost manager that the path names."""
    (tmp_path / "dmesg.txt").write_text(KILL.format(path=path))
    found = limit(tmp_path)
    assert (found.spelled, found.after) == (spelled, after)


def test_by_who_speaks(tmp_path: Path) -> None:
    """Slurm's own line, where the path names nobody."""
    (tmp_path / "dmesg.txt").write_text(KILL.format(path="/mine"))
    (tmp_path / "ppo-1.out").write_text(SLURM)
    assert limit(tmp_path).spelled == "--mem"


def test_a_manifest_gets_a_unit_of_kubernetes(tmp_path: Path) -> None:
    """There, 375m is less than a byte."""
    (tmp_path / "dmesg.txt").write_text(KILL.format(path="/kubepods/pod12/ab"))
    (tmp_path / "pod.yaml").write_text(MANIFEST)
    found = limit(tmp_path)
    assert found.after == "375Mi"
    (edit,) = found.replacements
    written = MANIFEST[: edit.start] + edit.text + MANIFEST[edit.end :]
    assert yaml.safe_load(written)["spec"]["containers"][0]["resources"]["limits"]["memory"] == "375Mi"


def test_a_script_of_slurm(tmp_path: Path) -> None:
    """Its own line is changed."""
    (tmp_path / "dmesg.txt").write_text(KILL.format(path="/slurm/uid_1/job_1"))
    (tmp_path / "job.sbatch").write_text("#!/bin/bash\n#SBATCH --mem=300M\npython3 train.py\n")
    assert "+#SBATCH --mem=375M" in limit(tmp_path).diff
