"""Every combination of options that `--help` allows is answered or refused in plain words, for every framework."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.core.estimate import Machine, estimate_session, opened
from rlhfdoctor.errors import UsageError
from rlhfdoctor.plugins import folders
from rlhfdoctor.report import estimate_json
from rlhfdoctor.report.estimate_verdict import sentence, verdict

GIB = 1 << 30
LAUNCHED = {
    "openrlhf": "python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B",
    "verl": "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B",
    "easyr1": "python3 -m verl.trainer.main worker.actor.model.model_path=Qwen/Qwen2.5-7B",
    "simplerl": "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B",
    "trl": "trl grpo --model_name_or_path Qwen/Qwen2.5-7B",
    "skyrl": "python3 -m skyrl_train.entrypoints.main_base trainer.policy.model.path=Qwen/Qwen2.5-7B",
    "slime": "python3 slime/train.py --hf-checkpoint Qwen/Qwen2.5-7B",
    "rlhfdoctor": "python3 -m trainer.train model.hidden_size=256",
}
CHOICES = {
    "gpus_per_node": (None, 0, 1, 3, 8, 1024),
    "nodes": (None, 1, 3, 100_000),
    "model": (None, "13B", "nonsense"),
    "host_bytes": (None, 2 * GIB),
    "container_bytes": (None, 2 * GIB),
    "shm_bytes": (None, GIB),
    "gpu_bytes": (None, 2 * GIB),
}
"""`Machine`'s fields, with the ends of what the options take and a value that is too small for anything."""


def machines() -> list[Machine]:
    """All combinations."""
    return [Machine(**dict(zip(CHOICES, values, strict=True))) for values in itertools.product(*CHOICES.values())]


def few() -> Iterator[Machine]:
    """So many that every pair of two options' values is among them."""
    missing = {
        (one, two)
        for a, b in itertools.combinations(CHOICES, 2)
        for one, two in itertools.product(((a, v) for v in CHOICES[a]), ((b, v) for v in CHOICES[b]))
    }
    every = machines()
    random.Random(1).shuffle(every)
    for machine in every:
        pairs = set(itertools.combinations(((name, getattr(machine, name)) for name in CHOICES), 2))
        if pairs & missing:
            missing -= pairs
            yield machine


def test_every_framework_is_here() -> None:
    """A framework that is added is tried, too."""
    assert set(folders.names()) == set(LAUNCHED)


def answered(folder: Path, name: str, tried: list[Machine]) -> int:
    """How many are answered, by a verdict or a refusal; anything else raises."""
    (folder / "run.sh").write_text(LAUNCHED[name] + "\n")
    count = 0
    with opened([str(folder)], framework=name) as session:
        for machine in tried:
            try:
                found = estimate_session(session, machine)
            except UsageError as refused:
                assert str(refused)
            else:
                assert str(sentence(found)).startswith(
                    ("fits", "too close", "may not fit", "will", "no limit", "a known trap")
                )
                assert ("fits" in str(sentence(found))) <= (verdict(found) == "fits")
                assert estimate_json.render(found)
            count += 1
    return count


@pytest.mark.parametrize("name", LAUNCHED)
def test_pairs_of_options(name: str, tmp_path: Path) -> None:
    """Each value of an option with each value of another."""
    tried = list(few())
    assert answered(tmp_path, name, tried) == len(tried)


@pytest.mark.sweep
@pytest.mark.parametrize("name", LAUNCHED)
def test_all_options(name: str, tmp_path: Path) -> None:
    """All of them together."""
    tried = [machine for machine in machines() if machine.nodes != CHOICES["nodes"][-1]]  # which takes 0.2 s each
    assert answered(tmp_path, name, tried) == len(tried)


TRL = {
    "command": ("trl grpo", "trl sft", "trl dpo", "trl kto", "trl reward", "trl rloo", "python my.py"),
    "dtype": ("", "--dtype float32", "--dtype bfloat16", "--dtype auto", "--torch_dtype nonsense"),
    "half": ("", "--bf16 false", "--bf16", "--fp16 true"),
    "more": ("", "--use_peft --lora_r 8", "--use_vllm true", "--gradient_accumulation_steps 4", "--save_strategy no"),
    "ranks": ("", "--num_processes 2", "--num_processes auto", "--nproc_per_node gpu", "--num_processes 0"),
}


@pytest.mark.parametrize("gpus", [None, 0, 2])
def test_options_of_trls_scripts(gpus: int | None, tmp_path: Path) -> None:
    """Every fifth combination of what changes the memory of `trl ...`, with a GPU and without."""
    for words in list(itertools.product(*TRL.values()))[:: 5 * 7]:
        (tmp_path / "run.sh").write_text(f"{' '.join(words)} --model_name_or_path Qwen/Qwen2.5-0.5B\n")
        with opened([str(tmp_path)], framework="trl==1.16.0") as session:
            assert estimate_session(session, Machine(gpus_per_node=gpus)).needs, words
