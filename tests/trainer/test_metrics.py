"""The JSON Lines of one process: what a line holds, how spans end, and that nothing of it stops the run."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rlhfdoctor import marks

psutil = pytest.importorskip("psutil")

from trainer.metrics import Metrics  # noqa: E402


def lines(folder: Path, name: str = "actor-rank0") -> list[dict[str, object]]:
    """What was written, without the times."""
    read = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key not in ("at", "seconds", "rss_bytes")} for line in read]


BASE = {"role": "actor", "rank": 0, "step": 0}


def test_write(tmp_path: Path) -> None:
    """A line has its role, rank and step, and what was given."""
    metrics = Metrics(tmp_path, "actor")
    metrics.write(policy_loss=-0.5, example="aä\n")
    assert lines(tmp_path) == [{**BASE, "policy_loss": -0.5, "example": "aä\n"}]


def test_rss_and_time(tmp_path: Path) -> None:
    """A line says when it was written, and how much memory the process had."""
    Metrics(tmp_path, "actor").write()
    line = json.loads((tmp_path / "actor-rank0.jsonl").read_text())
    assert pytest.approx(psutil.Process().memory_info().rss, rel=0.2) == line["rss_bytes"]
    assert line["at"] > psutil.Process().create_time()


def test_step(tmp_path: Path) -> None:
    """Lines belong to the step that was set last."""
    metrics = Metrics(tmp_path, "actor")
    metrics.write()
    metrics.step = 3
    metrics.write()
    assert [line["step"] for line in lines(tmp_path)] == [0, 3]


def test_file_by_role_and_rank(tmp_path: Path) -> None:
    """Each role and rank has its own file, in a folder that is made for it."""
    Metrics(tmp_path / "new" / "folder", "reward", 3).write()
    assert lines(tmp_path / "new" / "folder", "reward-rank3") == [{"role": "reward", "rank": 3, "step": 0}]


def test_file_is_continued(tmp_path: Path) -> None:
    """A run that is resumed appends to what it wrote before."""
    Metrics(tmp_path, "actor").write(first=1)
    Metrics(tmp_path, "actor").write(second=2)
    assert lines(tmp_path) == [{**BASE, "first": 1}, {**BASE, "second": 2}]


def test_lines_are_there_at_once(tmp_path: Path) -> None:
    """A process that is killed has left every line: nothing waits in a buffer."""
    metrics = Metrics(tmp_path, "actor")
    metrics.write(first=1)
    assert len(lines(tmp_path)) == 1
    metrics.write(second=2)
    assert len(lines(tmp_path)) == 2


def test_span(tmp_path: Path) -> None:
    """A span is a line at its start and one at its end, with the seconds between."""
    with Metrics(tmp_path, "actor").span("update"):
        assert lines(tmp_path) == [{**BASE, "span": "update", "edge": "start"}]
    assert lines(tmp_path)[1] == {**BASE, "span": "update", "edge": "end"}
    assert 0 <= json.loads((tmp_path / "actor-rank0.jsonl").read_text().splitlines()[1])["seconds"] < 10


def test_span_that_dies(tmp_path: Path) -> None:
    """A span that an error ends says so, and the error goes on."""
    metrics = Metrics(tmp_path, "actor")
    with pytest.raises(MemoryError, match="full"), metrics.span("update"):
        raise MemoryError("full")
    assert [line["edge"] for line in lines(tmp_path)] == ["start", "error"]


def test_span_that_is_interrupted(tmp_path: Path) -> None:
    """Ctrl-C within a span ends it with an error too."""
    metrics = Metrics(tmp_path, "actor")
    with pytest.raises(KeyboardInterrupt), metrics.span("update"):
        raise KeyboardInterrupt
    assert [line["edge"] for line in lines(tmp_path)] == ["start", "error"]


def test_spans_within_spans(tmp_path: Path) -> None:
    """The inner span ends before the outer one."""
    metrics = Metrics(tmp_path, "actor")
    with metrics.span("update"), metrics.span("checkpoint"):
        pass
    found = [(line["span"], line["edge"]) for line in lines(tmp_path)]
    assert found == [("update", "start"), ("checkpoint", "start"), ("checkpoint", "end"), ("update", "end")]


def test_marks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A span is also a phase of the present step for `doctor watch`."""
    monkeypatch.setenv("RLHFDOCTOR_MARKS", str(tmp_path / "marks"))
    monkeypatch.setattr(marks, "_handle", None)
    metrics = Metrics(tmp_path, "actor")
    metrics.step = 7
    with metrics.span("rollout"):
        pass
    (file,) = (tmp_path / "marks").iterdir()
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(m["phase"], m["step"], m["edge"]) for m in found] == [("rollout", 7, "start"), ("rollout", 7, "end")]


def test_folder_that_cannot_be_made(tmp_path: Path) -> None:
    """Where a file stands in the way of the folder, lines are lost, and the run goes on."""
    (tmp_path / "file").write_text("")
    metrics = Metrics(tmp_path / "file" / "metrics", "actor")
    with metrics.span("update"):
        metrics.write(policy_loss=0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is Linux's")
def test_full_disk(tmp_path: Path) -> None:
    """A full disk costs lines, not the run."""
    (tmp_path / "actor-rank0.jsonl").symlink_to("/dev/full")
    metrics = Metrics(tmp_path, "actor")
    with metrics.span("update"):
        metrics.write(policy_loss=0.0)
    assert Path("/dev/full") == (tmp_path / "actor-rank0.jsonl").resolve()


def refuse(constant: str) -> None:
    """What a strict JSON parser says to NaN."""
    raise ValueError(f"{constant} is not JSON")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_loss_that_is_no_number(tmp_path: Path, value: float) -> None:
    """A loss that went to NaN leaves a line that any JSON parser reads."""
    Metrics(tmp_path, "actor").write(policy_loss=value)
    assert json.loads((tmp_path / "actor-rank0.jsonl").read_text(), parse_constant=refuse)["role"] == "actor"


def test_value_that_is_no_json(tmp_path: Path) -> None:
    """A figure that cannot be written (a tensor from a reward function) costs its line, not the run."""
    Metrics(tmp_path, "actor").write(score={1, 2})
