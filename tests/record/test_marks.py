"""Marks that trainers write, in real processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def train(script: str, folder: Path | str | None) -> subprocess.CompletedProcess[str]:
    """Runs a trainer; its marks go to the folder."""
    given = {} if folder is None else {"RLHFDOCTOR_MARKS": str(folder)}
    known = {key: value for key, value in os.environ.items() if not key.startswith("RLHFDOCTOR_")}
    return subprocess.run(
        [sys.executable, "-c", f"from rlhfdoctor import marks\n{script}"],
        env={**known, "PYTHONPATH": str(ROOT), **given},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def lines(path: Path) -> list[dict[str, Any]]:
    """The marks of a file without their times."""
    return [{k: v for k, v in json.loads(line).items() if k != "at_ns"} for line in path.read_text().splitlines()]


def only(folder: Path) -> list[dict[str, Any]]:
    """The marks of the only process."""
    (path,) = folder.iterdir()
    return lines(path)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("marks.step(3)", [{"step": 3}]),
        ("marks.step(3, epoch=1)", [{"step": 3, "epoch": 1}]),
        ("marks.mark('rollout')", [{"phase": "rollout"}]),
        (
            "marks.mark('rollout', 3, 'end', prompts=64)",
            [{"phase": "rollout", "step": 3, "edge": "end", "prompts": 64}],
        ),
        ("marks.role('actor', rank=3)", [{"kind": "role", "role": "actor", "rank": 3, "step": -1}]),
        ("marks.role('driver')", [{"kind": "role", "role": "driver", "step": -1}]),
        (
            "with marks.phase('update', step=7):\n    marks.mark('weight_sync')",
            [
                {"phase": "update", "step": 7, "edge": "start"},
                {"phase": "weight_sync"},
                {"phase": "update", "step": 7, "edge": "end"},
            ],
        ),
    ],
)
def test_call(tmp_path: Path, call: str, expected: list[dict[str, Any]]) -> None:
    """Each call writes its line with what it was given."""
    done = train(call, tmp_path / "marks")
    assert (done.returncode, only(tmp_path / "marks")) == (0, expected)


def test_time(tmp_path: Path) -> None:
    """A mark bears the wall clock in nanoseconds."""
    before = time.time_ns()
    train("marks.step(1)", tmp_path)
    (path,) = tmp_path.iterdir()
    assert before < json.loads(path.read_text())["at_ns"] < time.time_ns()


def test_file_is_named_by_the_pid(tmp_path: Path) -> None:
    """The file bears the pid of the process that wrote it."""
    done = train("import os; marks.step(1); print(os.getpid())", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [f"{done.stdout.strip()}.jsonl"]


def test_phase_that_fails(tmp_path: Path) -> None:
    """An error inside a phase passes through, and the end of the phase is marked."""
    done = train("with marks.phase('update'):\n    raise ValueError('loss is nan')", tmp_path)
    assert (done.returncode, "ValueError: loss is nan" in done.stderr) == (1, True)
    assert [mark["edge"] for mark in only(tmp_path)] == ["start", "end"]


def test_forked_child(tmp_path: Path) -> None:
    """A forked child writes a file of its own, and its parent's marks stay apart."""
    script = """
import os
marks.step(1)
child = os.fork()
if child == 0:
    marks.step(2)
    os._exit(0)
os.waitpid(child, 0)
marks.step(3)
print(os.getpid(), child)
"""
    parent, child = train(script, tmp_path).stdout.split()
    assert [lines(tmp_path / f"{pid}.jsonl") for pid in (parent, child)] == [[{"step": 1}, {"step": 3}], [{"step": 2}]]


def test_without_a_folder(tmp_path: Path) -> None:
    """Without RLHFDOCTOR_MARKS every call does nothing."""
    done = train(f"import os; os.chdir({str(tmp_path)!r})\nwith marks.phase('update'):\n    marks.step(1)", None)
    assert (done.returncode, done.stderr, list(tmp_path.iterdir())) == (0, "", [])


@pytest.mark.parametrize("folder", ["/proc/nowhere/marks", "/dev/null/marks", "/dev/null"])
def test_folder_that_cannot_be_written(folder: str) -> None:
    """A folder that cannot be written never disturbs the trainer."""
    done = train("marks.step(1)\nwith marks.phase('update'):\n    print('trained')", folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "trained\n", "")


def test_fields_that_are_no_json(tmp_path: Path) -> None:
    """What cannot be written as JSON is left out with its mark, and later ones are written."""
    done = train("marks.step(1, loss=object())\nmarks.step(2)", tmp_path)
    assert (done.returncode, only(tmp_path)) == (0, [{"step": 2}])


def test_size_is_bounded(tmp_path: Path) -> None:
    """A process that marks without end stops at a bound."""
    train("marks._MOST_BYTES = 2000\nfor number in range(1000):\n    marks.step(number)", tmp_path)
    (path,) = tmp_path.iterdir()
    assert 2000 < path.stat().st_size < 2100


def test_bound_is_some_megabytes() -> None:
    """The bound lets a long run mark every phase of every step."""
    assert train("print(marks._MOST_BYTES >> 20)", None).stdout == "8\n"
