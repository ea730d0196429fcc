"""Reading back: following a trace as it grows, thinning, clocks that jump, versions that differ."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import zstandard

from rlhfdoctor.errors import SourceError
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import EVENT, HEADER, KEY, ZSTD, Encoder, Sample, json_payload, pack
from rlhfdoctor.trace.node import NodeTrace
from rlhfdoctor.trace.read import find_nodes, is_run, read_node
from rlhfdoctor.trace.run import find_runs
from rlhfdoctor.trace.schema import NULL, TABLES
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import RING_NAME
from tests.trace.build import (
    SECOND_NS,
    Remote,
    follow,
    kinds,
    make_writer,
    numbers,
    say,
    segments,
    tables,
    wall,
    walls,
    write,
)

Row = tuple[str, int, int, tuple[int, ...]]
HOUR_NS = 3600 * SECOND_NS


def rows_of(items: list[Any]) -> list[Row]:
    """All rows that a follower gave: (table, wall clock, key, values)."""
    return [
        (name, item.wall_ns, key, tuple(column[place] for column in columns))
        for item, _ in items
        if isinstance(item, Sample)
        for name, (keys, columns) in item.tables.items()
        for place, key in enumerate(keys)
    ]


def rows_read(node: NodeTrace) -> list[Row]:
    """All rows of a trace that was read whole."""
    return [
        (name, table.times_ns[place], table.keys[place], tuple(column[place] for column in table.values.values()))
        for name, table in node.tables.items()
        for place in range(len(table.keys))
    ]


def in_turn(folder: Path, **options: Any) -> tuple[list[Any], NodeTrace]:
    """What a follower saw that read after every third item, and what stands in the trace in the end."""
    writer, follower, items = make_writer(folder, **options), Follower(str(folder)), []
    for index in range(150):
        write(writer, [index])
        say(writer, index, number=index)
        items += follower.read() if index % 3 == 0 else []
    writer.close()
    items += follower.read()
    return items, read_node(folder)


def beside(folder: Path) -> tuple[list[Any], NodeTrace]:
    """The same with a writer that writes while the follower reads."""
    writer, follower, items = make_writer(folder, segment_bytes=6000), Follower(str(folder)), []
    thread = threading.Thread(target=write, args=(writer, range(1500)))
    thread.start()
    while thread.is_alive():
        items += follower.read()
    thread.join()
    writer.close()
    items += follower.read()
    return items, read_node(folder)


def byte_by_byte(data: bytes, path: Path) -> tuple[list[Any], list[Any]]:
    """Items of a segment that a reader follows while it grows byte by byte, and the gaps."""
    path.write_bytes(b"")
    reader, gaps, items = SegmentReader(str(path)), [], []
    with path.open("ab", buffering=0) as handle:
        for byte in data:
            handle.write(bytes([byte]))
            items += reader.read(gaps, final=False)
    return items, gaps


def write_raw(path: Path, *frames: bytes) -> None:
    """A segment of these frames."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(frames))


def header(**fields: Any) -> bytes:
    """The header of a segment."""
    return pack(HEADER, json_payload({"format": 1, "pid": 0, "tables": TABLES, **fields}))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 5000], ids=["one segment", "many segments"])
def test_follower_gives_what_is_written(tmp_path: Path, segment_bytes: int) -> None:
    """A follower gives every sample and event once, in order, as they are read in the end."""
    items, node = in_turn(tmp_path, segment_bytes=segment_bytes)
    assert sorted(rows_of(items)) == sorted(rows_read(node))
    assert [item.wall_ns for item, _ in items if isinstance(item, Sample)] == walls(range(150))
    assert [item for item, _ in items if isinstance(item, dict)] == node.events


def test_follower_beside_a_writer(tmp_path: Path) -> None:
    """While another thread writes, across many segments, the follower sees every sample once and in order."""
    items, node = beside(tmp_path)
    assert [item.wall_ns for item, _ in items if isinstance(item, Sample)] == walls(range(1500))
    assert (len(segments(tmp_path)) > 5, sorted(rows_of(items))) == (True, sorted(rows_read(node)))


def test_segment_that_grows_byte_by_byte(tmp_path: Path) -> None:
    """Wherever a reader finds the end of a file that is being written, it loses nothing and tells no gap."""
    writer = make_writer(tmp_path)
    write(writer, range(5))
    say(writer, 5)
    writer.close()
    data = segments(tmp_path)[0].read_bytes()
    items, gaps = byte_by_byte(data, tmp_path / "growing")
    assert [getattr(item, "wall_ns", "event") for item in items] == [*walls(range(5)), "event"]
    assert gaps == []


def test_follower_of_a_folder_that_comes_later(tmp_path: Path) -> None:
    """Before there is a trace a follower gives nothing; then it gives all of it."""
    follower = Follower(str(tmp_path / "run"))
    before = (follower.read(), follower.header)
    writer = make_writer(tmp_path / "run")
    write(writer, range(2))
    assert (before, follow(follower), follower.header["node"]) == (([], {}), [0, 1], "here")
    writer.close()


def test_follower_when_the_disk_fails_twice(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """The second time that the disk takes nothing, a reader sees the samples in memory as it did the first time."""
    writer, follower = remote(tmp_path), Follower(str(tmp_path))
    seen = outage(writer, follower, 0) | outage(writer, follower, 10)
    assert seen == set(range(20))


def outage(writer: Remote, follower: Follower, start: int) -> set[int]:
    """Three samples on disk, seven in memory, each read at once; the disk works again."""
    writer.write(range(start, start + 3))
    seen = follow(follower)
    writer.break_disk(errno.ENOSPC)
    writer.write(range(start + 3, start + 10))
    seen += follow(follower)
    writer.break_disk(0)
    return set(seen)


def test_follower_when_the_memory_is_full(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """When the memory was full and begins anew, a reader goes on to see the samples in it."""
    writer, follower = remote(tmp_path, ring_bytes=8000), Follower(str(tmp_path))
    writer.write([0])
    live = follow(follower)
    writer.break_disk(errno.ENOSPC)
    live += each_seen(writer, follower, range(1, 150))
    assert live == list(range(150))


def each_seen(writer: Remote, follower: Follower, indexes: range) -> list[int]:
    """What a follower gives that reads after each sample."""
    seen = []
    for index in indexes:
        writer.write([index])
        seen += follow(follower)
    return seen


def test_follower_gives_nothing_twice(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """Samples that were read from the recorder's memory are not given again when they are on disk."""
    writer, follower = remote(tmp_path), Follower(str(tmp_path))
    writer.write(range(3))
    live = follow(follower)
    writer.break_disk(errno.ENOSPC)
    writer.write(range(3, 10))
    live += follow(follower)
    writer.break_disk(0)
    writer.write(range(10, 12))
    live += follow(follower)
    assert live == list(range(12))


def test_follower_after_the_disk_works_again(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """What was only in memory while no one looked is found on disk."""
    writer, follower = remote(tmp_path), Follower(str(tmp_path))
    writer.write(range(3))
    live = follow(follower)
    writer.break_disk(errno.ENOSPC)
    writer.write(range(3, 10))
    writer.break_disk(0)
    writer.write(range(10, 12))
    live += follow(follower)
    assert live == list(range(12))


def test_first_look_finds_the_memory(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """A reader that comes while the disk is full sees all samples when it looks for the first time."""
    writer = remote(tmp_path)
    writer.write(range(3))
    writer.break_disk(errno.ENOSPC)
    writer.write(range(3, 10))
    assert follow(Follower(str(tmp_path))) == list(range(10))


def test_files_that_close_do_not_hide_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A descriptor that the recorder closes while its list is read does not hide the others."""
    descriptors = f"/proc/{os.getpid()}/fd"
    ring = os.memfd_create(RING_NAME)
    write_raw(tmp_path / "000001.trace", header(pid=os.getpid()))
    follower = Follower(str(tmp_path))
    follower.read()
    monkeypatch.setattr(os, "listdir", lambda _path: ["9999", str(ring)])
    found = follower._rings()
    os.close(ring)
    assert found == [f"{descriptors}/{ring}"]


def hour(folder: Path, modified_ns: int = 0) -> list[int]:
    """The seconds read, one in 30, of an hour that was recorded once a second; the last ten minutes are whole."""
    writer = make_writer(folder)
    write(writer, range(3600))
    writer.close()
    os.utime(segments(folder)[0], ns=(0, modified_ns or wall(3599)))
    return numbers(read_node(folder, every_s=30.0))


def test_thinning_keeps_the_end_whole(tmp_path: Path) -> None:
    """Every sample of the last ten minutes is read."""
    assert [number for number in hour(tmp_path) if number >= 2999] == list(range(2999, 3600))


def test_thinning_keeps_enough_of_the_beginning(tmp_path: Path) -> None:
    """Before, at least one sample is read in each interval, and at most two: key frames are read in any case."""
    head = [number for number in hour(tmp_path) if number < 2999]
    steps = {later - earlier for earlier, later in pairwise(head)}
    assert (max(steps) <= 30, len(head) <= 2 * 100 + 1) == (True, True)


def test_thinning_of_a_copy_keeps_the_end_whole(tmp_path: Path) -> None:
    """A trace that was copied, with files that are a day younger, keeps its last ten minutes too."""
    found = hour(tmp_path, modified_ns=wall(3599) + 24 * HOUR_NS)
    assert [number for number in found if number >= 2999] == list(range(2999, 3600))


def write_stepped(folder: Path, step_ns: int, count: int) -> None:
    """A trace in which the wall clock jumps in the middle; the monotonic clock does not."""
    writer = make_writer(folder)
    for index in range(count):
        writer.sample(wall(index) + step_ns * (index >= count // 2), index * SECOND_NS, tables(index))
    writer.close()


@pytest.mark.parametrize("step_ns", [-HOUR_NS, -5 * SECOND_NS, 5 * SECOND_NS, HOUR_NS])
def test_clock_steps(tmp_path: Path, step_ns: int) -> None:
    """When the wall clock jumps all samples are kept, with the monotonic clock as it was, in order of wall time."""
    write_stepped(tmp_path, step_ns, 40)
    node = read_node(tmp_path)
    table = node.tables["recorder"]
    assert sorted(table.mono_ns) == [index * SECOND_NS for index in range(40)]
    assert list(node.times_ns) == sorted(wall(index) + step_ns * (index >= 20) for index in range(40))
    assert sorted(zip(table.values["cpu_us"], table.mono_ns)) == [(index, index * SECOND_NS) for index in range(40)]


def test_thinning_when_the_clock_steps_back(tmp_path: Path) -> None:
    """After the wall clock was set back, one sample in each interval is read as before."""
    write_stepped(tmp_path, -HOUR_NS, 600)
    os.utime(segments(tmp_path)[0], ns=(0, wall(0) + HOUR_NS))
    found = sorted(numbers(read_node(tmp_path, every_s=10.0, whole_s=0.0)))
    assert max(later - earlier for earlier, later in pairwise(found)) <= 10


def test_unknown_kind_is_a_gap(tmp_path: Path) -> None:
    """A frame of a kind that this version does not know is reported, and everything around it is read."""
    frames = [Encoder(TABLES).encode(wall(1), 1, tables(1)), pack(b"Q"[0], b"?"), pack(EVENT, b'{"kind":"mark"}')]
    write_raw(tmp_path / "000001.trace", header(), *frames)
    node = read_node(tmp_path)
    assert (numbers(node), kinds(node)) == ([1], ["mark"])
    assert [str(gap.why) for gap in node.gaps] == ["a frame of kind 81, which this version does not know"]


def test_unknown_codec_is_a_gap(tmp_path: Path) -> None:
    """A frame that is compressed in a way of the future is reported, and everything around it is read."""
    unknown = pack(b"S"[0], b"?", 9)
    write_raw(tmp_path / "000001.trace", header(), unknown, Encoder(TABLES).encode(wall(1), 1, tables(1)))
    node = read_node(tmp_path)
    told = [str(gap.why) for gap in node.gaps]
    assert (numbers(node), told) == ([1], [f"{len(unknown)} bytes at {len(header())} are damaged; skipped"])


def test_newer_format_is_a_gap(tmp_path: Path) -> None:
    """A trace in a newer format is read as far as possible, and this is reported."""
    write_raw(tmp_path / "000001.trace", header(format=2), Encoder(TABLES).encode(wall(1), 1, tables(1)))
    node = read_node(tmp_path)
    told = "written in format 2; this version reads up to 1, some of it may be missing"
    assert (numbers(node), [str(gap.why) for gap in node.gaps]) == ([1], [told])


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"format": "2.1"}, id="format is text"),
        pytest.param({"format": None}, id="format is null"),
        pytest.param({"tables": {"host": 3}}, id="columns are a number"),
        pytest.param({"pid": "x"}, id="pid is text"),
        pytest.param({"tables": ["host"]}, id="tables are a list"),
        pytest.param({"tables": None}, id="tables are null"),
    ],
)
def test_header_of_another_shape(tmp_path: Path, fields: dict[str, Any]) -> None:
    """A header that a later version writes in another shape is never an error: its events are read."""
    write_raw(tmp_path / "000001.trace", header(**fields), pack(EVENT, b'{"kind":"mark"}'))
    follower = Follower(str(tmp_path))
    assert (kinds(read_node(tmp_path)), [item for item, _ in follower.read()]) == (["mark"], [{"kind": "mark"}])


def newer(folder: Path) -> NodeTrace:
    """A segment of this version, and one of a later one with a column and a table more, with other numbers."""
    later = {"disk": ("read_bytes",), "engine": (*TABLES["engine"], "swapped_count"), **TABLES}
    later["engine"] = (*TABLES["engine"], "swapped_count")
    old, new = Encoder(TABLES), Encoder(later)
    write_raw(folder / "000001.trace", header(), old.encode(wall(1), 1, {"engine": ([0], [[1], [2], [3], [4]])}))
    sample = {"disk": ([0], [[77]]), "engine": ([0], [[5], [6], [7], [8], [9]])}
    write_raw(folder / "000002.trace", header(tables=later), new.encode(wall(2), 2, sample))
    return read_node(folder)


def test_columns_of_a_newer_version(tmp_path: Path) -> None:
    """Tables and columns that a later version has are read by their names; where they were not yet, they are NULL."""
    node = newer(tmp_path)
    engine = {name: list(column) for name, column in node.tables["engine"].values.items()}
    assert engine["swapped_count"] == [NULL, 9]
    assert ({name: engine[name] for name in TABLES["engine"]}, list(node.tables["disk"].values["read_bytes"])) == (
        {"running_count": [1, 5], "waiting_count": [2, 6], "cache_ratio": [3, 7], "preempted_count": [4, 8]},
        [77],
    )


def test_names_of_a_newer_version(tmp_path: Path) -> None:
    """`names` lists the columns of all segments."""
    table = newer(tmp_path).tables["engine"]
    assert table.names == tuple(table.values)


def test_columns_of_an_older_version(tmp_path: Path) -> None:
    """Columns that an older version did not have are NULL from then on."""
    older = {**TABLES, "gpu_process": (), "gpu": ("total_bytes",)}
    write_raw(tmp_path / "000001.trace", header(), Encoder(TABLES).encode(wall(1), 1, {"gpu": ([0], [[1], [2], [3]])}))
    write_raw(tmp_path / "000002.trace", header(tables=older), Encoder(older).encode(wall(2), 2, {"gpu": ([0], [[4]])}))
    values = {name: list(column) for name, column in read_node(tmp_path).tables["gpu"].values.items()}
    assert values == {"total_bytes": [1, 4], "used_bytes": [2, NULL], "busy_ratio": [3, NULL]}


@pytest.mark.parametrize("payload", [b"no json", b"[1]", b"\xff\xfe", b""])
def test_event_that_is_no_object(tmp_path: Path, payload: bytes) -> None:
    """An event that is no JSON object is a gap, and the next one is read."""
    write_raw(tmp_path / "000001.trace", header(), pack(EVENT, payload), pack(EVENT, b'{"kind":"mark"}'))
    node = read_node(tmp_path)
    assert (kinds(node), [str(gap.why) for gap in node.gaps]) == (["mark"], [f"an event at {len(header())} was not written by a recorder"])


@pytest.mark.parametrize(
    "value",
    [
        pytest.param("yesterday", id="text"),
        pytest.param("17.5", id="a number as text"),
        pytest.param([1], id="a list"),
        pytest.param({}, id="an empty object"),
    ],
)
def test_event_with_a_time_that_is_none(tmp_path: Path, value: Any) -> None:
    """An event whose time is no number is a gap, and the next one is read."""
    events = [pack(EVENT, json_payload({"kind": "mark", "wall_ns": at})) for at in (value, 7)]
    write_raw(tmp_path / "000001.trace", header(), *events)
    node = read_node(tmp_path)
    assert (kinds(node), len(node.gaps), len(Follower(str(tmp_path)).read())) == (["mark"], 1, 1)


def test_sample_without_its_key_frame_is_a_gap(tmp_path: Path) -> None:
    """A sample whose key frame is lost is reported with its place; the next group is read."""
    encoder = Encoder(TABLES, key_every=2)
    frames = [encoder.encode(wall(index), index, tables(index)) for index in range(4)]
    write_raw(tmp_path / "000001.trace", header(), *frames[1:])
    node = read_node(tmp_path)
    told = [f"a sample at {len(header())} cannot be read without its damaged key frame"]
    assert (numbers(node), [str(gap.why) for gap in node.gaps]) == ([2, 3], told)


def test_sample_that_is_too_short_to_be_thinned(tmp_path: Path) -> None:
    """A sample whose head is missing is a gap, also where samples are chosen by their time."""
    write_raw(tmp_path / "000001.trace", header(), pack(b"S"[0], b"abc"), pack(KEY, b"", ZSTD), pack(KEY, b""))
    assert len(read_node(tmp_path, every_s=10.0).gaps) == 3


@pytest.mark.parametrize("every_s", [0.0, pytest.param(10.0)])
def test_segment_that_cannot_be_opened(tmp_path: Path, every_s: float) -> None:
    """A segment that is gone when it is read (the recorder deletes old ones) is a gap; the others are read."""
    writer = make_writer(tmp_path)
    write(writer, range(3))
    writer.close()
    (tmp_path / "000000.trace").symlink_to(tmp_path / "gone")
    node = read_node(tmp_path, every_s=every_s)
    assert (numbers(node), [str(gap.why) for gap in node.gaps]) == ([0, 1, 2], ["is a link; name the file itself"])


def test_no_segment_can_be_opened(tmp_path: Path) -> None:
    """Where none of the segments can be opened there is no trace."""
    (tmp_path / "000001.trace").mkdir()
    with pytest.raises(SourceError):
        read_node(tmp_path)


def test_node_is_named_by_run_json(tmp_path: Path) -> None:
    """The node's name comes from run.json, else from the header."""
    make_writer(tmp_path).close()
    before = read_node(tmp_path).node
    (tmp_path / "run.json").write_text('{"schema": "rlhfdoctor.run/1", "node": "gpu-7"}')
    assert (before, read_node(tmp_path).node) == ("here", "gpu-7")


@pytest.mark.parametrize("text", ["{", "[]", '{"schema": "other/1", "node": "x"}', ""])
def test_run_json_that_is_none(tmp_path: Path, text: str) -> None:
    """A run.json that is damaged or not ours is ignored."""
    make_writer(tmp_path).close()
    (tmp_path / "run.json").write_text(text)
    assert (read_node(tmp_path).node, read_node(tmp_path).run) == ("here", {})


@pytest.mark.parametrize(
    ("name", "expected"),
    [("000001.trace", True), ("nodes/a/000001.trace", True), ("driver.log", False), ("run.json", False)],
)
def test_is_run(tmp_path: Path, name: str, expected: bool) -> None:
    """A folder with segments, its own or those of nodes, was written by the recorder; others were not."""
    write_raw(tmp_path / name, b"")
    assert is_run(tmp_path) is expected


@pytest.mark.parametrize("half", [r"\ud800", r"\udbff", r"\uDC7F", r"\udcff"])
def test_half_of_a_pair(tmp_path: Path, half: str) -> None:
    """JSON may hold what no text can: it is no number, and what is made of it can be written as UTF-8."""
    make_writer(tmp_path).close()
    (tmp_path / "run.json").write_text(f'{{"schema": "rlhfdoctor.run/1", "started": "{half}"}}')
    node = read_node(tmp_path)
    assert (node.run, [str(gap.what) for gap in node.gaps]) == ({}, [str(tmp_path / "run.json")])
    for text in (half.encode(), half.lower().encode().decode("unicode-escape").encode("utf-8", "surrogatepass")):
        (tmp_path / "run.json").write_bytes(b'{"schema": "rlhfdoctor.run/1", "name": "a' + text + b'", "versions": {"' + text + b'": ""}}')
        run = read_node(tmp_path).run
        assert next(iter(run["versions"])) == run["name"][1:]
        assert run["name"].encode("utf-8", "surrogateescape") in (b"a\xff", "a\ufffd".encode())


def test_is_run_by_run_json(tmp_path: Path) -> None:
    """A folder in which the recorder did not get as far as a segment is known by run.json."""
    (tmp_path / "run.json").write_text('{"schema": "rlhfdoctor.run/1"}')
    assert is_run(tmp_path) is True


def test_find_nodes(tmp_path: Path) -> None:
    """The run's own trace comes first, then those of the nodes by name."""
    places = [tmp_path, tmp_path / "nodes" / "a", tmp_path / "nodes" / "b"]
    make_writer(places[2]).close()
    make_writer(places[1]).close()
    make_writer(places[0]).close()
    assert find_nodes(tmp_path) == places


def test_a_segment_that_unpacks_to_more_than_any_recorder_writes(tmp_path: Path) -> None:
    """What it unpacks to is bounded by its size, whatever each frame claims; what stands before is read."""
    write(make_writer(tmp_path), range(3))
    (segment,) = segments(tmp_path)
    zeros = pack(KEY, zstandard.compress(bytes(16 << 20)), ZSTD)
    with segment.open("ab") as file:
        file.write(zeros * 400)
    reader, gaps = SegmentReader(str(segment)), []
    payloads = sum(len(item.payload) for item, _ in reader.frames(final=True) if not isinstance(item, tuple))
    assert payloads < 600 << 20
    assert len(list(SegmentReader(str(segment)).read(gaps, final=True))) >= 3
    assert sum("more than 200 times its size" in str(gap.why) for gap in gaps) == 1


def test_a_folder_that_is_gone_or_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount whose server is gone costs nothing but what lies on it."""
    make_writer(tmp_path / "run").close()
    (tmp_path / "run" / "mnt").mkdir()
    scandir = os.scandir

    def dead(folder: Any) -> Any:
        if str(folder).endswith("mnt"):
            raise OSError(errno.ENOTCONN, os.strerror(errno.ENOTCONN), str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", dead)
    assert (is_run(tmp_path / "run"), is_run(tmp_path / "run" / "mnt")) == (True, False)
    assert (find_nodes(tmp_path / "run"), find_runs(str(tmp_path))) == ([tmp_path / "run"],) * 2
    assert find_runs(str(tmp_path / "run" / "mnt")) == []
