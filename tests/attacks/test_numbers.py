"""Numbers that no run has: in launch scripts, configurations, logs, lists of releases, models."""

from __future__ import annotations

import itertools
import json
import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from rlhfdoctor.budget.shapes import of_config
from rlhfdoctor.errors import UsageError
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.report.json_text import to_text

Doctor = Callable[..., Result]
SAMPLES = Path(__file__).parents[2] / "samples"
NUMBERS = ("4294967296", "9" * 400, "9" * 5000, "1e999", "-1", "nan", "1e308", "0", "²")
PLACES = (
    ("easyr1-long-prompts", "micro_batch_size_per_device_for_update: 4"),
    ("easyr1-long-prompts", "nnodes: 1"),
    ("openrlhf-save-kill", "--actor_num_nodes 1"),
    ("openrlhf-save-kill", "--zero_stage 2"),
    ("openrlhf-save-kill", "openrlhf==0.1.10"),
    ("openrlhf-save-kill", "anon-rss:83339056kB"),
)


def _changed(folder: Path, place: str, number: str) -> int:
    """How many files of a folder hold the place, each now with the number in it."""
    head = place.rstrip("0123456789.") if "kB" not in place else "anon-rss:"
    count = 0
    for path in (path for path in folder.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if place.encode() in data:
            tail = "kB" if "kB" in place else ""
            path.write_bytes(data.replace(place.encode(), f"{head}{number}{tail}".encode()))
            count += 1
    return count


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
@pytest.mark.parametrize(("sample", "place"), PLACES, ids=lambda text: text[:24])
def test_every_number_gets_an_answer(doctor: Doctor, tmp_path: Path, sample: str, place: str, number: str) -> None:
    """A verdict, valid JSON, an estimate or a refusal in words; nothing of the doctor's own fails, nothing takes long."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / sample / "run", run)
    assert _changed(run, place, number)
    result = doctor("analyze", run, "--format", "json")
    assert result.exit_code in (0, 1, 3), result.stderr
    report = json.loads(result.stdout)
    assert "please report it" not in json.dumps(report["gaps"])
    estimated = doctor("estimate", run)
    assert "internal error" not in estimated.stderr
    assert estimated.exit_code in (0, 1, 2)


@pytest.mark.parametrize("share", [1, 2])
@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_numbers_of_every_pattern(doctor: Doctor, tmp_path: Path, number: str, share: int) -> None:
    """All samples in one log, each figure of them, or each second one, the same odd number: "0B" was a division by zero."""
    count = itertools.count()
    text = "\n".join(
        re.sub(r"\d+(?:\.\d+)?", lambda found: found[0] if next(count) % share else number, pattern.sample)
        for pattern in PATTERNS
    )
    (tmp_path / "a.log").write_text(text, errors="surrogatepass")
    result = doctor("analyze", tmp_path, "--format", "json")
    assert result.exit_code in (0, 1, 3), result.stderr
    assert "please report it" not in json.dumps(json.loads(result.stdout)["gaps"])


@pytest.mark.parametrize("entity", ["&#" + "1" * 5000 + ";", "&#x" + "f" * 5000 + ";", "&#xd800;", "&#99999;"])
def test_numbers_of_characters(doctor: Doctor, tmp_path: Path, entity: str) -> None:
    """One line of HTML cost the kernel's log all of its evidence."""
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / "ray-cgroup-kill" / "run", run)
    with (run / "dmesg.txt").open("a") as out:
        out.write(f"&lt; {entity} x\n")
    result = json.loads(doctor("analyze", run, "--format", "json").stdout)
    assert (result["verdict"], result["killer"]) == ("cause", "kernel-oom-cgroup")


@pytest.mark.parametrize("value", [10**9, 10**400, -1, math.inf])
@pytest.mark.parametrize("name", ["num_hidden_layers", "hidden_size", "vocab_size", "num_experts"])
def test_sizes_that_no_model_has(name: str, value: float) -> None:
    """Layers are counted one by one."""
    config = {"num_attention_heads": 8, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 99}
    with pytest.raises(UsageError):
        of_config({**config, "moe_intermediate_size": 8, name: value}, "x")


def test_figures_without_a_word_in_json() -> None:
    """Infinite ones are null, whatever they stand in."""
    assert json.loads(to_text({"a": [math.inf, 1.5], "b": {"c": math.nan}})) == {"a": [None, 1.5], "b": {"c": None}}
