"""Marks of a job that writes more of them than any trainer does."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhfdoctor.record.target import Target
from rlhfdoctor.record.trainer_marks import MarkFiles, TrainerMarks
from rlhfdoctor.trace.record import RecordEvent, StoredEvent
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record
from tests.fake_tree import FakeTree

Limit = Callable[[str, int], None]


class Desk:
    """Marks of a run whose processes 7 and 8 are followed, in one folder."""

    def __init__(self, folder: Path) -> None:
        tree = FakeTree(folder / "tree")
        tree.add_process(7)
        tree.add_process(8, 7)
        target = Target(tree.root, pids=[7])
        target.discover()
        self.events: list[StoredEvent] = []
        self.files, self.marks = MarkFiles(target), TrainerMarks(target, self.emit)
        self.folder = folder / "marks"
        self.folder.mkdir()
        self.files.add(str(self.folder))

    def emit(self, kind: Record, fields: RecordEvent) -> RecordEvent:
        """Keeps an event."""
        self.events.append({R.kind: kind, **fields})
        return self.events[-1]

    def write(self, name: str, *steps: int) -> int:
        """Marks of steps at the end of a file; the bytes of each."""
        lines = [json.dumps({"step": step, "filler": "x" * 80}) + "\n" for step in steps]
        with (self.folder / name).open("a") as file:
            file.writelines(lines)
        return len(lines[0])

    def read(self) -> list[int]:
        """The steps that one tick gives."""
        return [mark[R.step] for mark in self.marks.take(self.files.read())]

    def kinds(self) -> list[str]:
        """Of the events that were stored."""
        return [str(event[R.kind]) for event in self.events]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    """A run that wrote no marks yet."""
    return Desk(tmp_path)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """Sets a bound of the module."""
    return lambda name, value: monkeypatch.setattr(f"rlhfdoctor.record.trainer_marks.{name}", value)


def test_folder_with_very_many_names(desk: Desk, limit: Limit, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder with more names than are read, the followed processes' own files are looked up."""
    limit("_MOST_NAMES", 50)
    for number in range(200):
        (desk.folder / f"{number + 100}.jsonl").touch()
    taken = []
    scandir = os.scandir

    class Counted:
        def __init__(self, folder: str) -> None:
            self.entries = scandir(folder)

        def __enter__(self) -> Counted:
            return self

        def __exit__(self, *_: object) -> None:
            self.entries.close()

        def __iter__(self) -> Counted:
            return self

        def __next__(self) -> os.DirEntry[str]:
            taken.append(1)
            return next(self.entries)

    monkeypatch.setattr(os, "scandir", Counted)
    desk.write("7.jsonl", 1)
    desk.write("8.jsonl", 2)
    assert (sorted(desk.read()), len(taken), desk.read()) == ([1, 2], 51, [])


def test_bytes_of_a_tick(desk: Desk, limit: Limit) -> None:
    """All files share the bytes of a tick; those that waited longest come first, and none is lost."""
    size = 5 * desk.write("7.0.jsonl", *range(5))
    for number in range(1, 10):
        desk.write(f"7.{number}.jsonl", *range(5 * number, 5 * number + 5))
    limit("_LEAST_BYTES", 1)
    limit("_TICK_BYTES", 4 * size)
    ticks = [desk.read() for _ in range(3)]
    assert max(map(len, ticks)) <= 25
    assert sorted(step for tick in ticks for step in tick) == list(range(50))


def test_small_files_count_too(desk: Desk, limit: Limit) -> None:
    """Very many files with a line each are opened over several ticks."""
    limit("_TICK_BYTES", 10 << 10)
    for number in range(25):
        desk.write(f"7.{number}.jsonl", number)
    assert [len(desk.read()) for _ in range(4)] == [10, 10, 5, 0]


def test_flood_of_marks(desk: Desk, limit: Limit) -> None:
    """Marks beyond what a run keeps are read but not stored, which one note says; every tick makes room for more."""
    limit("_MOST_EVENTS", 20)
    limit("_EVENTS_PER_TICK", 2)
    desk.marks._room = 20
    desk.write("7.jsonl", *range(100))
    assert (len(desk.read()), desk.kinds()) == (100, ["mark"] * 20 + ["gap"])
    desk.write("7.jsonl", *range(100, 150))
    assert (len(desk.read()), desk.kinds()[21:]) == (50, ["mark"] * 2)


def test_roles_count_too(desk: Desk, limit: Limit) -> None:
    """A role that changes with every mark is no way around it."""
    desk.marks._room, lines = 5, [json.dumps({"step": 1, "role": f"r{number}"}) for number in range(50)]
    limit("_EVENTS_PER_TICK", 0)
    (desk.folder / "7.jsonl").write_text("\n".join(lines) + "\n")
    desk.read()
    assert (len(desk.events), desk.kinds().count("gap")) == (6, 1)


def test_folders_are_counted(desk: Desk, tmp_path: Path, limit: Limit) -> None:
    """Only so many folders are read, none with an endless name, and only so many files are remembered."""
    for number in range(100):
        desk.files.add(str(tmp_path / str(number)))
    desk.files.add("/" + "x" * 5000)
    limit("_MOST_FILES", 3)
    for number in range(10):
        desk.write(f"7.{number}.jsonl", number)
    assert (len(desk.files._folders), len(desk.read()), len(desk.read())) == (16, 3, 0)


def test_probe_with_very_many_fields(desk: Desk) -> None:
    """Of the probe's report only the fields that are stored are kept."""
    (desk.folder / "7.jsonl").write_text(json.dumps({"kind": "probe", **{f"f{n}": n for n in range(1000)}, "at_ns": 7}) + "\n")
    desk.read()
    assert len(desk.marks.probes[7]) <= 1
