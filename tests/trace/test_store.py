"""The store: truncation, rotation, two writers, full and broken disks."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.errors import SourceError
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import KEY, SAMPLE, Frame, unpack
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.store import Writer
from tests.trace.build import (
    Disk,
    Remote,
    fill,
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

FULL = os.strerror(errno.ENOSPC)
ERRORS = [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT, errno.ESTALE]
NAMES = [errno.errorcode[code] for code in ERRORS]


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    """The writer's clock; it decides when the disk is tried again."""
    return Clock()


@pytest.fixture
def writer(tmp_path: Path, clock: Clock) -> Iterator[Writer]:
    """A writer into the folder `run`."""
    made = make_writer(tmp_path / "run", clock=clock)
    yield made
    made.close()


def small_store(folder: Path) -> Path:
    """A segment with eight samples, with events among them."""
    writer = make_writer(folder)
    write(writer, range(4))
    say(writer, 4, phase="rollout")
    write(writer, range(4, 8))
    say(writer, 8, phase="train")
    writer.close()
    return segments(folder)[0]


def whole_before(data: bytes) -> list[int]:
    """For each length, from all bytes down to none: how many whole samples there are."""
    ends = [item.end for item in unpack(data) if isinstance(item, Frame) and item.kind in (KEY, SAMPLE)]
    return [sum(end <= size for end in ends) for size in range(len(data), -1, -1)]


def read_shortened(path: Path) -> list[list[int]]:
    """The samples read of a segment that is cut shorter byte by byte."""
    found = []
    for size in range(path.stat().st_size, -1, -1):
        os.truncate(path, size)
        found.append(numbers(read_node(path.parent)))
    return found


def read_damaged(path: Path) -> list[tuple[int, int, int]]:
    """(samples, events, gaps) read of a segment of which one byte, one after another, is wrong."""
    data, found = path.read_bytes(), []
    for offset in range(len(data)):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x10]) + data[offset + 1 :])
        node = read_node(path.parent)
        found.append((len(node.times_ns), len(node.events), len(node.gaps)))
    return found


def expected_damaged(data: bytes) -> list[tuple[int, int, int]]:
    """The same as it should be: by the kind of the frame that a byte belongs to."""
    told = {b"H"[0]: (8, 2, 2), b"K"[0]: (0, 2, 8), b"S"[0]: (7, 2, 1), b"E"[0]: (8, 1, 1)}
    return [told[f.kind] for f in unpack(data) if isinstance(f, Frame) for _ in range(f.end - f.offset)]


def alone(folder: Path, target: Path) -> list[Any]:
    """Each segment read without the others."""
    found = []
    for path in segments(folder):
        place = target / path.stem
        place.mkdir(parents=True)
        shutil.copy(path, place)
        found.append(read_node(place))
    return found


def write_until(writer: Writer, start: int, most: int = 5000) -> int:
    """Samples until the disk takes no more; the number of the next one."""
    for index in range(start, start + most):
        write(writer, [index])
        if writer.trouble:
            return index + 1
    raise AssertionError("the disk is never full")


def test_cut_off_at_every_byte(tmp_path: Path) -> None:
    """Wherever a segment ends, every sample that is whole before that point is read, and nothing is raised."""
    path = small_store(tmp_path)
    expected = [list(range(count)) for count in whole_before(path.read_bytes())]
    assert read_shortened(path) == expected


def test_wrong_at_every_byte(tmp_path: Path) -> None:
    """One wrong byte takes its frame only, is reported as a gap, and never raises; the header costs no sample."""
    path = small_store(tmp_path)
    expected = expected_damaged(path.read_bytes())
    assert read_damaged(path) == expected


def test_cut_off_says_so(tmp_path: Path) -> None:
    """A torn last frame is one gap, which says that the writer died there."""
    path = small_store(tmp_path)
    os.truncate(path, path.stat().st_size - 1)
    assert [str(gap.why).partition(" are ")[2] for gap in read_node(tmp_path).gaps] == [
        "cut off: the writer died there"
    ]


def test_nothing_to_read_is_an_error(tmp_path: Path) -> None:
    """A folder without segments is an error that says how a trace looks."""
    with pytest.raises(SourceError, match=r"no trace in it .*000001\.trace"):
        read_node(tmp_path)


def make_header_size(folder: Path) -> int:
    """Bytes of the header that every segment begins with."""
    first = next(unpack(segments(folder)[0].read_bytes()))
    return first.end if isinstance(first, Frame) else 0


def test_segments_are_closed_when_they_are_full(tmp_path: Path) -> None:
    """A new segment begins where the last one has its size; no sample is lost or read twice."""
    writer = make_writer(tmp_path, segment_bytes=1500)
    write(writer, range(100))
    writer.close()
    header = make_header_size(tmp_path)
    sizes = [path.stat().st_size - header for path in segments(tmp_path)]
    assert (len(sizes) > 3, min(sizes[:-1]) >= 1490, max(sizes) < 2500) == (True, True, True)
    assert numbers(read_node(tmp_path)) == list(range(100))


def test_each_segment_is_read_alone(tmp_path: Path) -> None:
    """Every segment says by itself what run and what processes it is about."""
    process = {"kind": "process.seen", "uid": 1, "pid": 7, "wall_ns": wall(0), "mono_ns": 0}
    writer = make_writer(tmp_path / "run", segment_bytes=4000, registry=lambda: [{**process, "again": True}])
    write(writer, range(60))
    writer.close()
    nodes = alone(tmp_path / "run", tmp_path / "alone")
    assert [number for node in nodes for number in numbers(node)] == list(range(60))
    assert [(node.node, node.events, node.gaps) for node in nodes] == [("here", [process], [])] * len(nodes)


def test_what_segments_repeat_is_told_once(tmp_path: Path) -> None:
    """A process that every segment names is one event of the whole trace."""
    process = {"kind": "process.seen", "uid": 1, "pid": 7, "wall_ns": wall(0), "mono_ns": 0}
    known: list[dict[str, Any]] = []
    writer = make_writer(tmp_path, segment_bytes=1500, registry=lambda: known)
    writer.event(process)
    known.append({**process, "again": True})
    write(writer, range(100))
    writer.close()
    assert (len(segments(tmp_path)) > 3, read_node(tmp_path).events) == (True, [process])


def test_the_oldest_segments_go(tmp_path: Path) -> None:
    """Beyond the most bytes the oldest segments are deleted, the newest samples stay, and the trace says so."""
    writer = make_writer(tmp_path, segment_bytes=3000, most_bytes=10_000)
    write(writer, range(200))
    writer.close()
    node, size = read_node(tmp_path), sum(path.stat().st_size for path in segments(tmp_path))
    first = numbers(node)[0]
    assert (size <= 10_000 + 4000, segments(tmp_path)[0].name > "000003") == (True, True)
    assert (first > 0, numbers(node)) == (True, list(range(first, 200)))
    assert set(kinds(node)) == {"store.dropped"}


def test_dropped_segments_are_counted(tmp_path: Path) -> None:
    """The first deletion says how many segments went."""
    writer = make_writer(tmp_path, segment_bytes=900, most_bytes=1)
    write(writer, range(25))
    writer.close()
    dropped = [(event["kind"], event["segments_count"]) for event in read_node(tmp_path).events]
    assert dropped == [("store.dropped", 1)]


def test_second_writer_stays_away(tmp_path: Path) -> None:
    """A folder in which another recorder writes is refused, with what to do instead; its trace is untouched."""
    first = make_writer(tmp_path)
    with pytest.raises(SourceError, match="another recorder is writing here; use another --out"):
        make_writer(tmp_path)
    write(first, range(3))
    first.close()
    assert ([path.name for path in segments(tmp_path)], numbers(read_node(tmp_path))) == (["000001.trace"], [0, 1, 2])


def test_later_writer_goes_on(tmp_path: Path) -> None:
    """A recorder that starts where another one has ended begins a new segment behind the others."""
    for_each = [make_writer_and_close(tmp_path, start) for start in (0, 3, 6)]
    assert (for_each, numbers(read_node(tmp_path))) == ([1, 2, 3], list(range(9)))


def make_writer_and_close(folder: Path, start: int) -> int:
    """Three samples of a writer of its own; how many segments there are then."""
    writer = make_writer(folder)
    write(writer, range(start, start + 3))
    writer.close()
    return len(segments(folder))


def refuse_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system without locks."""

    def refuse(_handle: int, _what: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


def write_in_turn(folder: Path) -> list[Path]:
    """Two writers at the same time, sample by sample."""
    first, second = make_writer(folder), make_writer(folder)
    for index in range(0, 10, 2):
        write(first, [index])
        write(second, [index + 1])
    first.close()
    second.close()
    return segments(folder)


def test_two_writers_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be locked, two writers use files of their own, and both are read."""
    refuse_locks(monkeypatch)
    names = [path.name for path in write_in_turn(tmp_path)]
    assert (names, sorted(numbers(read_node(tmp_path)))) == (["000001.trace", "000002.trace"], list(range(10)))


def test_two_writers_are_read_in_order_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What two writers wrote at the same time is sorted by time."""
    refuse_locks(monkeypatch)
    write_in_turn(tmp_path)
    assert list(read_node(tmp_path).times_ns) == walls(range(10))


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    """A folder that does not exist is an error that names it."""
    with pytest.raises(SourceError, match="nowhere: No such file or directory"):
        Writer(str(tmp_path / "nowhere"), {})


def test_folder_that_takes_no_segment(tmp_path: Path, disk: Disk) -> None:
    """A disk that is full at the start is an error, and the lock is free again."""
    disk.error = errno.ENOSPC
    with pytest.raises(SourceError, match=FULL):
        make_writer(tmp_path)
    disk.error = 0
    make_writer(tmp_path).close()
    assert [path.name for path in segments(tmp_path)] == ["000001.trace"]


@pytest.mark.parametrize("code", ERRORS, ids=NAMES)
def test_broken_disk_says_why(writer: Writer, disk: Disk, code: int) -> None:
    """Whatever the disk answers is the trouble, in words; the samples are kept in memory and none is lost."""
    write(writer, [0])
    disk.error = code
    write(writer, [1, 2])
    assert (writer.trouble, writer.kept_count, writer.lost_count) == (os.strerror(code), 2, 0)


@pytest.mark.parametrize("code", ERRORS, ids=NAMES)
def test_broken_disk_comes_back(tmp_path: Path, writer: Writer, disk: Disk, clock: Clock, code: int) -> None:
    """When the disk works again everything that was kept is on it, and the trace says what happened."""
    write(writer, [0])
    disk.error = code
    write(writer, range(1, 5))
    disk.error = 0
    clock.now += 2
    write(writer, range(5, 8))
    node = read_node(tmp_path / "run")
    told = [(event["kind"], event["why"], event["lost_count"]) for event in node.events]
    assert (numbers(node), told) == (list(range(8)), [("store.recovered", os.strerror(code), 0)])
    assert (writer.trouble, writer.kept_count) == ("", 0)


@pytest.mark.parametrize("torn_bytes", [1, 17, 40])
def test_torn_write(tmp_path: Path, writer: Writer, disk: Disk, clock: Clock, torn_bytes: int) -> None:
    """A frame of which only a part reached the disk is written again, whole, where there is room."""
    write(writer, range(3))
    disk.error, disk.torn_bytes = errno.ENOSPC, torn_bytes
    write(writer, range(3, 6))
    disk.error, clock.now = 0, 2.0
    write(writer, range(6, 9))
    node = read_node(tmp_path / "run")
    assert numbers(node) == list(range(9))
    assert [str(gap.why).split(" bytes")[0] for gap in node.gaps] == [str(torn_bytes)]


def test_short_writes_are_continued(tmp_path: Path, writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that takes a few bytes at a time gets all of them."""
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, data, offset: real(handle, data[:7], offset))
    write(writer, range(5))
    assert numbers(read_node(tmp_path / "run")) == list(range(5))


def test_disk_is_tried_with_longer_pauses(
    writer: Writer, disk: Disk, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that stays full is asked after 1, 2, 4, ... and in the end every 30 seconds, not with every sample."""
    disk.error = errno.ENOSPC
    write(writer, [0])
    asked: list[float] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: (asked.append(clock.now), real(path, *rest, **more))[1])
    tick(writer, clock, 120)
    assert sorted(set(asked)) == [1, 3, 7, 15, 31, 61, 91]


def tick(writer: Writer, clock: Clock, seconds: int) -> None:
    """A sample a second."""
    for index in range(1, seconds + 1):
        clock.now = float(index)
        write(writer, [index])


def test_close_brings_what_was_kept_to_disk(tmp_path: Path, disk: Disk) -> None:
    """At the end the disk is tried once more, whenever it was to be tried again."""
    writer = make_writer(tmp_path)
    disk.error = errno.EIO
    write(writer, range(5))
    disk.error = 0
    writer.close()
    assert (numbers(read_node(tmp_path)), kinds(read_node(tmp_path))) == (list(range(5)), ["store.recovered"])


def test_close_of_a_broken_disk(tmp_path: Path, disk: Disk) -> None:
    """Closing never raises, and what was on the disk before stays readable."""
    writer = make_writer(tmp_path)
    write(writer, range(3))
    disk.error = errno.EIO
    write(writer, range(3, 6))
    writer.close()
    assert numbers(read_node(tmp_path)) == [0, 1, 2]


def count_losses(writer: Writer, indexes: range) -> int:
    """Writes samples; how often the memory was full."""
    times, before = 0, writer.lost_count
    for index in indexes:
        write(writer, [index])
        times, before = times + (writer.lost_count > before), writer.lost_count
    return times


def test_full_memory_is_counted(tmp_path: Path, disk: Disk, clock: Clock) -> None:
    """When the memory is full too, the oldest go, what is left is whole, and every lost frame is counted."""
    writer = make_writer(tmp_path, ring_bytes=6000, clock=clock)
    disk.error = errno.ENOSPC
    times = count_losses(writer, range(200))
    disk.error, clock.now = 0, 2.0
    write(writer, [200])
    writer.close()
    node = read_node(tmp_path)
    first = numbers(node)[0]
    assert (times > 1, numbers(node)) == (True, list(range(first, 201)))
    assert node.events[0]["lost_count"] == first


def test_neither_disk_nor_memory(tmp_path: Path, writer: Writer, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any place the samples are lost and counted, nothing is raised, and the next ones are read."""
    write(writer, range(3))
    disk.error = errno.ENOSPC
    refuse_memory(monkeypatch)
    write(writer, range(3, 6))
    disk.error = 0
    write(writer, range(6, 9))
    assert (writer.lost_count, numbers(read_node(tmp_path / "run"))) == (3, [0, 1, 2, 6, 7, 8])


def test_trouble_ends_with_the_next_write(writer: Writer, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there was no memory either, the trouble is over as soon as the disk takes a frame again."""
    disk.error = errno.ENOSPC
    refuse_memory(monkeypatch)
    write(writer, [0])
    disk.error = 0
    write(writer, [1])
    assert (writer.lost_count, writer.trouble) == (1, "")


def refuse_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox without memfd_create."""

    def refuse(_name: str, _flags: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, "memfd_create", refuse)


def many_processes() -> list[dict[str, Any]]:
    """Names of processes whose command lines fill the 4096 bytes that are read of them: 80 kB."""
    return [{"kind": "process.seen", "uid": uid, "command": "x" * 4000, "again": True} for uid in range(20)]


def test_registry_that_is_larger_than_the_memory(tmp_path: Path, disk: Disk) -> None:
    """A sample never raises, also where the names of the processes alone are too much for the memory."""
    writer = make_writer(tmp_path, registry=many_processes, ring_bytes=1 << 16)
    disk.error = errno.ENOSPC
    write(writer, [0])
    assert writer.trouble == FULL


def test_registry_that_is_larger_than_a_segment(tmp_path: Path) -> None:
    """Where the names of the processes alone fill a segment, not every sample begins a new one."""
    writer = make_writer(tmp_path, registry=many_processes, segment_bytes=1 << 16)
    write(writer, range(5))
    writer.close()
    assert len(segments(tmp_path)) == 1


def test_real_full_disk(tiny: Path, remote: Callable[..., Remote]) -> None:
    """On a real disk without space the store says so and keeps on; a reader sees the samples in its memory."""
    writer, follower = remote(tiny / "run"), Follower(str(tiny / "run"))
    writer.write(range(3))
    live = follow(follower)
    fill(tiny)
    count = writer.write_until_full(3)
    live += follow(follower)
    trouble, _, lost = writer.write(range(count, count + 20))
    live += follow(follower)
    assert (trouble, lost, live) == (FULL, 0, list(range(count + 20)))


def test_real_full_disk_with_space_again(tiny: Path, clock: Clock) -> None:
    """As soon as there is space again all samples are on the disk, none is lost, and the trace says so."""
    writer = make_writer(tiny / "run", clock=clock)
    write(writer, range(3))
    filler = fill(tiny)
    count = write_until(writer, 3)
    write(writer, range(count, count + 20))
    filler.unlink()
    clock.now += 2
    write(writer, range(count + 20, count + 25))
    node = read_node(tiny / "run")
    writer.close()
    told = [(event["kind"], event["why"], event["lost_count"]) for event in node.events]
    assert (numbers(node), told) == (list(range(count + 25)), [("store.recovered", FULL, 0)])


def test_real_full_disk_that_the_trace_filled(tiny: Path, clock: Clock) -> None:
    """Where the trace itself fills the disk, across segments, everything on the disk stays readable."""
    writer = make_writer(tiny / "run", clock=clock, segment_bytes=4000)
    count = write_until(writer, 0)
    node = read_node(tiny / "run")
    writer.close()
    assert (len(segments(tiny / "run")) > 5, numbers(node)) == (True, list(range(count - 1)))


def test_real_disk_that_becomes_read_only(fragile: Path, remote: Callable[..., Remote]) -> None:
    """A file system that the kernel made read-only is said to be so; a reader sees old and new samples."""
    writer, follower = remote(fragile / "run"), Follower(str(fragile / "run"))
    writer.write(range(3))
    live = follow(follower)
    subprocess.run(["mount", "-o", "remount,abort", str(fragile)], check=False, capture_output=True)
    trouble, _, lost = writer.write(range(3, 10))
    live += follow(follower)
    assert (trouble, lost, live) == (os.strerror(errno.EROFS), 0, list(range(10)))


def test_folder_deleted(tmp_path: Path, remote: Callable[..., Remote]) -> None:
    """With the folder gone the store goes on in memory when its segment is full, and says why."""
    writer, follower = remote(tmp_path / "run", segment_bytes=3000), Follower(str(tmp_path / "run"))
    writer.write([0])
    live = follow(follower)
    shutil.rmtree(tmp_path / "run")
    count = writer.write_until_full(1)
    trouble, _, _ = writer.write(range(count, count + 5))
    live += follow(follower)
    assert (trouble, live) == (os.strerror(errno.ENOENT), [0, *range(count - 1, count + 5)])


def test_folder_deleted_and_made_again(tmp_path: Path, clock: Clock) -> None:
    """As soon as the folder is there again what was kept goes there, and the trace says so."""
    writer = make_writer(tmp_path / "run", clock=clock, segment_bytes=3000)
    shutil.rmtree(tmp_path / "run")
    count = write_until(writer, 0)
    (tmp_path / "run").mkdir()
    clock.now += 2
    write(writer, [count])
    node = read_node(tmp_path / "run")
    writer.close()
    assert (numbers(node), kinds(node)) == ([count - 1, count], ["store.recovered"])


def test_folder_deleted_is_noticed(tmp_path: Path, writer: Writer, clock: Clock) -> None:
    """A segment that was deleted under the writer takes nothing that anyone can read: the store says so soon."""
    write(writer, [0])
    shutil.rmtree(tmp_path / "run")
    clock.now += 10
    write(writer, range(1, 3))
    assert writer.trouble == os.strerror(errno.ENOENT)


def test_state_counts_bytes_on_disk(tmp_path: Path, writer: Writer) -> None:
    """`stored_bytes` is what the segments hold."""
    write(writer, range(10))
    assert writer.stored_bytes == sum(path.stat().st_size for path in segments(tmp_path / "run"))


def test_rows_of_the_writer_are_not_kept(tmp_path: Path) -> None:
    """What was given to `sample` is written at once: the file grows with every one."""
    writer = make_writer(tmp_path)
    sizes = [size_after(writer, tmp_path, index) for index in range(5)]
    writer.close()
    assert (sizes, len(set(sizes))) == (sorted(sizes), 5)


def size_after(writer: Writer, folder: Path, index: int) -> int:
    """The size of the first segment after one more sample."""
    writer.sample(wall(index), 0, tables(index))
    return segments(folder)[0].stat().st_size
