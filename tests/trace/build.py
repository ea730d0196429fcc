"""Small traces, and a disk that can be broken and repaired."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import KEY, SAMPLE, Decoder, Frame, Rows, Sample, unpack
from rlhfdoctor.trace.node import NodeTrace
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.trace.store import SUFFIX, Writer

START_NS = 1_700_000_000_000_000_000
SECOND_NS = 1_000_000_000
Plain = dict[str, tuple[list[int], list[list[int]]]]


def wall(index: int) -> int:
    """The wall clock of the sample with a number; one a second."""
    return START_NS + index * SECOND_NS


def walls(indexes: Iterable[int]) -> list[int]:
    """The wall clocks of samples."""
    return [wall(index) for index in indexes]


def tables(index: int) -> dict[str, Rows]:
    """Rows that differ from tick to tick; the number of the sample is in `recorder.cpu_us`."""
    processes = [1, 2, 3][: 1 + index % 3]
    return {
        "process": (processes, [[index * 7919 + uid * column for uid in processes] for column in range(12)]),
        "recorder": ([0], [[index], *([0] for _ in TABLES["recorder"][1:])]),
    }


def write(writer: Writer, indexes: Iterable[int]) -> None:
    """One sample for each number."""
    for index in indexes:
        writer.sample(wall(index), index * SECOND_NS, tables(index))


def say(writer: Writer, index: int, **fields: Any) -> None:
    """One event at the time of a sample."""
    writer.event({"kind": "mark", "wall_ns": wall(index), "mono_ns": index * SECOND_NS, **fields})


def make_writer(folder: Path, **options: Any) -> Writer:
    """A writer of this process."""
    folder.mkdir(parents=True, exist_ok=True)
    return Writer(str(folder), {"pid": os.getpid(), "node": "here"}, **options)


def follow(follower: Follower) -> list[int]:
    """The numbers of the samples that are new to a follower."""
    return [item.tables["recorder"][1][0][0] for item, _ in follower.read() if isinstance(item, Sample)]


def segments(folder: Path) -> list[Path]:
    """The files of a trace."""
    return sorted(folder.glob(f"*{SUFFIX}"))


def numbers(node: NodeTrace) -> list[int]:
    """The numbers of the samples that were read."""
    return list(node.tables["recorder"].values["cpu_us"]) if "recorder" in node.tables else []


def kinds(node: NodeTrace) -> list[str]:
    """The kinds of the events that were read."""
    return [str(event["kind"]) for event in node.events]


def plain(rows: Mapping[str, Rows]) -> Plain:
    """Tables as lists, to be compared."""
    return {name: (list(keys), [list(column) for column in columns]) for name, (keys, columns) in rows.items()}


def decode(data: bytes, columns: Mapping[str, Sequence[str]], skip: Iterable[int] = ()) -> list[Sample]:
    """The samples of a segment that can be read, without the frames whose numbers are to be skipped."""
    decoder, left_out = Decoder(columns), set(skip)
    frames = [item for item in unpack(data) if isinstance(item, Frame) and item.kind in (KEY, SAMPLE)]
    found = [decoder.decode(frame) for place, frame in enumerate(frames) if place not in left_out]
    return [sample for sample in found if sample is not None]


def mount(target: Path, *words: str) -> Iterator[Path]:
    """Mounts a file system for the time of a test; skips where that is not allowed."""
    target.mkdir()
    done = subprocess.run(["mount", *words, str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"mounting is not possible here: {done.stderr.strip()}")
    yield target
    subprocess.run(["umount", "--lazy", str(target)], check=True)


def fill(folder: Path) -> Path:
    """Takes all the space of a disk."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as handle:
        try:
            while handle.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return path


class Disk:
    """Every write to a regular file fails while `error` is set; memory goes on working."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        """Puts itself between the store and the system calls."""
        self.error = 0
        self.torn_bytes = 0
        """So much of a frame is still written before the error."""
        self._pwrite, self._open = os.pwrite, os.open
        patch.setattr(os, "pwrite", self._write)
        patch.setattr(os, "open", self._make)

    def _write(self, handle: int, data: bytes, offset: int) -> int:
        if self.error and "memfd:" not in str(Path(f"/proc/self/fd/{handle}").readlink()):
            if self.torn_bytes:
                done = self._pwrite(handle, data[: self.torn_bytes], offset)
                self.torn_bytes = 0
                return done
            raise OSError(self.error, os.strerror(self.error))
        return self._pwrite(handle, data, offset)

    def _make(self, path: Any, flags: int, *rest: Any, **options: Any) -> int:
        if self.error and flags & os.O_CREAT and str(path).endswith(SUFFIX):
            raise OSError(self.error, os.strerror(self.error))
        return self._open(path, flags, *rest, **options)


class Remote:
    """A writer in a process of its own, as the recorder is."""

    def __init__(self, folder: Path, **options: Any) -> None:
        """Forks it."""
        context = multiprocessing.get_context("fork")
        self._ours, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, folder, options))
        self._process.start()
        self._ours.recv()

    def _ask(self, name: str, value: Any = None) -> tuple[str, int, int]:
        self._ours.send((name, value))
        answer: tuple[str, int, int] = self._ours.recv()
        return answer

    def write(self, indexes: Iterable[int]) -> tuple[str, int, int]:
        """Samples; the writer's trouble, how many frames it keeps in memory, how many it lost."""
        return self._ask("write", list(indexes))

    def write_until_full(self, start: int) -> int:
        """Samples until the disk takes no more; the number of the next one."""
        for index in range(start, start + 5000):
            if self.write([index])[0]:
                return index + 1
        raise AssertionError("the disk is never full")

    def break_disk(self, error: int) -> None:
        """From now on the disk answers with an error; 0: it works again, and it is time to try."""
        self._ask("error", error)

    def move_clock(self) -> None:
        """It is time to try the disk again."""
        self._ask("clock")

    def end(self) -> None:
        """Ends the process without closing the writer."""
        self._process.kill()
        self._process.join()


def _serve(pipe: Connection, folder: Path, options: dict[str, Any]) -> None:
    disk, now = Disk(pytest.MonkeyPatch()), [0.0]
    writer = make_writer(folder, clock=lambda: now[0], **options)
    pipe.send("ready")
    while True:
        name, value = pipe.recv()
        if name == "write":
            write(writer, value)
        elif name == "error":
            disk.error = value
        now[0] += 60.0 * (name != "write")
        pipe.send((writer.trouble, writer.kept_count, writer.lost_count))
