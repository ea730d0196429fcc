"""Recorded runs whose fields hold values of the wrong type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.attacks import build
from tests.attacks.conftest import Doctor

WRONG: tuple[Any, ...] = ("x", "", [], [1], {}, {"a": 1}, None, True, 1.5, -1, 2**70, "9" * 5000, "²")
"""For a field of any type: most of it is wrong, and all of it is JSON. Not NaN, which is none."""
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("process.seen", {"uid": 1, "pid": 1001, "name": "actor", "role": "actor", "command": "actor"}),
    ("cgroup.seen", {"uid": 1, "path": "/job", "version": 1, "own": True}),
    ("limit.seen", {"uid": 1, "name": "cgroup", "level": "/job"}),
    (
        "process.gone",
        {"uid": 1, "pid": 1001, "name": "actor", "role": "actor", "rss_anon_bytes": 1 << 34, "rss_shmem_bytes": 0},
    ),
    ("job.exited", {"pid": 1001, "code": -9}),
    ("oom_kill", {"level": "/job", "count": 1}),
    ("mark", {"phase": "generate", "step": 3, "edge": "begin", "pid": 1001, "role": "actor", "basis": "log line"}),
    ("alarm", {"left_s": 3.0, "text": "soon", "limit": "cgroup"}),
    ("node.lost", {"node": "n2", "why": "gone"}),
    ("gap", {"what": "kernel log", "why": "closed"}),
    ("recorder.end", {"why": "the command ended"}),
)
RUN_FIELDS = ("node", "host", "clock_offset_s", "utc_offset_s", "configs", "argv", "versions", "limits", "started")
CONFIG_FIELDS = ("path", "sha256", "copy")
HEADER_FIELDS = ("format", "node", "host", "tables", "host_pids", "ticks_per_s")


def analyzed(tmp_path: Path, analyze: Doctor, runs: list[Path]) -> None:
    """The runs, and a log beside them that keeps its verdict."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "job.log").write_bytes(build.OOM)
    done = analyze(*runs, tmp_path / "job").check((0, 1, 3))
    assert any(done.gap(run) for run in runs), "what was not understood is a gap"
    assert "job.log" in str(done.report["sources"])


def run_with(folder: Path, **run: Any) -> Path:
    """A recorded run with more of run.json."""
    return build.good_run(folder, **run)


@pytest.mark.parametrize("kind", [kind for kind, _ in EVENTS])
def test_event(tmp_path: Path, analyze: Doctor, kind: str) -> None:
    """Row 20: every field of every event, as a value of any other type, costs at most that event, and is a gap."""
    fields = dict(EVENTS)[kind]
    runs = []
    for number, value in enumerate(WRONG):
        run = build.good_run(tmp_path / f"run-{number}")
        wrong = (build.record(**({"kind": kind} | fields | {name: value})) for name in (*fields, "wall_ns", "mono_ns"))
        (run / "000002.trace").write_bytes(build.header() + b"".join(wrong))
        runs.append(run)
    analyzed(tmp_path, analyze, runs)


@pytest.mark.parametrize("field", RUN_FIELDS)
def test_run_file(tmp_path: Path, analyze: Doctor, field: str) -> None:
    """Row 20: every field of run.json, as a value of any other type, is a gap."""
    runs = [run_with(tmp_path / f"run-{number}", **{field: value}) for number, value in enumerate(WRONG)]
    analyzed(tmp_path, analyze, runs)


@pytest.mark.parametrize("field", CONFIG_FIELDS)
def test_configuration_of_a_run(tmp_path: Path, analyze: Doctor, field: str) -> None:
    """Row 20: every field of a configuration in run.json, as a value of any other type, is a gap."""
    good = {"path": "/nowhere/a.yaml", "sha256": "0", "copy": "config/1-a.yaml"}
    runs = [
        run_with(tmp_path / f"run-{number}", configs=[good | {field: value}]) for number, value in enumerate(WRONG)
    ]
    analyzed(tmp_path, analyze, [*runs, run_with(tmp_path / "no-objects", configs=["a", 1, None, []])])


@pytest.mark.parametrize("field", HEADER_FIELDS)
def test_header(tmp_path: Path, analyze: Doctor, field: str) -> None:
    """Row 20: every field of a segment's header, as a value of any other type, is a gap."""
    runs = []
    for number, value in enumerate(WRONG):
        run = build.good_run(tmp_path / f"run-{number}")
        (run / "000002.trace").write_bytes(build.header(**{field: value}) + build.record("recorder.start"))
        runs.append(run)
    analyzed(tmp_path, analyze, runs)
