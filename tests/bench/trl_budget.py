"""How far the memory budget is from what TRL's own scripts take on CPU: `sft` and `grpo`, from models made here.

    python tests/bench/trl_budget.py predict [--half seen|unseen]    the estimate of every run, stored before it is run
    python tests/bench/trl_budget.py measure --half seen|unseen      runs what has no peak yet, one after the other
    python tests/bench/trl_budget.py table [--write]                 predictions beside the measured peaks (TRL.md)

The protocol: all runs are predicted first. Then the `seen` half is measured, and constants and formulas are mended by
it; the `unseen` half is predicted again, and measured; nothing is touched after that. Both predictions stay in the file.

A run is three steps of `trl/scripts/sft.py` or `grpo.py` (TRL 1.16.0, torch and transformers as installed), as two ranks
with torchrun's variables where it says x2. It is forked from a process that has imported TRL, since imports would take
most of the time; what it shares counts as its own. The peak of a rank is the largest of its anonymous and shared pages,
read every 10 ms, or the kernel's high-water mark less the most that its file pages ever took, if that is more. The models
are Llamas of random weights; prompts are as long as the doctor is told, responses as long as they may be. What computes
in 16 bit has few tokens: a CPU without instructions for it is slow. Four runs of an earlier list were thrown away before
the first of these, three because their tokenizer made two tokens of every text, one because the list's runs in 16 bit did
not end; nothing was set by them.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
RESULTS = Path(__file__).with_name("trl-budget.jsonl")
PAGE = Path(__file__).with_name("TRL.md")
HALVES = ("seen", "unseen")
_LONGEST_S = 600
_EVERY_S = 0.01
_PROMPT = 8
"""Words of a prompt, each one token."""
_SIZES: dict[str, dict[str, Any]] = {
    "70M": {"hidden_size": 768, "layers": 8, "heads": 12, "vocabulary": 16384, "tied": True},
    "134M": {"hidden_size": 1024, "layers": 8, "heads": 16, "vocabulary": 16384, "tied": False},
    "wide": {"hidden_size": 640, "layers": 6, "heads": 10, "vocabulary": 65536, "tied": True},
    "deep": {"hidden_size": 512, "layers": 24, "heads": 8, "vocabulary": 8192, "tied": True},
    "150M": {"hidden_size": 1280, "layers": 6, "heads": 10, "vocabulary": 12288, "tied": False},
    "90M": {"hidden_size": 896, "layers": 7, "heads": 14, "vocabulary": 24576, "tied": True},
}


@dataclass(frozen=True, slots=True)
class Run:
    """One row: which script, which model, which of its options."""

    half: str
    script: str
    size: str
    dtype: str
    words: str
    ranks: int = 1
    stored: str = "float32"

    @property
    def name(self) -> str:
        """What tells it from the others."""
        ranks = f" x{self.ranks}" if self.ranks > 1 else ""
        stored = f" of {self.stored} files" if self.stored != "float32" else ""
        return f"{self.script} {self.size} {self.dtype}{stored}{ranks} {self.words}".strip()


FULL, PLAIN, REF, SAVE, TWICE, LONG = (
    "--bf16 false",
    "--gradient_checkpointing false",
    "--beta 0.04",
    "--save_steps 2",
    "--gradient_accumulation_steps 2",
    "--max_length 256 --per_device_train_batch_size 4",
)


def runs() -> Iterator[Run]:
    """Twelve to be looked at, and twelve that are not; what computes in 16 bit is short, which CPUs do slowly."""
    seen, unseen = HALVES
    yield Run(seen, "sft", "70M", "float32", FULL)
    yield Run(seen, "grpo", "70M", "float32", f"{FULL} {REF}")
    yield Run(seen, "sft", "134M", "float32", "")
    yield Run(seen, "sft", "wide", "bfloat16", "")
    yield Run(seen, "sft", "deep", "float32", f"{FULL} {PLAIN} {LONG}")
    yield Run(seen, "sft", "70M", "float32", FULL, ranks=2)
    yield Run(seen, "grpo", "wide", "float32", f"{FULL} {REF} --max_completion_length 48", stored="bfloat16")
    yield Run(seen, "grpo", "90M", "float32", SAVE)
    yield Run(seen, "sft", "70M", "float32", f"{FULL} {TWICE} {SAVE}")
    yield Run(seen, "grpo", "70M", "bfloat16", REF, ranks=2)
    yield Run(seen, "sft", "wide", "float32", f"{FULL} {LONG}")
    yield Run(seen, "grpo", "134M", "bfloat16", "")
    yield Run(unseen, "sft", "150M", "float32", FULL)
    yield Run(unseen, "grpo", "90M", "float32", f"{FULL} {REF}")
    yield Run(unseen, "sft", "90M", "float32", "")
    yield Run(unseen, "sft", "134M", "bfloat16", TWICE)
    yield Run(unseen, "sft", "wide", "float32", f"{FULL} {PLAIN} {LONG}")
    yield Run(unseen, "sft", "wide", "float32", f"{FULL} {SAVE}", ranks=2)
    yield Run(unseen, "grpo", "deep", "float32", f"{FULL} --max_completion_length 48", stored="bfloat16")
    yield Run(unseen, "grpo", "wide", "bfloat16", f"{REF} {SAVE}")
    yield Run(unseen, "sft", "90M", "float32", f"{FULL} {LONG}")
    yield Run(unseen, "grpo", "90M", "bfloat16", "", ranks=2)
    yield Run(unseen, "grpo", "134M", "float32", f"{FULL} {TWICE}")
    yield Run(unseen, "sft", "70M", "float32", PLAIN)


def config_of(run: Run) -> dict[str, Any]:
    """The config.json of its model."""
    size = _SIZES[run.size]
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": size["hidden_size"],
        "intermediate_size": 3 * size["hidden_size"],
        "num_hidden_layers": size["layers"],
        "num_attention_heads": size["heads"],
        "num_key_value_heads": size["heads"] // 2,
        "vocab_size": size["vocabulary"],
        "tie_word_embeddings": size["tied"],
        "dtype": run.stored,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "bos_token_id": None,
    }


def options(run: Run) -> str:
    """The script's words, without the folder that everything is in."""
    own = "--num_generations 2 --reward_funcs judge.length" if run.script == "grpo" else ""
    if run.script == "grpo" and "--max_completion_length" not in run.words:
        own += " --max_completion_length 6"
    if run.script == "sft" and "--max_length" not in run.words:
        own += " --max_length 32"
    micro = "--per_device_train_batch_size 2" if "--per_device" not in run.words else ""
    save = "" if "--save_steps" in run.words else "--save_strategy no"
    return (
        f"--model_name_or_path model --dataset_name data --dtype {run.dtype} --output_dir out --use_cpu true --max_steps 3 "
        f"--logging_steps 1 --report_to none {micro} {own} {save} {run.words}"
    )


def launcher(run: Run) -> str:
    """What stands before the words: Python, or torchrun with a rank a process."""
    if run.ranks == 1:
        return f"python trl/scripts/{run.script}.py"
    return f"torchrun --standalone --nproc_per_node {run.ranks} trl/scripts/{run.script}.py"


@click.group()
def main() -> None:
    """Predicted against measured host memory of TRL's scripts."""


@main.command()
@click.option("--half", type=click.Choice(HALVES), help="Only these runs, as `again` beside the first prediction.")
def predict(half: str | None) -> None:
    """Stores the estimate of every run, in bytes of all ranks; those that are measured keep theirs."""
    rows = read()
    for run in runs():
        row = rows.setdefault(run.name, {"name": run.name, "half": run.half})
        if half is None and "measured" not in row:
            row["predicted"] = estimated(run)
        elif half == run.half:
            row["again"] = estimated(run)
        click.echo(f"{run.name}: {row.get('again', row.get('predicted', 0)) / 2**20:.0f} MiB")
    store(rows)


def estimated(run: Run) -> int:
    """The peak of all ranks as `doctor estimate` has it, without the kernel's page tables."""
    from rlhfdoctor.core.estimate import Machine, estimate

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "model").mkdir()
        Path(folder, "model", "config.json").write_text(json.dumps(config_of(run)))
        Path(folder, "launch.sh").write_text(f"{launcher(run)} {options(run)}\n")
        Path(folder, "prompts.yaml").write_text(f"max_prompt_length: {_PROMPT}\n")
        Path(folder, "versions.txt").write_text("safetensors==0.8.0\ntransformers==5.19.0\ntorch==2.13.0\n")
        files = [str(Path(folder, name)) for name in ("launch.sh", "prompts.yaml", "versions.txt")]
        found = estimate(files, framework="trl==1.16.0", machine=Machine(gpus_per_node=0))
    found = replace(found, needs=tuple(need for need in found.needs if need.role != "kernel"))
    return max(found.of("host", phase) for phase in found.phases)


@main.command()
@click.option("--half", type=click.Choice(HALVES), required=True)
@click.option("--only", default="", help="Runs whose name holds this.")
def measure(half: str, only: str) -> None:
    """Runs what has no peak yet."""
    home = Path(tempfile.mkdtemp(prefix="trl-home-"))
    load(home)
    for run in runs():
        row = read()[run.name]
        if run.half != half or "measured" in row or only not in run.name:
            continue
        began = time.monotonic()
        peaks, said = peaks_of(run)
        click.echo(f"{run.name}: {[p >> 20 for p in peaks]} MiB, {time.monotonic() - began:.0f} s {said}", err=True)
        if not said:
            store(read() | {run.name: row | {"measured": sum(peaks), "ranks": peaks}})
    shutil.rmtree(home, ignore_errors=True)


_JUDGE = "def length(completions, **_):\n    return [float(len(set(text.split()))) for text in completions]\n"


def load(home: Path) -> None:
    """Imports once what every run needs; a run is a fork, whose pages count as its own."""
    from tests.live.programs.place import PACKAGES, environment

    os.environ.update(environment(home) | {"HF_HOME": str(home), "OMP_NUM_THREADS": "2"})
    sys.path += [str(PACKAGES)]
    from trl import import_utils

    import_utils.is_vllm_available = lambda *_, **__: False  # not used here; its import takes as long as the rest
    from trl import GRPOTrainer, SFTTrainer, TrlParser  # noqa: F401


def peaks_of(run: Run) -> tuple[list[int], str]:
    """Bytes at the peak of every rank, and what went wrong."""
    from tests.live.programs.place import PACKAGES

    folder = Path(tempfile.mkdtemp(prefix="trl-"))
    try:
        os.waitpid(forked(folder, lambda: make(run, folder)), 0)
        script = str(PACKAGES / "trl" / "scripts" / f"{run.script}.py")
        pids = [forked(folder, lambda rank=rank: start(run, script, rank)) for rank in range(run.ranks)]
        peaks, ended = watch(pids)
        return peaks, "" if ended else (folder / "log").read_text()[-1500:]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def forked(folder: Path, work: Callable[[], None]) -> int:
    """A process that does this in the folder, with its output in a log there."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.chdir(folder)
        log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(log, 1)
        os.dup2(log, 2)
        work()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def start(run: Run, script: str, rank: int) -> None:
    """The script as Python starts it, or as torchrun does a rank of it."""
    import torch

    if run.ranks > 1:
        torch.set_num_threads(1)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20_000 + os.getppid() % 10_000)}
        numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": run.ranks, "LOCAL_WORLD_SIZE": run.ranks}
        os.environ.update(place | {key: str(number) for key, number in numbers.items()})
    sys.argv = [script, *options(run).split()]
    runpy.run_path(script, run_name="__main__")


def make(run: Run, folder: Path) -> None:
    """Model of random weights, tokenizer of words, data and reward of a run."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

    (folder / "judge.py").write_text(_JUDGE)
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text(json.dumps(config_of(run)))
    config = AutoConfig.from_pretrained(folder / "model")
    made = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, run.stored))
    made.save_pretrained(folder / "model")
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(config.vocab_size - 3))]
    plain = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    plain.pre_tokenizer = Whitespace()
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=plain, padding_side="left", **named).save_pretrained(folder / "model")
    (folder / "data").mkdir()
    length = 400 if run.script == "sft" else _PROMPT
    texts = [" ".join(f"w{(i * 37 + n * 11) % 4000}" for n in range(length)) for i in range(64)]
    column = "text" if run.script == "sft" else "prompt"
    (folder / "data" / "train.jsonl").write_text("".join(json.dumps({column: text}) + "\n" for text in texts))


def watch(pids: Sequence[int]) -> tuple[list[int], bool]:
    """The peak of every rank until the last one ends, and whether all ended well."""
    tops = {pid: {"held": 0, "file": 0, "mark": 0} for pid in pids}
    left, ended = set(pids), True
    due = time.monotonic() + _LONGEST_S
    while left:
        for pid in sorted(left):
            now = status(pid)
            tops[pid]["held"] = max(tops[pid]["held"], now.get("RssAnon", 0) + now.get("RssShmem", 0))
            tops[pid]["file"] = max(tops[pid]["file"], now.get("RssFile", 0))
            tops[pid]["mark"] = max(tops[pid]["mark"], now.get("VmHWM", 0))
            done, code = os.waitpid(pid, os.WNOHANG)
            if done:
                left.remove(pid)
                ended &= code == 0
            elif time.monotonic() > due:
                os.kill(pid, signal.SIGKILL)
        time.sleep(_EVERY_S)
    return [max(top["held"], top["mark"] - top["file"]) for top in tops.values()], ended


def status(pid: int) -> dict[str, int]:
    """Sizes of /proc/PID/status in bytes; none once it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return {}
    return {key: int(rest.split()[0]) << 10 for key, _, rest in (line.partition(":") for line in lines) if "kB" in rest}


@main.command()
@click.option("--write", is_flag=True, help="Into TRL.md.")
def table(write: bool) -> None:
    """Measured and predicted, the two halves apart."""
    text = page(list(read().values()))
    if write:
        PAGE.write_text(text)
    click.echo(text)


def page(rows: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    done = [row for row in rows if "measured" in row]
    lines = [
        "# The budget against measured runs of TRL's own scripts",
        "",
        *(__doc__ or "").split("\n\n", 2)[2].strip().split("\n"),
        "",
        "Commands: `python tests/bench/trl_budget.py predict`, `measure --half seen`, `predict --half unseen`, `measure --half unseen`, `table --write`.",
        "Sizes are MiB of all ranks together; error: predicted less measured, of the measured.",
        "",
        "| half | predicted | runs | median | 90th percentile | under by more than 5 % | largest |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for half in HALVES:
        own = [row for row in done if row["half"] == half]
        for key, when in (("predicted", "before any run"), ("again", "after the seen half")):
            if own and all(key in row for row in own):
                lines.append(f"| {half} | {when} | {len(own)} | {spread([error(row, key) for row in own])} |")
    lines += [
        "",
        "| half | run | measured | predicted first | error | predicted again | error |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for row in done:
        cells = [f"{row['measured'] / 2**20:.0f}"]
        for key in ("predicted", "again"):
            cells += [f"{row[key] / 2**20:.0f}", f"{error(row, key):+.1%}"] if key in row else ["", ""]
        lines.append(f"| {row['half']} | {row['name']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def error(row: dict[str, Any], key: str) -> float:
    """Of the measured."""
    return float(row[key] / row["measured"] - 1)


def spread(errors: Sequence[float]) -> str:
    """Median, nearest-rank 90th percentile, share of those under by more than 5 %, largest."""
    sizes = sorted(abs(e) for e in errors)
    ninth = sizes[-(-9 * len(sizes) // 10) - 1]
    under = sum(e < -0.05 for e in errors) / len(errors)
    return f"{median(sizes):.1%} | {ninth:.1%} | {under:.1%} | {sizes[-1]:.1%}"


def read() -> dict[str, dict[str, Any]]:
    """The stored rows by name."""
    lines = RESULTS.read_text().splitlines() if RESULTS.exists() else []
    return {row["name"]: row for row in map(json.loads, lines)}


def store(rows: dict[str, dict[str, Any]]) -> None:
    """All rows, one a line."""
    RESULTS.write_text("".join(json.dumps(row) + "\n" for row in rows.values()))


if __name__ == "__main__":
    main()
