"""Marks in trainers of others: TRL's GRPOTrainer (a Trainer of transformers) for real; verl and OpenRLHF by objects of their form.

verl and OpenRLHF cannot be installed beside what the tests need. Their forms are those of verl 0.9.1 (Tracking.log,
marked_timer) and of OpenRLHF's main branch of 2026 (WandbLogger.log_train, TensorboardLogger.log_train).
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import hooks, marks

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(sys.prefix) / "programs"
Line = tuple[str | None, int | None, str | None]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this process writes its marks."""
    monkeypatch.setenv("RLHFDOCTOR_MARKS", str(tmp_path / "marks"))
    importlib.reload(marks)
    yield tmp_path / "marks"
    importlib.reload(marks)


def lines(folder: Path) -> list[Line]:
    """(phase, step, edge) of each mark, in order."""
    found = [json.loads(line) for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [(line.get("phase"), line.get("step"), line.get("edge") or ("start" if line.get("phase") else None)) for line in sorted(found, key=lambda line: line["at_ns"]) if line.get("kind") != "role"]


def test_nothing_is_imported() -> None:
    """The hooks cost a process nothing before they are used."""
    code = "import sys, rlhfdoctor.hooks; print(sorted({m.split('.')[0] for m in sys.modules} & {'transformers', 'torch', 'verl', 'openrlhf', 'numpy'}))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_unknown_name() -> None:
    """Another name is an error as of any module."""
    with pytest.raises(AttributeError, match="TrainerMark'"):
        hooks.TrainerMark  # noqa: B018


GRPO = """
import sys
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast
from trl import import_utils
import_utils.is_vllm_available = lambda *_, **__: False
from trl import GRPOConfig, GRPOTrainer
from rlhfdoctor import hooks
words = ["<pad>", "<eos>", "<unk>", "a", "b", "c"]
plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
plain.pre_tokenizer = Whitespace()
tokens = PreTrainedTokenizerFast(tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left")
model = GPT2LMHeadModel(GPT2Config(vocab_size=6, n_positions=16, n_embd=8, n_layer=1, n_head=1, bos_token_id=1, eos_token_id=1, pad_token_id=0))
args = GRPOConfig(output_dir=sys.argv[1], per_device_train_batch_size=2, num_generations=2, max_completion_length=2, max_steps=2, save_steps=2, eval_strategy="steps", eval_steps=2, logging_steps=1, report_to="none", use_cpu=True, bf16=False, disable_tqdm=True)
rows = Dataset.from_dict({"prompt": ["a b", "c"] * 4})
trainer = GRPOTrainer(model=model, reward_funcs=lambda completions, **_: [1.0 * len(text) for text in completions], args=args, train_dataset=rows, eval_dataset=rows.select(range(2)), processing_class=tokens, callbacks=[hooks.TrainerMarks()])
assert hooks.mark_generation(trainer)
trainer.train()
"""


def test_trl(tmp_path: Path) -> None:
    """A step of GRPO is a rollout, then an update; after the second one it is evaluated, which generates, and saved."""
    if not (PROGRAMS / "trl").is_dir():
        pytest.skip("TRL is not installed (make test installs it)")
    env = {**os.environ, "RLHFDOCTOR_MARKS": str(tmp_path / "marks"), "PYTHONPATH": f"{ROOT}:{PROGRAMS}", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", GRPO, str(tmp_path / "out")], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rollout = [("rollout", None, "start"), ("rollout", None, "end")]
    steps = [mark for step in (1, 2) for mark in (("update", step, "start"), *rollout, ("update", None, "start"), ("update", step, "end"))]
    after = [("eval", 2, "start"), *rollout, ("eval", 2, "end"), ("checkpoint", 2, "start"), ("checkpoint", 2, "end")]
    assert lines(tmp_path / "marks")[: len(steps) + len(after)] == [*steps, *after]
    assert issubclass(hooks.TrainerMarks, pytest.importorskip("transformers").TrainerCallback)


def test_a_trainer_that_does_not_generate() -> None:
    """Is left as it is."""
    assert not hooks.mark_generation(types.SimpleNamespace())


def install(monkeypatch: pytest.MonkeyPatch, **modules: Mapping[str, Any]) -> None:
    """Modules with these names in them; `__` in a name is a dot."""
    for name, inside in modules.items():
        words = name.replace("__", ".").split(".")
        for count in range(1, len(words) + 1):
            whole = ".".join(words[:count])
            if whole not in sys.modules or count == len(words):
                monkeypatch.setitem(sys.modules, whole, types.ModuleType(whole))
        vars(sys.modules[".".join(words)]).update(inside)


def test_verl(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop of its fit: a validation before the training, then two steps."""
    logged, times = [], []

    class Tracking:
        def log(self, data: Any, step: int, backend: Any = None) -> None:
            logged.append((data, step))

    @contextmanager
    def marked_timer(name: str, timing_raw: dict[str, float], color: str | None = None, domain: str | None = None, category: str | None = None) -> Iterator[None]:
        yield
        times.append(name)

    timer = {"marked_timer": marked_timer}
    install(monkeypatch, verl__utils__tracking={"Tracking": Tracking}, verl__utils__debug=timer, verl__trainer__ppo__v1__trainer_base=timer)
    assert hooks.mark_verl() == ["Tracking", "verl.utils.debug.marked_timer", "verl.trainer.ppo.v1.trainer_base.marked_timer"]
    trainer: Any = sys.modules["verl.trainer.ppo.v1.trainer_base"]
    logger = Tracking()
    logger.log(data={"val": 1}, step=0)
    for step in (1, 2):
        with trainer.marked_timer("step", {}):
            for name in ("gen", "reward", "adv", "update_actor"):
                with trainer.marked_timer(name, {}, color="red"):
                    pass
        logger.log(data={}, step=step)
    phases = [(phase, None, edge) for phase in ("rollout", "score", "update") for edge in ("start", "end")]
    assert lines(folder) == [(None, 1, None), *phases, (None, 2, None), *phases, (None, 3, None)]
    assert (logged, times) == ([({"val": 1}, 0), ({}, 1), ({}, 2)], ["gen", "reward", "adv", "update_actor", "step"] * 2)


def test_verl_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 0.3 the loop's module had a timer of its own; a generator of that name elsewhere is another thing."""

    @contextmanager
    def _timer(name: str, timing_raw: dict[str, float]) -> Iterator[None]:
        yield

    install(monkeypatch, verl__trainer__ppo__ray_trainer={"_timer": _timer}, verl__utils__profiler={"_timer": _timer})
    assert hooks.mark_verl() == ["verl.trainer.ppo.ray_trainer._timer"]
    trainer: Any = sys.modules["verl.trainer.ppo.ray_trainer"]
    with trainer._timer("update_critic", {}):
        pass
    assert lines(folder) == [("update", None, "start"), ("update", None, "end")]


def test_openrlhf(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loggers that get the same step mark it once."""
    logged = []

    def make() -> type:
        class Logger:
            def log_train(self, global_step: int, logs_dict: dict[str, Any]) -> None:
                logged.append(global_step)

        return Logger

    one, two = make(), make()
    install(monkeypatch, openrlhf__utils__logging_utils={"WandbLogger": one, "TensorboardLogger": two})
    assert hooks.mark_openrlhf() == ["WandbLogger", "TensorboardLogger"]
    for step in (1, 2):
        for kind in (one, two):
            kind().log_train(step, {})
    assert (lines(folder), logged) == ([(None, 2, None), (None, 3, None)], [1, 1, 2, 2])


def test_neither_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is found, and nothing fails."""
    monkeypatch.setitem(sys.modules, "verl", None)
    monkeypatch.setitem(sys.modules, "openrlhf", None)
    assert (hooks.mark_verl(), hooks.mark_openrlhf()) == ([], [])
