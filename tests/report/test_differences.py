"""What the report and `doctor patch` say where the log shows other settings than the files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from rlhfdoctor.cli import main
from tests.settings.test_logged import OPENRLHF

KILL = (
    "[ 1234.5] Memory cgroup out of memory: Killed process 11922 (ray::ActorModel) total-vm:8923144kB, "
    "anon-rss:511920000kB, file-rss:0kB, shmem-rss:0kB\n"
)
BAR = "Loading checkpoint shards:  25%|##5       | 1/4 [00:02<00:06,  2.01s/it]\n"
OTHER = (
    "--zero_stage 2 --adam_offload --micro_train_batch_size 8 --vllm_num_engines 2 --vllm_gpu_memory_utilization 0.6"
)
OWN = "--zero_stage 3 --adam_offload --micro_train_batch_size 2 --vllm_num_engines 4 --vllm_gpu_memory_utilization 0.5"


def run(folder: Path, options: str, *command: str) -> str:
    """What a command prints for a folder with a log and a launch script."""
    (folder / "run.log").write_text(f"(train pid=1) {OPENRLHF}\n[2025-02-18 09:14:22,204] [INFO] x\n{BAR}{KILL}")
    (folder / "launch.sh").write_text(f"python3 -m openrlhf.cli.train_ppo_ray {options}\n")
    return CliRunner().invoke(main, [command[0], str(folder), *command[1:]]).output


@pytest.mark.parametrize("form", ["text", "md", "html"])
@pytest.mark.parametrize(("options", "warned"), [(OTHER, True), (OWN, False)])
def test_reports(tmp_path: Path, form: str, options: str, warned: bool) -> None:
    """Each report names what differs; that it is another run's file is said only if much does."""
    said = " ".join(run(tmp_path, options, "analyze", "--format", form).replace("\\", "").split())
    assert ("hardly the configuration of this run" in said) is warned
    assert ("--zero_stage: 3 in the log" in said) is warned
    assert ("0.6 in the log" in said) is not warned
    if warned and form == "text":
        assert said.index("hardly the configuration") < said.index("finding[")


def test_json(tmp_path: Path) -> None:
    """The JSON report has both values with their places."""
    found = json.loads(run(tmp_path, OWN, "analyze", "--format", "json"))["differences"]
    assert (found["compared_count"], found["another_run"]) == (5, False)
    (row,) = found["settings"]
    assert (row["setting"], row["in_file"], row["in_log"]) == ("rollout.gpu_memory_utilization", 0.5, 0.6)
    assert row["file"].endswith("launch.sh:1") and row["log"].endswith("run.log:1")


@pytest.mark.parametrize(("options", "warned"), [(OTHER, True), (OWN, False)])
def test_patch(tmp_path: Path, options: str, warned: bool) -> None:
    """It is said before anything is proposed, and the file is still the one that is edited."""
    said = run(tmp_path, options, "patch", "--all")
    first = said.splitlines()[0]
    assert first.endswith("before you change it.") is warned
    assert first.startswith("file and log differ (the log is what ran): --vllm_gpu_memory_utilization: 0.6") is not warned
    assert "-python3 -m openrlhf.cli.train_ppo_ray" in said
