"""Traces as frames: columns, types, identities, several nodes, Parquet."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from rlhfdoctor.errors import SourceError, UsageError
from rlhfdoctor.trace.schema import NULL, TABLES
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.trace.tables import Trace, read_trace
from tests.trace.build import SECOND_NS, make_writer, say, segments, wall

START = datetime.fromtimestamp(wall(0) / SECOND_NS, timezone.utc)


def process_rows(uids: list[int], rss_bytes: list[int]) -> tuple[list[int], list[list[int]]]:
    """Rows of the table `process`: anonymous memory, and NULL as the file-backed memory."""
    width = len(TABLES["process"]) - 2
    return uids, [rss_bytes, [NULL] * len(uids), *([0] * len(uids) for _ in range(width))]


def name_process(writer: Writer, uid: int, **fields: Any) -> None:
    """The event that names a process."""
    say(writer, 0, **{"kind": "process.seen", "uid": uid, "pid": 100 + uid, **fields})


def write_node(folder: Path, role: str | None = "actor", first: int = 0) -> None:
    """A trace of two samples with processes, a cgroup, a limit and a GPU."""
    writer = make_writer(folder)
    name_process(writer, 1, name="python", role=None)
    name_process(writer, 2, name="raylet", role=role)
    say(writer, 0, kind="cgroup.seen", uid=1, path="/sys/fs/cgroup/job")
    say(writer, 0, kind="limit.seen", uid=5, name="cgroup", level="/sys/fs/cgroup/job")
    for index in (first, first + 2):
        writer.sample(
            wall(index),
            index * SECOND_NS,
            {
                "process": process_rows([1, 2], [10 * index, 2**40]),
                "mapping": ([2], [[column] for column in range(6)]),
                "cgroup": ([1], [[column] for column in range(14)]),
                "limit": ([5], [[1], [2], *[[NULL]] * (len(TABLES["limit"]) - 2)]),
                "gpu": ([0], [[80 << 30], [1 << 30], [250_000]]),
            },
        )
    say(writer, 1, kind="process.named", uid=1, pid=101, name="ray::Actor", role=role)
    writer.close()


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    """A trace of one node."""
    write_node(tmp_path / "run")
    return read_trace(tmp_path / "run")


@pytest.fixture
def two(tmp_path: Path) -> Trace:
    """A run of two nodes whose samples take turns."""
    write_node(tmp_path / "run" / "nodes" / "a")
    write_node(tmp_path / "run" / "nodes" / "b", first=1)
    (tmp_path / "run" / "nodes" / "a" / "run.json").write_text('{"schema": "rlhfdoctor.run/1", "node": "n-a"}')
    (tmp_path / "run" / "nodes" / "b" / "run.json").write_text('{"schema": "rlhfdoctor.run/1", "node": "n-b"}')
    return read_trace(tmp_path / "run")


def test_names(trace: Trace) -> None:
    """The tables are listed by name; one that is not there is an error that lists them."""
    assert (trace.names, list(trace.to_polars())) == (["cgroup", "gpu", "limit", "mapping", "process"],) * 2
    with pytest.raises(KeyError, match="host: this trace has cgroup, gpu, limit, mapping, process"):
        trace["host"]


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        ("process", ["pid", "name", "role"]),
        ("mapping", ["pid", "name", "role"]),
        ("cgroup", ["path"]),
        ("limit", ["name", "level"]),
        ("gpu", []),
    ],
)
def test_columns(trace: Trace, name: str, identity: list[str]) -> None:
    """Time, node and key come first, then what the row is, then the columns of the schema."""
    assert trace[name].columns == ["time", "node", "mono_s", "uid", *identity, *TABLES[name]]


def test_types(trace: Trace) -> None:
    """Times bear their zone, keys and bytes are whole numbers, ratios and seconds are floats."""
    frame = trace["gpu"]
    assert dict(frame.schema) == {
        "time": pl.Datetime("ns", "UTC"),
        "node": pl.String,
        "mono_s": pl.Float64,
        "uid": pl.Int64,
        "total_bytes": pl.Int64,
        "used_bytes": pl.Int64,
        "busy_ratio": pl.Float64,
    }


def test_times(trace: Trace) -> None:
    """Both clocks of every row, to the second."""
    frame = trace["gpu"]
    assert [stamp.timestamp() for stamp in frame["time"]] == [START.timestamp(), START.timestamp() + 2]
    assert frame["mono_s"].to_list() == [0.0, 2.0]


def test_null(trace: Trace) -> None:
    """What the recorder could not read is null, not a number."""
    frame = trace["process"]
    assert (frame["rss_file_bytes"].null_count(), frame["rss_anon_bytes"].to_list()) == (4, [0, 2**40, 20, 2**40])


def test_ratio(trace: Trace) -> None:
    """Ratios are between 0 and 1."""
    assert trace["gpu"]["busy_ratio"].to_list() == [0.25, 0.25]


def test_null_ratio(tmp_path: Path) -> None:
    """A ratio that could not be read is null."""
    writer = make_writer(tmp_path)
    writer.sample(wall(0), 0, {"gpu": ([0, 1], [[1, 1], [1, 1], [NULL, 1_000_000]])})
    writer.close()
    assert read_trace(tmp_path)["gpu"]["busy_ratio"].to_list() == [None, 1.0]


@pytest.mark.parametrize("name", ["process", "mapping"])
def test_roles(trace: Trace, name: str) -> None:
    """Rows of processes bear pid, name and role, as they were known last, also from before they were known."""
    rows = trace[name].select("uid", "pid", "name", "role").unique().sort("uid").rows()
    known = {1: (1, 101, "ray::Actor", "actor"), 2: (2, 102, "raylet", "actor")}
    assert rows == [known[uid] for uid in sorted(set(trace[name]["uid"]))]


def test_paths_and_limits(trace: Trace) -> None:
    """Rows of cgroups bear their path, rows of limits their name and level."""
    job = "/sys/fs/cgroup/job"
    assert (set(trace["cgroup"]["path"]), set(trace["limit"].select("name", "level").rows())) == (
        {job},
        {("cgroup", job)},
    )


def test_row_without_a_name(tmp_path: Path) -> None:
    """A process whose event is lost is a row without a name."""
    writer = make_writer(tmp_path)
    writer.sample(wall(0), 0, {"process": process_rows([9], [1])})
    writer.close()
    assert read_trace(tmp_path)["process"].select("uid", "pid", "name", "role").rows() == [(9, None, None, None)]


def test_node_that_is_named_in_the_header(trace: Trace) -> None:
    """Without run.json the node's name comes from the header."""
    assert (set(trace["gpu"]["node"]), dict(trace.run)) == ({"here"}, {})


def test_two_nodes(two: Trace) -> None:
    """The rows of several nodes stand in one table, in order of time, each with its node."""
    frame = two["gpu"]
    assert frame["node"].to_list() == ["n-a", "n-b", "n-a", "n-b"]
    assert [stamp.timestamp() - START.timestamp() for stamp in frame["time"]] == [0.0, 1.0, 2.0, 3.0]


def test_events_of_two_nodes(two: Trace) -> None:
    """Events of all nodes are in one list, in order of time, each with its node."""
    stamps = [event["wall_ns"] for event in two.events]
    assert (stamps, {event["node"] for event in two.events}, len(stamps)) == (sorted(stamps), {"n-a", "n-b"}, 10)


def test_processes_of_two_nodes_are_told_apart(tmp_path: Path) -> None:
    """The same number on two nodes is two processes."""
    write_node(tmp_path / "nodes" / "a", role="actor")
    write_node(tmp_path / "nodes" / "b", role="critic")
    assert set(read_trace(tmp_path)["process"]["role"]) == {"actor", "critic"}


@pytest.mark.parametrize(
    "roles",
    [
        pytest.param((None, "actor"), id="first"),
        pytest.param(("actor", None), id="second"),
    ],
)
def test_node_without_roles(tmp_path: Path, roles: tuple[str | None, str | None]) -> None:
    """A node on which no role is known is merged with one on which roles are known, whichever comes first."""
    write_node(tmp_path / "nodes" / "a", role=roles[0])
    write_node(tmp_path / "nodes" / "b", role=roles[1])
    assert sorted(read_trace(tmp_path)["process"]["role"], key=str) == [None] * 4 + ["actor"] * 4


def test_unknown_role_is_text(tmp_path: Path) -> None:
    """The column `role` has the same type whether or not a role is known."""
    write_node(tmp_path, role=None)
    assert read_trace(tmp_path)["process"].schema["role"] == pl.String


def test_table_that_one_node_has(tmp_path: Path) -> None:
    """A table that only one node has (a node without GPUs) has the rows of that node."""
    write_node(tmp_path / "nodes" / "a")
    writer = make_writer(tmp_path / "nodes" / "b")
    writer.sample(wall(0), 0, {"recorder": ([0], [[0]] * len(TABLES["recorder"]))})
    writer.close()
    trace = read_trace(tmp_path)
    assert (len(trace["gpu"]), len(trace["recorder"])) == (2, 1)


def test_clock_offset(tmp_path: Path) -> None:
    """A node whose clock is ahead is set back by what `clock_offset_s` says."""
    write_node(tmp_path)
    (tmp_path / "run.json").write_text('{"schema": "rlhfdoctor.run/1", "clock_offset_s": 1.5}')
    assert [stamp.timestamp() - START.timestamp() for stamp in read_trace(tmp_path)["gpu"]["time"]] == [-1.5, 0.5]


def test_node_without_a_trace_is_a_gap(tmp_path: Path) -> None:
    """A node's folder in which nothing was written is a gap; the other node is read."""
    write_node(tmp_path / "nodes" / "a")
    (tmp_path / "nodes" / "b").mkdir()
    trace = read_trace(tmp_path)
    assert (len(trace.nodes), [str(gap.what) for gap in trace.gaps]) == (1, [str(tmp_path / "nodes" / "b")])


def test_damage_is_a_gap(tmp_path: Path) -> None:
    """What could not be read of any node is listed."""
    write_node(tmp_path)
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes() + b"torn")
    assert [str(gap.what) for gap in read_trace(tmp_path).gaps] == [str(path)]


@pytest.mark.parametrize("make", ["", "empty", "nodes/a"], ids=["no folder", "empty", "an empty node"])
def test_no_trace(tmp_path: Path, make: str) -> None:
    """Where there is no trace the error says what writes one, or how one looks."""
    (tmp_path / "run" / make).mkdir(parents=True)
    with pytest.raises(SourceError, match=r"no trace in it.*(doctor watch|000001\.trace)"):
        read_trace(tmp_path / "run")


def test_tables_without_polars_are_a_message(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Events and what the run was are there without it; tables say what to install."""
    monkeypatch.setitem(sys.modules, "polars", None)
    assert (trace.names, len(trace.events)) == (["cgroup", "gpu", "limit", "mapping", "process"], 5)
    for ask in (lambda: trace["process"], trace.to_polars, lambda: trace.write_parquet(tmp_path)):
        with pytest.raises(UsageError, match=r"need polars: pip install 'rlhfdoctor\[report\]'"):
            ask()


def test_to_pandas(trace: Trace) -> None:
    """All tables as pandas frames, with the same rows."""
    pytest.importorskip("pandas", reason="needs pandas (the extra `notebooks`)")
    frames = trace.to_pandas()
    assert {name: frame.shape for name, frame in frames.items()} == {n: f.shape for n, f in trace.to_polars().items()}


def test_parquet(trace: Trace, tmp_path: Path) -> None:
    """Each table is one file with the same rows and types."""
    written = trace.write_parquet(tmp_path / "out" / "deep")
    assert [path.name for path in written] == [f"{name}.parquet" for name in [*trace.names, "events"]]
    read = {name: pl.read_parquet(tmp_path / "out" / "deep" / f"{name}.parquet") for name in trace.names}
    assert [frame.equals(trace[name]) for name, frame in read.items()] == [True] * len(trace.names)
    assert [frame.schema for frame in read.values()] == [trace[name].schema for name in trace.names]


def test_events_in_parquet(trace: Trace, tmp_path: Path) -> None:
    """Events are a table of time, node, kind and all the rest as text."""
    trace.write_parquet(tmp_path)
    frame = pl.read_parquet(tmp_path / "events.parquet")
    kinds = ["process.seen", "process.seen", "cgroup.seen", "limit.seen", "process.named"]
    assert (frame.columns, frame["kind"].to_list()) == (["wall_ns", "node", "kind", "detail"], kinds)
    assert frame["detail"].str.contains("ray::Actor").to_list() == [False] * 4 + [True]


def test_parquet_without_events(tmp_path: Path) -> None:
    """A trace without events has an empty table of them."""
    make_writer(tmp_path / "run").close()
    read_trace(tmp_path / "run").write_parquet(tmp_path / "out")
    assert pl.read_parquet(tmp_path / "out" / "events.parquet").shape == (0, 4)


def test_parquet_into_a_file(trace: Trace, tmp_path: Path) -> None:
    """A folder that cannot be made is an error that names it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(SourceError, match="file: File exists"):
        trace.write_parquet(tmp_path / "file")
