"""TRL without DeepSpeed: which trainer, which type of weights, what a CPU holds, a model's name in place of files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.core.estimate import Machine, estimate
from tests.bench.trl_budget import error, read, spread

Doctor = Callable[..., Result]
HALF_B = 494_032_768
"""Parameters of Qwen2.5-0.5B."""


def predict(folder: Path, command: str, *, gpus: int | None = 0, release: str = "1.16.0") -> Estimate:
    (folder / "run.sh").write_text(f"{command} --model_name_or_path Qwen/Qwen2.5-0.5B\n")
    return estimate([str(folder)], framework=f"trl=={release}", machine=Machine(gpus_per_node=gpus))


def weights(found: Estimate, role: str = "actor") -> float:
    """Bytes a parameter."""
    (own,) = [need.bytes for need in found.needs if need.role == role and str(need.what).startswith("weights, w")]
    return own / HALF_B


@pytest.mark.parametrize(
    ("words", "width"),
    [("", 4), ("--dtype float32", 4), ("--dtype bfloat16", 2), ("--torch_dtype float16", 2), ("--dtype auto", 2)],
)
def test_the_type_of_the_weights(words: str, width: int, tmp_path: Path) -> None:
    """fp32 unless the script says otherwise, and in that case it is said."""
    found = predict(tmp_path, f"trl grpo {words}", gpus=2)
    assert weights(found) == pytest.approx(width, rel=1e-6)
    assert any("unless --dtype says otherwise" in str(line) for line in found.assumed) == (not words)


def test_mixed_precision_has_a_second_copy(tmp_path: Path) -> None:
    """bf16 is on by default since 0.22, and makes the layers' weights once more in 16 bit."""
    casts = {
        (release, words): any("autocast" in str(need.what) for need in predict(tmp_path, f"trl sft {words}", release=release).needs)
        for release, words in (("1.16.0", ""), ("1.16.0", "--bf16 false"), ("1.16.0", "--dtype bfloat16"), ("0.20.0", ""))
    }
    assert list(casts.values()) == [True, False, False, False]


@pytest.mark.parametrize(
    ("command", "phases", "roles"),
    [
        ("trl grpo", ("load", "rollout", "score", "update", "checkpoint"), {"actor"}),
        ("trl grpo --beta 0.04", ("load", "rollout", "score", "update", "checkpoint"), {"actor", "reference"}),
        ("trl rloo", ("load", "rollout", "score", "update", "checkpoint"), {"actor", "reference"}),
        ("trl dpo", ("load", "score", "update", "checkpoint"), {"actor", "reference"}),
        ("trl sft", ("load", "update", "checkpoint"), {"actor"}),
        ("trl sft --save_strategy no", ("load", "update", "final_save"), {"actor"}),
        ("accelerate launch -m trl.scripts.sft", ("load", "update", "checkpoint"), {"actor"}),
    ],
)
def test_what_a_trainer_does(command: str, phases: tuple[str, ...], roles: set[str], tmp_path: Path) -> None:
    """By the command: who writes the responses, and which has a reference model."""
    found = predict(tmp_path, command, gpus=2)
    assert (found.phases, set(found.roles) - {"kernel"}) == (phases, roles)


def test_processes_of_a_cpu(tmp_path: Path) -> None:
    """As many as are launched, one where nothing says; those of `accelerate launch` are of all nodes."""
    counts = []
    for command in ("trl sft", "torchrun --nproc_per_node 2 -m trl.scripts.sft", "trl sft --num_processes 6 --num_machines 2"):
        counts.append({need.count for need in predict(tmp_path, command).needs if need.role == "actor"} - {1})
    assert counts == [set(), {2}, {3}]


def test_weights_of_the_files_own_type_are_no_anonymous_memory(tmp_path: Path) -> None:
    """A reference that is loaded as it is stored stays mapped from its files; one that is converted does not."""
    (tmp_path / "model").mkdir()
    config = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 2}
    config |= {"num_attention_heads": 8, "vocab_size": 4096}
    held = []
    for stored in ("float32", "bfloat16"):
        (tmp_path / "model" / "config.json").write_text(json.dumps({**config, "dtype": stored}))
        (tmp_path / "run.sh").write_text("trl grpo --beta 0.1 --bf16 false --model_name_or_path model\n")
        found = estimate([str(tmp_path / "run.sh")], framework="trl==1.16.0", machine=Machine(gpus_per_node=0))
        held.append(found.of("host", "load", "reference"))
    assert (held[0], held[1] > 0) == (0, True)


def test_a_models_name_is_understood(doctor: Doctor) -> None:
    """With the framework it is an estimate by the release's defaults; without, the answer has the command."""
    found = doctor("estimate", "Qwen/Qwen2.5-7B", "--framework", "trl", "--gpus-per-node", "0")
    assert (found.exit_code, "host memory" in found.stdout) == (0, True), found.stderr
    for words in (("Qwen/Qwen2.5-7B",), ("--model", "Qwen2.5-7B-Instruct"), ()):
        refused = doctor("estimate", *words)
        assert (refused.exit_code, "--framework trl --model" in refused.stderr) == (2, True), refused.stderr
    assert "no such file" in doctor("estimate", "launch-7b.sh").stderr


def test_what_was_measured() -> None:
    """The table of TRL's own scripts is what its page says."""
    rows = [row for row in read().values() if "measured" in row]
    page = (Path(__file__).parents[1] / "bench" / "TRL.md").read_text()
    for half in ("seen", "unseen"):
        errors = [error(row, "again") for row in rows if row["half"] == half]
        assert spread(errors) in page
