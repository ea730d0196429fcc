"""`doctor estimate` as a user meets it: exit codes, screens, JSON, messages."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

Doctor = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[2]
START = ROOT / "samples/openrlhf-72b-start/run"
VERL = "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.n_gpus_per_node=8 algorithm.adv_estimator=grpo\n"


def test_exit_codes(doctor: Doctor, tmp_path: Path) -> None:
    """1 when it will not fit, 0 when it fits or nobody told a limit."""
    (tmp_path / "run.sh").write_text(VERL)
    assert doctor("estimate", START).exit_code == 1
    assert doctor("estimate", tmp_path, "--framework", "verl==0.6.1").exit_code == 0
    assert (
        doctor("estimate", tmp_path, "--framework", "verl==0.6.1", "--host-memory", "4T", "--gpu", "h200").exit_code
        == 0
    )


def test_screen(doctor: Doctor) -> None:
    """The verdict first, then a table for each place with the peak's parts."""
    lines = doctor("estimate", START, "--gpu", "a100-80g", "--suggest").stdout.splitlines()
    assert lines[0].startswith("will not fit: final save takes 1.75 TiB of the node's 1.44 TiB")
    assert lines[0].endswith("update is the first that is too large, with 1.62 TiB")
    assert [line for line in lines if line in ("host memory", "/dev/shm", "one GPU, the fullest")] == [
        "host memory",
        "/dev/shm",
        "one GPU, the fullest",
    ]
    assert any("--grad_accum_dtype: fp32 -> bf16" in line for line in lines)


def test_brief_is_one_line(doctor: Doctor) -> None:
    """For job scripts."""
    result = doctor("estimate", START, "--brief")
    assert (result.stdout.count("\n"), result.stdout.startswith("doctor estimate: will not fit: final save")) == (1, True)


def test_json(doctor: Doctor) -> None:
    """One object; roles add up to what stands under together, moments of different processes apart."""
    found = json.loads(doctor("estimate", START, "--format", "json", "--suggest").stdout)
    assert (found["schema"], found["verdict"]) == ("rlhfdoctor.estimate/1", "over")
    for phase in found["phases"]:
        assert sum(sizes[phase] for sizes in found["roles"]["host"].values()) == found["together"]["host"][phase]
    assert [row["setting"] for row in found["suggestion"]["changes"]] == [
        "offload_optimizer.pin_memory",
        "grad_accum_dtype",
    ]
    limit = next(row for row in found["limits"] if row["name"] == "node")
    assert limit["peak_bytes"] > limit["bytes"]
    keys = {"role", "place", "phases", "bytes", "count", "what", "pinned", "moment", "at_longest", "from_step"}
    assert all(keys <= need.keys() for need in found["needs"])  # they outlive the names of Python's fields


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--gpu", "gtx"), "--gpu gtx: not known"),
        (("--host-memory", "much"), "--host-memory much: write a size"),
        (("--host-memory", "0"), "--host-memory 0: write a size"),
        (("--framework", "=="), "write NAME or NAME==VERSION"),
        (("--framework", "megatron"), "the frameworks known are "),
    ],
)
def test_wrong_use(doctor: Doctor, tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    """Exit 2, the cause and the next step on standard error, nothing on standard output."""
    (tmp_path / "run.sh").write_text(VERL)
    result = doctor("estimate", tmp_path, *words)
    assert (result.exit_code, result.stdout, says in result.stderr) == (2, "", True), result.stderr


def test_a_model_nobody_knows(doctor: Doctor, tmp_path: Path) -> None:
    """It asks for --model, and takes a size."""
    (tmp_path / "run.sh").write_text(VERL.replace("Qwen/Qwen2.5-7B", "/models/policy"))
    refused = doctor("estimate", tmp_path)
    assert (refused.exit_code, "--model" in refused.stderr) == (2, True)
    taken = doctor("estimate", tmp_path, "--model", "13B")
    assert (taken.exit_code, "typical shape" in taken.stdout) == (0, True)
    assert doctor("estimate", tmp_path, "--model", "nonsense").exit_code == 2


def test_out(doctor: Doctor, tmp_path: Path) -> None:
    """--out writes the file, or says why not."""
    assert doctor("estimate", START, "--out", tmp_path / "e.txt").exit_code == 1
    assert (tmp_path / "e.txt").read_text().startswith("will not fit")
    assert doctor("estimate", START, "--out", tmp_path / "nowhere" / "e.txt").exit_code == 2


def test_text_of_files_reaches_no_terminal_raw(doctor: Doctor, tmp_path: Path) -> None:
    """Control characters of a path or value are taken out."""
    (tmp_path / "run.sh").write_text(VERL.replace("Qwen/Qwen2.5-7B", "'/m/\x1b[31mred-7B'"))
    shown = doctor("estimate", tmp_path)
    assert (shown.exit_code, "\x1b" in shown.stdout) == (0, False)


def test_as_a_program(tmp_path: Path) -> None:
    """A pipe that closes early is no error."""
    command = f"{sys.executable} -m rlhfdoctor estimate {START} | head -1"
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    assert (done.stdout.count("\n"), "Traceback" in done.stderr) == (1, False)
