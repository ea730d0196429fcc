"""What reaches a terminal of text that others wrote: no control character, no change of direction."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.attacks.conftest import Doctor
from tests.attacks.run import Done

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "openrlhf-save-kill" / "run"
EVIL = "\x1b[2J\x1b]0;owned\x07\x1b[31mred\u202egnp.exe\x9b5m\u2028a\U000e0041"
HARMFUL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\U000e0000-\U000e007f]")
"""A carriage return is the terminal's own, before each newline."""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """An incident whose launch script holds control characters beside the line that a patch changes."""
    folder = Path(shutil.copytree(SAMPLE, tmp_path / "run"))
    script = folder / "launch.sh"
    text = script.read_text()
    assert text.count("--memory=500g") == 1
    script.write_text(text.replace("    --gpus all", f"    --label '{EVIL}' --gpus all"))
    return folder


def shown(done: Done) -> str:
    """What a terminal was given, with nothing harmful in it."""
    done.check()
    found = HARMFUL.search(done.stdout)
    assert found is None, ascii(done.stdout[max(0, found.start() - 100) : found.start() + 100])
    return done.stdout


@pytest.mark.parametrize(
    "words",
    [("patch",), ("analyze", "--format", "md")],
    ids=" ".join,
)
def test_script(run: Path, attack: Doctor, words: tuple[str, ...]) -> None:
    """Row 23: control characters of a script are made visible or left out in diffs and reports."""
    assert "memory" in shown(attack(*words, run, terminal=True))


@pytest.mark.parametrize("words", [("patch",), ("analyze", "--format", "md")], ids=" ".join)
def test_names(run: Path, tmp_path: Path, attack: Doctor, words: tuple[str, ...]) -> None:
    """Row 23: control characters in the names of files and folders do not reach the terminal."""
    named = run.rename(tmp_path / f"run{EVIL}")
    (named / "launch.sh").rename(named / f"launch{EVIL}.sh")
    assert "memory" in shown(attack(*words, named, terminal=True))


@pytest.mark.parametrize(
    "words",
    [
        ("patch", "missing"),
        ("patch", "--revert", "missing"),
        ("analyze", "missing"),
        ("estimate", "missing"),
        ("estimate", "--host-memory", EVIL, SAMPLE),
        ("estimate", "--gpu", EVIL, SAMPLE),
        ("bundle", "missing"),
        ("patch", "--consent", EVIL, SAMPLE),
    ],
    ids=lambda words: " ".join(map(str, words[:2])).replace(EVIL, "").strip(),
)
def test_errors(tmp_path: Path, attack: Doctor, words: tuple[str | Path, ...]) -> None:
    """Row 23: an error that quotes what was given quotes no control characters."""
    given = [tmp_path / EVIL if word == "missing" else word for word in words]
    shown(attack(*given, terminal=True))


def test_estimate_names(tmp_path: Path, attack: Doctor) -> None:
    """Row 23: the model's name and the file's name are quoted by an estimate."""
    script = tmp_path / f"run{EVIL}.sh"
    script.write_text(
        f"python -m verl.trainer.main_ppo actor_rollout_ref.model.path='/m/{EVIL}-7B' trainer.n_gpus_per_node=8 "
        f"algorithm.adv_estimator=grpo actor_rollout_ref.actor.strategy='{EVIL}' data.train_batch_size='{EVIL}'\n"
    )
    shown(attack("estimate", script, "--suggest", terminal=True))
