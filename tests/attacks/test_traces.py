"""Recorded runs from elsewhere: run.json and traces that are well formed and hostile."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhfdoctor.trace.frames import EVENT
from tests.attacks import build
from tests.attacks.build import MIB, RUN_KILLER
from tests.attacks.conftest import Doctor

GIB = 1 << 30


def zero_config(run: Path) -> Path:
    change(run, configs=[{"path": "/dev/zero", "sha256": "0", "copy": "config/none.yaml"}])
    return Path("/dev/zero")


def pipe_config(run: Path) -> Path:
    pipe = run.parent / "pipe.yaml"
    os.mkfifo(pipe)
    change(run, configs=[{"path": str(pipe), "sha256": "0", "copy": "config/none.yaml"}])
    return pipe


def zero_run_file(run: Path) -> Path:
    return linked(run / "run.json", Path("/dev/zero"))


def pipe_run_file(run: Path) -> Path:
    return linked(run / "run.json", piped(run))


def zero_trace(run: Path) -> Path:
    return linked(run / "000002.trace", Path("/dev/zero"))


def pipe_trace(run: Path) -> Path:
    return linked(run / "000002.trace", piped(run))


def zero_journal(run: Path) -> Path:
    return linked(journal(run), Path("/dev/zero"))


def pipe_journal(run: Path) -> Path:
    return linked(journal(run), piped(run))


def change(run: Path, **fields: object) -> None:
    """More of run.json."""
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


def journal(run: Path) -> Path:
    (run / "launch.sh").write_text("python train.py\n")
    (run / ".rlhfdoctor").mkdir()
    return run / ".rlhfdoctor" / "launch.sh.json"


def linked(path: Path, target: Path) -> Path:
    path.unlink(missing_ok=True)
    path.symlink_to(target)
    return path


def piped(run: Path) -> Path:
    pipe = run.parent / "pipe"
    os.mkfifo(pipe)
    return pipe


@pytest.mark.parametrize(
    "plant",
    [zero_config, pipe_config, zero_run_file, pipe_run_file, zero_trace, pipe_trace, zero_journal, pipe_journal],
    ids=lambda plant: plant.__name__,
)
def test_devices_and_pipes(tmp_path: Path, attack: Doctor, plant: Callable[[Path], Path]) -> None:
    """Row 5: what run.json names, run.json itself, segments and journals are read if they are regular files only.

    A missing segment or description of the run is a gap; a journal or a file elsewhere is not needed.
    """
    run = build.good_run(tmp_path / "run")
    named = plant(run)
    done = attack("analyze", run, "--format", "json", wait_s=40.0).check()
    assert done.killer == RUN_KILLER
    assert done.gap(named) or named.parent != run


def test_many_large_frames(tmp_path: Path, analyze: Doctor) -> None:
    """Row 6: 200 frames of 64 MiB, 0.4 MB as stored, are not held together; the run beside them keeps its verdict."""
    run = build.good_run(tmp_path / "run")
    build.many_frames(run / "000002.trace", 200, 64 * MIB)
    assert analyze(run).check().killer == RUN_KILLER


def test_rows_of_empty_columns(tmp_path: Path, analyze: Doctor) -> None:
    """Row 7: a key frame of a million rows of 2,000 columns that hold nothing, 17 KB as stored, is a gap."""
    run = build.good_run(tmp_path / "run")
    build.wide_frame(run / "000002.trace", 1_000_000, 2000)
    done = analyze(run).check()
    assert (done.killer, done.gap("000002.trace")) == (RUN_KILLER, True)


@pytest.mark.parametrize("size", [GIB, 1024 * GIB], ids=["GiB", "TiB"])
def test_sparse_segment(tmp_path: Path, analyze: Doctor, size: int) -> None:
    """Rows 32 to 42: a sparse segment of a GiB is not held in memory; one of a TiB is not read to its end."""
    run = build.good_run(tmp_path / "run")
    with (run / "000002.trace").open("wb") as out:
        out.write(build.header())
        out.truncate(size)
    done = analyze(run).check()
    assert (done.killer, done.gap("000002.trace")) == (RUN_KILLER, True)


def test_false_markers(tmp_path: Path, analyze: Doctor) -> None:
    """Rows 32 to 42: 40,000 false markers of frames are few gaps, not one each."""
    run = build.good_run(tmp_path / "run")
    (run / "000002.trace").write_bytes(build.header() + b"\xd7RD\n" * 40_000)
    done = analyze(run).check()
    assert done.killer == RUN_KILLER
    assert done.gap("000002.trace")
    assert len(done.report["gaps"]) < 100


@pytest.mark.parametrize("form", ["absolute", "upwards"])
def test_copies_outside_of_the_run(tmp_path: Path, analyze: Doctor, form: str) -> None:
    """Rows 32 to 42: the copy of a configuration lies in the run's folder; a path that leads out of it is not read."""
    outside = tmp_path / "outside"
    outside.mkdir()
    target = outside / "launch.sh"
    target.write_text("python -m openrlhf.cli.train_ppo_ray --zero_stage 3 --pretrain Qwen/Qwen2.5-7B\n")
    run = build.good_run(tmp_path / "run")
    copy = {"absolute": str(target), "upwards": "../outside/launch.sh"}[form]
    change(run, configs=[{"path": "/nowhere/launch.sh", "sha256": "0", "copy": copy}])
    done = analyze(run).check()
    assert done.killer == RUN_KILLER
    assert "openrlhf" not in done.stdout


def deep_run_file(run: Path) -> None:
    text = (run / "run.json").read_text().rstrip()
    (run / "run.json").write_text(f'{text[:-1]}, "deep": {build.nested("1", 100_000)}}}')


def deep_event(run: Path) -> None:
    payload = build.nested("1", 100_000).encode()
    (run / "000002.trace").write_bytes(build.header() + build.frame(build.EVENT, payload))


def deep_header(run: Path) -> None:
    (run / "000002.trace").write_bytes(build.frame(build.HEADER, build.nested("1", 100_000).encode()))


def nul_in_a_path(run: Path) -> None:
    change(run, configs=[{"path": "/a\0b.yaml", "sha256": "0", "copy": "config/1-b.yaml"}])


@pytest.mark.parametrize(
    "plant", [deep_run_file, deep_event, deep_header, nul_in_a_path], ids=lambda plant: plant.__name__
)
def test_deep_json_and_nul(tmp_path: Path, analyze: Doctor, plant: Callable[[Path], None]) -> None:
    """Row 21: JSON that is 100,000 objects deep, and NUL in a path, are gaps; the log beside them keeps its verdict."""
    run, good = build.good_run(tmp_path / "run"), tmp_path / "job"
    good.mkdir()
    (good / "job.log").write_bytes(build.OOM)
    plant(run)
    done = analyze(run, good).check((0, 1, 3))
    assert done.killer in (RUN_KILLER, build.OOM_KILLER)
    assert done.gap(run)


def test_long_lists(tmp_path: Path, analyze: Doctor) -> None:
    """Events whose lists have millions of items are a gap, not what fills the memory."""
    run = build.good_run(tmp_path / "run")
    one = build.frame(EVENT, json.dumps(build.stored("job.started", pid=5, argv=[0] * 4_000_000)).encode())
    (run / "000002.trace").write_bytes(build.header() + one * 60)
    done = analyze(run).check()
    assert (done.killer, done.gap("000002.trace")) == (RUN_KILLER, True)


def test_many_events_with_lists(tmp_path: Path, analyze: Doctor) -> None:
    """Events with lists as long as allowed: those in the middle are left out, and it is said."""
    run = build.good_run(tmp_path / "run")
    one = build.frame(EVENT, json.dumps(build.stored("job.started", pid=5, argv=[0] * 15_000)).encode())
    (run / "000002.trace").write_bytes(build.header() + one * 1_500)
    done = analyze(run).check()
    assert (done.killer, done.gap(run)) == (RUN_KILLER, True)


def test_many_nodes(tmp_path: Path, analyze: Doctor) -> None:
    """Nodes whose figures fill the memory together, and none alone: each is thinned."""
    run = build.good_run(tmp_path / "run")
    build.large_nodes(run, nodes=12, samples=40, rows=1 << 17)
    assert analyze(run).check().killer == RUN_KILLER
