"""The recorder stores no secret that `doctor bundle` cuts, wherever on a command line it stands."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.privacy.secrets import cut_line, cut_words
from tests.test_bundle import LEAKS

KEY, TOKEN = "AKIA" + "Q7ABCDEFGHIJKLMN", "hf_" + "Zq7abcdefghijklmno"
COMMANDS = (
    ["python", "t.py", "--s3_key", KEY],
    ["pip", "install", "--index-url", "https://user:Zqpw7@host/simple"],
    ["python", "t.py", TOKEN],
    ["python", "t.py", "--pwd", "Zq"],
    ["python", "t.py", "--use_wandb", "Zqk1"],
    ["python", "t.py", "--my_secret_file", "Zqabc"],
    ["redis-cli", "-h", "h", "-a", "Zq7pw1"],
    ["curl", "-H", "Authorization: Basic Zq7abcdefg==", "http://h"],
    ["sh", "-c", "export WANDB_API_KEY=Zq7abcdefghi; python t.py"],
    ["python", "t.py", "+trainer.hf_token=Zq7abcdefghi"],
)


@pytest.mark.parametrize("argv", COMMANDS, ids=range(len(COMMANDS)))
def test_argument_lists(argv: list[str]) -> None:
    """As a list, as a line, and in what a trace of an older recorder holds."""
    for text in (str(cut_words(argv)), cut_line(" ".join(argv)), str(Redactor().value({"argv": argv}))):
        assert "Zq" not in text and KEY not in text, text
    assert len(cut_words(argv)) == len(argv)


@pytest.mark.parametrize("text", LEAKS, ids=range(len(LEAKS)))
def test_the_recorder_cuts_what_the_bundle_cuts(text: str) -> None:
    """One line may hold all that a log may."""
    assert "Zq" not in cut_line(text)


def test_settings_stay() -> None:
    """What only sounds like a secret is what a diagnosis needs."""
    argv = [
        "python",
        "-m",
        "openrlhf.cli.train_ppo_ray",
        "--input_key",
        "text",
        "--use_wandb",
        "true",
        "--pad_token",
        "<pad>",
        "data.max_token_len=9",
        "--tokenizer",
        "/data/tok/x",
        "--max_new_token",
        "512",
        "--token_level_loss",
        "--password-file",
        "/run/secrets/x/y",
        "env.PWD=/root/a/b",
        "--hf_token",
        "$HF_TOKEN",
        "ip=10.0.0.1:6379",
        "--num_tokens=1,024",
        "actor.optim.lr=1e-6",
    ]
    assert (cut_words(argv), cut_line(" ".join(argv))) == (argv, " ".join(argv))


def test_a_recorded_run_holds_no_secret(tmp_path: Path) -> None:
    """A real recording: run.json, orders.json, the command and the trace."""
    words = ["--s3_key", KEY, "--index-url", "https://user:Zqpw7@host/simple", TOKEN, "--pwd", "Zq81kvT"]
    watch = [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--out", str(tmp_path / "run"), "--"]
    job = [sys.executable, "-c", "import time; time.sleep(2)", *words]
    done = subprocess.run([*watch, *job], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert {"run.json", "command.sh", "000001.trace"} <= {path.name for path in files}
    for path in files:
        data = path.read_bytes()
        for secret in (KEY, TOKEN, "Zqpw7", "Zq81kvT"):  # two bytes stand in any trace by chance
            assert secret.encode() not in data, path


@pytest.mark.parametrize("before", [250, 285, 290])
def test_a_secret_where_an_error_is_cut(tmp_path: Path, before: int) -> None:
    """The beginning of a token has not its form, so an error is cut when its secrets are out."""
    (tmp_path / "train.log").write_text(
        f'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\nRuntimeError: {"x " * (before // 2)}hf_abcdefghijklmnopqrstuvwxyz\n'
    )
    assert "hf_ab" not in json.dumps(analyze(tmp_path).to_dict())


FORMATS = ("text", "md", "json", "html")
FAILURE = f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB (url https://me:Zqpw77abc@host/x, {KEY})\n"


@pytest.mark.parametrize("form", FORMATS)
def test_a_report_holds_no_secret(tmp_path: Path, form: str) -> None:
    """Neither in a quoted line nor in the diff of the user's own file, which `doctor patch` alone writes as it is."""
    (tmp_path / "job.log").write_text(f"step:1 - actor/lr:1e-06\n{FAILURE}")
    script = tmp_path / "launch.sh"
    script.write_text(f"export WANDB_API_KEY=Zq7abcdefghi\npython -m openrlhf.cli.train_ppo_ray --zero_stage 2 --micro_train_batch_size 8 --use_wandb {TOKEN}\n")
    doctor = str(Path(sys.executable).with_name("doctor"))
    shown = subprocess.run([doctor, "analyze", str(tmp_path), "--format", form, "--all"], capture_output=True, text=True, check=False).stdout
    patch = subprocess.run([doctor, "patch", str(tmp_path), "--consent", "gpu-micro-batch"], capture_output=True, text=True, check=False).stdout
    assert ("Tried to allocate 2.00 GiB" in shown, "[secret]" in shown) == (True, True), shown
    assert ("Zq" in shown, KEY in shown) == (False, False)
    assert "WANDB_API_KEY=Zq7abcdefghi" in patch
