"""The command writes on while the disk of its log is full, on real file systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.files.read import open_sized
from rlhfdoctor.record import log_space
from rlhfdoctor.record.log_space import LogSpace
from rlhfdoctor.trace.record import RecordEvent, StoredEvent, make_record
from tests.trace.build import fill, mount

MIB = 1 << 20
PIECE = b"x" * 1023 + b"\n"


@pytest.fixture(params=["tmpfs", "ext4"])
def disk(request: Any, tmp_path: Path) -> Iterator[Path]:
    """A real file system of some 40 MiB."""
    if request.param == "tmpfs":
        yield from mount(tmp_path / "disk", "-t", "tmpfs", "-o", "size=40m", "tmpfs")
        return
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(44 * MIB)
    if os.system(f"mkfs.ext4 -q -F -O ^has_journal {image} > /dev/null 2>&1"):
        pytest.skip("mkfs.ext4 is missing")
    yield from mount(tmp_path / "disk", "-o", "loop", str(image))


@pytest.fixture
def no_reserve(tmp_path: Path) -> Iterator[Path]:
    """A file system that can neither hold blocks ahead nor punch holes."""
    yield from mount(tmp_path / "disk", "-t", "ramfs", "ramfs")


class Events(list[StoredEvent]):
    """What was emitted."""

    def emit(self, kind: Any, fields: RecordEvent) -> StoredEvent:
        """Takes an event."""
        self.append(make_record(kind, fields))
        return self[-1]


def write(path: Path, mib: int, space: LogSpace, head: bytes = b"") -> None:
    """So many MiB at the end of a log as a program writes them, with a tick after each."""
    with path.open("ab", buffering=0) as log:
        for _ in range(mib):
            for piece in [head or PIECE, *[PIECE] * 1023]:
                assert log.write(piece) == len(piece)
            space.step()


def held(path: Path) -> int:
    """Bytes that a file takes on the disk."""
    return path.stat().st_blocks * 512


def test_full_disk(disk: Path) -> None:
    """A log of twice the disk's size is written to its end; both ends of it are there, the middle is a hole."""
    log, events = disk / "job.log", Events()
    space = LogSpace([str(log), str(log)], events.emit)
    write(log, 1, space, b"first line\n")
    filler = fill(disk)
    write(log, 94, space)
    write(log, 1, space, b"last MiB\n")
    size = log.stat().st_size
    space.end(is_over=True)
    notes = [(event["what"], str(event["why"]).split(" after ")[0]) for event in events]
    with open_sized(log) as file:
        text = file.read()
    filler.unlink()
    assert (log.stat().st_size == size, held(log) < 32 * MIB) == (True, True)
    assert (text.startswith(b"first line\n"), b"last MiB\n" in text[-MIB - 64 :], b"\0" in text) == (True, True, False)
    assert (len(text) >= 8 * MIB, len(text) < 16 * MIB) == (True, True)
    assert [what for what, _ in notes] == ["middle of job.log"] * 2


def test_room_on_the_disk(disk: Path) -> None:
    """Where there is room nothing is given back, what was held is free again at the end, and nothing is noted."""
    log, events = disk / "job.log", Events()
    space = LogSpace([str(log)], events.emit)
    write(log, 2, space)
    ahead = held(log)
    space.end(is_over=True)
    assert (ahead >= 2 * MIB + log_space.HELD_BYTES // 2, held(log) <= 2 * MIB + 8192) == (True, True)
    assert (log.stat().st_size > 2 * MIB - 2000, events) == (True, [])


def test_writers_that_are_left(disk: Path) -> None:
    """Where somebody may still write, nothing is cut at the end."""
    log = disk / "job.log"
    space = LogSpace([str(log)], Events().emit)
    write(log, 1, space)
    ahead = held(log)
    space.end(is_over=False)
    assert held(log) == ahead


def test_file_system_that_holds_nothing(no_reserve: Path) -> None:
    """There a log is written as without us."""
    log, events = no_reserve / "job.log", Events()
    space = LogSpace([str(log)], events.emit)
    write(log, 2, space)
    space.end(is_over=True)
    assert (log.stat().st_size > 2 * MIB - 2000, events) == (True, [])
