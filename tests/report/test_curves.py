"""Curves for other programs, read back: OpenMetrics, TensorBoard, Weights & Biases."""

from __future__ import annotations

import platform
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rlhfdoctor.cli import main
from rlhfdoctor.core import curves as core
from rlhfdoctor.core.curves import read_curves
from rlhfdoctor.curves import Curves
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary.index import RECORDS
from tests.attacks.run import doctor
from tests.record.build import LIMIT_BYTES, START_S, event, step, steps, write_run

ROOT = Path(__file__).resolve().parents[2]


def curves_of(folder: Path) -> Curves:
    (found,) = read_curves([Recorded(read_node(folder))])
    return found


def tags(curves: Curves) -> set[str]:
    return {figure.tag for point in curves.points for figure in point.figures}


def write(folder: Path, seconds: int = 40, **more: Any) -> Path:
    """A run of ten seconds a step, with a limit, whose use rises within each."""
    limit = event("limit.seen", uid=1, name="cgroup", level="/job", limit_bytes=LIMIT_BYTES)
    more = {"events": [limit, *steps(3, 10, first_s=10)], **more}
    return write_run(folder, seconds, use=lambda t: 100.0 + t % 10, anon={"actor": lambda t: 1.0 + t}, **more)


def report(run: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["report", str(run), *words])


def test_every_sample_is_a_point(tmp_path: Path) -> None:
    """At the time of the sample, in the step that was marked before it."""
    found = curves_of(write(tmp_path / "run"))
    assert [point.at_s for point in found.points] == [START_S + t for t in range(40)]
    assert [point.step for point in found.points[::10]] == [None, 1, 2, 3]
    assert (found.node, found.every) == ("n1", 1)
    assert {"role_anon_bytes/actor", "role_processes/actor", "step"} <= tags(found)


def test_the_worst_of_a_step() -> None:
    """What a step needs is its peak; of the time that is left the least counts."""
    found = curves_of(ROOT / "samples/recorded-leak/run")
    by_step = list(found.by_step())
    numbers = [number for number, _, _ in by_step]
    assert numbers == sorted(set(numbers)) and found.has_steps
    last = [point for point in found.points if point.step == numbers[-2]]
    name = next(tag for tag in tags(found) if tag.startswith("limit_left_seconds/cgroup"))
    left = [figure.value for point in last for figure in point.figures if figure.tag == name]
    anon = [figure.value for point in last for figure in point.figures if figure.tag == "role_anon_bytes/actor"]
    assert (by_step[-2][2].get(name), by_step[-2][2]["role_anon_bytes/actor"]) == (min(left, default=None), max(anon))


def test_seconds_where_no_step_is_known(tmp_path: Path) -> None:
    """A value a second, from the first sample on."""
    found = curves_of(write_run(tmp_path / "run", 5, anon={"actor": lambda t: 1.0 + t}))
    assert [(number, values["role_anon_bytes/actor"]) for number, _, values in found.by_step()] == [(t, (1 + t) * MIB) for t in range(5)]


def test_a_rank_that_lags_is_no_step_back(tmp_path: Path) -> None:
    """The mark of another rank, which is one step behind."""
    marks = [step(1, 5), step(2, 6), step(3, 5), step(4, 7)]
    found = curves_of(write_run(tmp_path / "run", 6, anon={"actor": lambda t: 1.0}, events=marks))
    assert [point.step for point in found.points] == [None, 5, 6, 6, 7, 7]


def test_a_clock_that_was_set_back(tmp_path: Path) -> None:
    """Times of a series only rise: what was before is left out until the clock is past it again."""
    found = curves_of(write_run(tmp_path / "run", 20, anon={"actor": lambda t: 1.0}, clock=lambda t: t if t < 10 else t - 5))
    times = [point.at_s for point in found.points]
    assert times == sorted(set(times)) and len(times) == 15


@pytest.mark.parametrize("kind", sorted(RECORDS))
def test_an_event_that_says_nothing(kind: str, tmp_path: Path) -> None:
    """Of a trace that somebody made: it is taken for what it says, and the samples are there."""
    found = curves_of(write_run(tmp_path / "run", 2, anon={"actor": lambda t: 1.0}, events=[event(kind), event(kind, uid=7), event(kind, uid=1)]))
    assert len(found.points) == 2


def test_a_trace_of_an_older_recorder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that it did not have are unknown."""
    with monkeypatch.context() as older:
        for table in ("process", "limit", "host", "recorder"):
            older.setitem(TABLES, table, TABLES[table][:2])
        run = write(tmp_path / "run")
    assert (len(curves_of(run).points), "role_anon_bytes/actor" in tags(curves_of(run))) == (40, True)


def test_a_long_recording_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To one of so many samples, the last one among them, and it is said."""
    monkeypatch.setattr(core, "_MOST_POINTS", 10)
    run = write(tmp_path / "run")
    found = curves_of(run)
    assert (len(found.points), found.every, found.points[-1].at_s) == (11, 4, START_S + 39)
    pytest.importorskip("prometheus_client")
    done = report(run, "--out", str(tmp_path / "x.prom"))
    assert "one of 4 samples was written" in done.stderr


def test_openmetrics(tmp_path: Path) -> None:
    """The text is what OpenMetrics' own parser takes, with each sample at its time."""
    parser = pytest.importorskip("prometheus_client.openmetrics.parser")
    run = write(tmp_path / "run", run={"node": "n 7"})
    done = report(run, "--out", str(tmp_path / "x.prom"))
    assert (done.exit_code, "wrote" in done.stderr) == (3, True)
    families = {family.name: family for family in parser.text_string_to_metric_families((tmp_path / "x.prom").read_text())}
    anon = [(float(sample.timestamp), sample.value) for sample in families["rlhfdoctor_role_anon_bytes"].samples]
    assert anon == [(START_S + t, (1 + t) * MIB) for t in range(40)]
    assert families["rlhfdoctor_role_anon_bytes"].unit == "bytes"
    assert {sample.labels["node"] for family in families.values() for sample in family.samples} == {"n 7"}
    assert families["rlhfdoctor_oom_kills"].type == "counter"


def scalars(path: Path, tag: str) -> list[tuple[int, float, float]]:
    """(step, value, wall time) from an event file: TFRecords of 8 bytes of length, 4 of CRC, the event, 4 of CRC."""
    from tensorboardX.proto.event_pb2 import Event

    data, found = path.read_bytes(), []
    while data:
        size = int.from_bytes(data[:8], "little")
        one = Event.FromString(data[12 : 12 + size])
        found += [(one.step, each.simple_value, one.wall_time) for each in one.summary.value if each.tag == tag]
        data = data[16 + size :]
    return found


def test_tensorboard(tmp_path: Path) -> None:
    """The event file has the peak of each step, at its wall clock; TensorBoard's own reader, where it is, says so."""
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    done = report(write(tmp_path / "run"), "--format", "tensorboard", "--out", str(tmp_path / "curves"))
    assert done.exit_code == 3, done.output
    (name,) = (tmp_path / "curves").glob("run-n1/events.out.tfevents.*")
    expected = [(n, (10 * n + 10) * MIB, START_S + 10 * n + 9) for n in (1, 2, 3)]
    assert scalars(name, "role_anon_bytes/actor") == expected
    try:
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    except ImportError:
        return
    read = EventAccumulator(str(name.parent)).Reload()
    assert [(each.step, each.value, each.wall_time) for each in read.Scalars("role_anon_bytes/actor")] == expected


def records(path: Path) -> Iterator[bytes]:
    """Of an offline run: a LevelDB log (7 bytes of head; blocks of 32 KiB; CRC, length and part of each piece)."""
    data, at, whole = path.read_bytes(), 7, b""
    while at < len(data):
        if at % 32768 > 32768 - 7:
            at += 32768 - at % 32768
        _, size, part = struct.unpack_from("<IHB", data, at)
        whole = data[at + 7 : at + 7 + size] if part in (1, 2) else whole + data[at + 7 : at + 7 + size]
        at += 7 + size
        if part in (1, 4):
            yield whole


def test_wandb(tmp_path: Path) -> None:
    """The offline run has the same, and nothing of this machine: no paths, no packages, no user."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    done = report(write(tmp_path / "run"), "--format", "wandb", "--out", str(tmp_path / "curves"))
    assert done.exit_code == 3, done.output
    (name,) = (tmp_path / "curves").rglob("*.wandb")
    found = [Record.FromString(one) for one in records(name)]
    rows = [
        {item.key or "/".join(item.nested_key): float(item.value_json) for item in one.history.item}
        for one in found
        if one.WhichOneof("record_type") == "history"
    ]
    assert [(row["step"], row["role_anon_bytes/actor"]) for row in rows] == [(n, (10 * n + 10) * MIB) for n in (1, 2, 3)]
    written = str(found)
    assert [word for word in (str(ROOT), sys.executable, platform.node(), "pytest") if word in written] == []


@pytest.mark.parametrize(("form", "module", "extra"), [("openmetrics", "prometheus_client", "metrics"), ("tensorboard", "tensorboardX", "tensorboard"), ("wandb", "wandb", "wandb")])
def test_missing_package(form: str, module: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said, and nothing is written."""
    for name in [name for name in sys.modules if name.partition(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    done = report(write(tmp_path / "run", 3), "--format", form, "--out", str(tmp_path / "out"))
    assert (done.exit_code, f"pip install 'rlhfdoctor[{extra}]'" in done.stderr) == (2, True), done.output
    assert not (tmp_path / "out").exists()


def test_what_is_no_trace(tmp_path: Path) -> None:
    """Has no curves."""
    (tmp_path / "log.txt").write_text("step 1\n")
    done = report(tmp_path / "log.txt", "--out", str(tmp_path / "x.prom"))
    assert (done.exit_code, "curves need a trace" in done.stderr) == (2, True)


def test_tensorboard_on_a_full_disk(tmp_path: Path) -> None:
    """An error that says so, and an end: tensorboardX's usual writer dies in a thread, and is waited for."""
    pytest.importorskip("tensorboardX", reason="tensorboardX is not installed")
    run = write(tmp_path / "run")
    words = ("report", run, "--format", "tensorboard", "--out", tmp_path / "curves")
    done = doctor(*words, home=tmp_path, file_bytes=200).check((2,))
    assert "File too large" in done.stderr


def test_file_or_folder(tmp_path: Path) -> None:
    """A folder is no file, and the other way round; nothing is read before that is clear."""
    (tmp_path / "file").touch()
    done = report(tmp_path, "--format", "tensorboard", "--out", str(tmp_path / "file"))
    assert (done.exit_code, "is a file" in done.stderr) == (2, True)
    done = report(tmp_path, "--format", "html", "--out", str(tmp_path))
    assert (done.exit_code, "is a folder" in done.stderr) == (2, True)


@pytest.mark.parametrize("bytes_", [200, 1024])
def test_wandb_on_a_full_disk(bytes_: int, tmp_path: Path) -> None:
    """An error that says so: no traceback of the package's own log, and no "wrote"."""
    pytest.importorskip("wandb", reason="wandb is not installed")
    run = write(tmp_path / "run")
    words = ("report", run, "--format", "wandb", "--out", tmp_path / "curves")
    done = doctor(*words, home=tmp_path, file_bytes=bytes_).check((2,))
    assert "File too large" in done.stderr
    assert "wrote" not in done.stderr + done.stdout
