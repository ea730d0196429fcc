"""Recorded runs whose fields hold values of the wrong type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks import build
from tests.attacks.conftest import Doctor

WRONG: tuple[Any, ...] = (
    "x",
    "",
    [],
    [1],
    {},
    {"a": 1},
    None,
    True,
    1.5,
    -1,
    2**70,
    "9" * 5000,
    "²",
    float("inf"),
    float("nan"),
)
"""For a field of any type: most of it is wrong. Python reads and writes the last two, which are no JSON."""
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("process.seen", {"uid": 1, "pid": 1001, "name": "actor", "role": "actor", "command": "actor"}),
    ("cgroup.seen", {"uid": 1, "path": "/job", "version": 1, "own": True}),
    ("limit.seen", {"uid": 1, "name": "cgroup", "level": "/job"}),
    (
        "process.gone",
        {"uid": 1, "pid": 1001, "name": "actor", "role": "actor", "rss_anon_bytes": 1 << 34, "rss_shmem_bytes": 0},
    ),
    ("job.exited", {"pid": 1001, "code": -9}),
    ("mark", {"phase": "generate", "step": 3, "edge": "begin", "pid": 1001, "role": "actor", "basis": "log line"}),
    ("node.lost", {"node": "n2", "why": "gone"}),
)
RUN_FIELDS = ("clock_offset_s", "utc_offset_s", "configs")
CONFIG_FIELDS = ("path", "sha256", "copy")


def analyzed(tmp_path: Path, analyze: Doctor, runs: list[Path]) -> None:
    """The runs, and a log beside them that keeps its verdict."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.log").write_bytes(build.OOM)
    assert analyze(*runs, tmp_path / "job").check((1,)).killer is not None


def run_with(folder: Path, **run: Any) -> Path:
    """A recorded run with more of run.json."""
    return build.good_run(folder, **run)


def wrong_events(kind: str, value: Any) -> bytes:
    """An event of this kind for each of its fields, with that value in it."""
    fields = {"kind": kind} | dict(EVENTS)[kind]
    return b"".join(build.record(**(fields | {name: value})) for name in (*fields, "wall_ns", "mono_ns"))


@pytest.mark.parametrize("kind", [kind for kind, _ in EVENTS])
def test_event(tmp_path: Path, analyze: Doctor, kind: str) -> None:
    """Row 20: every field of every event, as a value of any other type, costs at most that event."""
    runs = []
    for number, value in enumerate(WRONG):
        run = build.good_run(tmp_path / f"run-{number}")
        (run / "000002.trace").write_bytes(build.header() + wrong_events(kind, value))
        runs.append(run)
    analyzed(tmp_path, analyze, runs)


@pytest.mark.parametrize("kind", [kind for kind, _ in EVENTS])
def test_events_of_one_run(tmp_path: Path, analyze: Doctor, kind: str) -> None:
    """Row 20: the same in one run, whose story is then made of them."""
    run = build.good_run(tmp_path / "run")
    events = b"".join(wrong_events(kind, value) for value in WRONG)
    (run / "000002.trace").write_bytes(build.header() + events)
    analyzed(tmp_path, analyze, [run])


@pytest.mark.parametrize("field", RUN_FIELDS)
def test_run_file(tmp_path: Path, analyze: Doctor, field: str) -> None:
    """Row 20: every number and list of run.json, as a value of any other type, costs at most that field."""
    runs = [run_with(tmp_path / f"run-{number}", **{field: value}) for number, value in enumerate(WRONG)]
    analyzed(tmp_path, analyze, runs)


@pytest.mark.parametrize("field", CONFIG_FIELDS)
def test_configuration_of_a_run(tmp_path: Path, analyze: Doctor, field: str) -> None:
    """Row 20: every field of a configuration in run.json, as a value of any other type, costs at most that field."""
    good = {"path": "/nowhere/a.yaml", "sha256": "0", "copy": "config/1-a.yaml"}
    runs = [run_with(tmp_path / f"run-{number}", configs=[good | {field: value}]) for number, value in enumerate(WRONG)]
    analyzed(tmp_path, analyze, [*runs, run_with(tmp_path / "no-objects", configs=["a", 1, None, []])])


@pytest.mark.parametrize(
    "where", ["uid", "code", "wall_ns", "clock_offset_s", "utc_offset_s", "configs", "uid of a limit"]
)
def test_gap(tmp_path: Path, analyze: Doctor, where: str) -> None:
    """Row 20: a value of the wrong type is said to be one: a gap names the run's folder or its file."""
    events = {
        "uid": build.record("process.seen", uid="x", pid=7, name="actor"),
        "uid of a limit": build.record("limit.seen", uid=[], name="cgroup"),
        "code": build.record("job.exited", pid=1001, code="x"),
        "wall_ns": build.record("process.gone", uid=1, pid=1001, wall_ns="x"),
    }
    if where in events:
        run = build.good_run(tmp_path / "run")
        (run / "000002.trace").write_bytes(build.header() + events[where])
    else:
        run = run_with(tmp_path / "run", **{where: "x"})
    done = analyze(run).check()
    assert (done.killer, done.gap(run)) == (build.RUN_KILLER, True)
