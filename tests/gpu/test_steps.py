"""The GPU script as far as a CPU goes: what each reading tells apart, verdicts, lines that are kept, the table, every stand-in."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.gpu import memory
from tests.gpu.__main__ import append, choose, main
from tests.gpu.step import ROOT, Step, steps, verdict
from tests.gpu.table import RESULTS, TABLE, latest, read_lines, table

SIZE = 32 << 20
torch = pytest.importorskip("torch", reason="torch is not installed")
pinned = pytest.importorskip("trainer.pinned")
LOCKED = "no right to lock so much memory (ulimit -l)"


@contextmanager
def held(flags: int, lock: bool) -> Iterator[dict[str, float]]:
    """Anonymous memory, touched; with mlock(2) where asked. Gives what each figure grew by, over its size."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = memory.read()
    block = mmap.mmap(-1, SIZE, flags=flags | mmap.MAP_ANONYMOUS)
    view = ctypes.c_char.from_buffer(block)
    address = ctypes.c_void_p(ctypes.addressof(view))
    ctypes.memset(address, 1, SIZE)
    if lock and libc.mlock(address, ctypes.c_size_t(SIZE)):
        pytest.skip(LOCKED)
    yield memory.shares(before, memory.read(), SIZE)
    del view
    block.close()


@pytest.mark.parametrize(
    ("flags", "lock", "expected"),
    [
        (mmap.MAP_PRIVATE, False, {"RssAnon": 1, "RssShmem": 0, "VmLck": 0, "shared": 0}),
        (mmap.MAP_PRIVATE, True, {"RssAnon": 1, "RssShmem": 0, "VmLck": 1, "shared": 0}),
        (mmap.MAP_SHARED, False, {"RssAnon": 0, "RssShmem": 1, "VmLck": 0, "shared": 1}),
        (mmap.MAP_SHARED, True, {"RssAnon": 0, "RssShmem": 1, "VmLck": 1, "shared": 1}),
    ],
)
def test_a_reading_tells_kinds_of_memory_apart(flags: int, lock: bool, expected: dict[str, float]) -> None:
    """Private or shared, locked or not: each shows in its own figures of the process."""
    with held(flags, lock) as grown:
        assert {name: round(grown[name], 1) for name in expected} == expected


@pytest.mark.parametrize(
    ("flags", "lock", "expected"),
    [
        (mmap.MAP_PRIVATE, False, {"cgroup anon": 1, "cgroup shmem": 0, "cgroup unevictable": 0, "cgroup used": 1}),
        (mmap.MAP_SHARED, True, {"cgroup anon": 0, "cgroup shmem": 1, "cgroup unevictable": 1, "cgroup used": 1}),
    ],
)
def test_a_cgroup_of_its_own_counts_it(flags: int, lock: bool, expected: dict[str, float]) -> None:
    """A process that is moved into a new cgroup is charged there for what it allocates; the cgroup is removed."""
    try:
        with memory.own_cgroup() as folder, memory.inside(folder), held(flags, lock) as grown:
            assert {name: round(grown[name], 1) for name in expected} == pytest.approx(expected, abs=0.1)
    except OSError as error:
        pytest.skip(f"no memory cgroup of its own: {error}")
    assert not folder.exists()


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.name)
def test_what_a_step_questions_is_still_in_the_code(step: Step) -> None:
    """The place that assumes a fact has not moved or been reworded."""
    assert step.assumed.line() is not None, step.assumed


def test_names_are_unique_and_runs_are_short() -> None:
    """A line belongs to one step; each fits into a run of ten minutes, and some expectation is there to fail."""
    names = [step.name for step in steps()]
    assert len(names) == len(set(names))
    assert all(step.limit_s <= 300 and step.expected for step in steps())


def test_a_figure_outside_of_its_range_decides() -> None:
    """One figure that differs outweighs another that is missing."""
    expected = {"a": (0.9, 1.1), "b": (0.0, 0.1)}
    assert [verdict(expected, found) for found in ({"a": 2.0}, {"a": 1.0}, {"a": 1.0, "b": 0.05})] == [
        "differs",
        "unknown",
        "holds",
    ]


def test_a_word_names_one_step_or_all_that_begin_so() -> None:
    """`zero-2` is a step, though others begin with it."""
    assert [step.name for step in choose(("zero-2",))] == ["zero-2"]
    assert len(choose(("zero-3-",))) == 2
    assert CliRunner().invoke(main, ["--only", "no-such-step", "--list"]).exit_code == 2


def test_the_last_line_of_a_step_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A prediction is no verdict; a line that was cut off is left out; what $OUT names has a copy."""
    monkeypatch.setenv("OUT", str(tmp_path / "out"))
    results = tmp_path / "results.jsonl"
    line = {"step": "rounding", "environment": {"card": "a card"}, "measured": {"taken": 1.0}}
    append(results, {**line, "verdict": "unknown"})
    append(results, {**line, "verdict": "holds"})
    append(results, {"step": "rounding", "predicted": {"bytes": 3}})
    with results.open("a") as file:
        file.write('{"step": "roun')
    assert latest(read_lines(results))["rounding"]["verdict"] == "holds"
    assert "| taken 1.0 | holds |" in table(read_lines(results))
    assert (tmp_path / "out" / "TABLE.md").is_file()
    assert json.loads((tmp_path / "out" / "results.jsonl").read_text().splitlines()[0])["verdict"] == "unknown"


def test_the_table_is_fresh() -> None:
    """TABLE.md is what the steps and the lines make: `python -m tests.gpu.table` writes it."""
    assert TABLE.read_text() == table(read_lines(RESULTS))


def test_it_refuses_without_a_card() -> None:
    """Nothing is stored where there is no CUDA device."""
    if torch.cuda.is_available():
        pytest.skip("there is one")
    done = CliRunner().invoke(main, ["--only", "rounding"])
    assert (done.exit_code, "no CUDA device here" in str(done.exception) + done.output) == (1, True)


@pytest.mark.parametrize(
    "name",
    ["rounding", "cache-never-shrinks", "host-memory-stats", "nvml-process", "context", "oom-fragmentation", "snapshot"],
)
def test_a_stand_in_shows_what_is_expected(name: str) -> None:
    """Everything but CUDA's own call, in this process; no block of an earlier step is taken again."""
    pinned._blocks.clear()
    step = next(step for step in steps() if step.name == name)
    try:
        assert verdict(step.expected, step.run("cpu")) == "holds"
    except MemoryError:
        pytest.skip(LOCKED)


def test_the_logits_of_a_toy_are_predicted_and_measured() -> None:
    """A prediction in bytes comes before a figure that is over it."""
    step = next(step for step in steps() if step.name == "logits-trained")
    assert step.predict is not None
    assert step.predict("cpu") == {"bytes": 12 * 128 * 2048}
    done = run_alone("logits-trained")
    assert int(re.findall(r"bytes (\d+)", done.stdout)[0]) > 12 * 128 * 2048, done.stderr


@pytest.mark.parametrize("setting", ["zero-2", "zero-2-offload-pinned", "zero-3-offload-pinned"])
def test_a_training_is_predicted(setting: str) -> None:
    """The budget reads the files that the trainer runs; page-locked bytes are there where they are asked for."""
    from tests.gpu.trainings import predict

    found = predict(setting, "cuda")
    assert found["card"] > 0
    assert (found["page-locked"] > 0) == setting.endswith("pinned")


def test_a_step_runs_in_a_process_of_its_own() -> None:
    """The worker's one line is its verdict with its figures."""
    done = run_alone("registered-process")
    assert (done.returncode, done.stdout.split()[:2]) == (0, ["holds", "registered-process"]), done.stderr


def run_alone(step: str) -> subprocess.CompletedProcess[str]:
    """A step on the CPU, in a process of its own, whose freed tensors go back to the kernel: none is taken again."""
    command = [sys.executable, "-m", "tests.gpu", "--try", "--only", step]
    env = {**os.environ, "PYTHONPATH": str(ROOT), "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
