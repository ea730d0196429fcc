"""Marks of the trainer, reports of the probe: lines that the followed processes write into folders that they name.

Who writes them decides how many there are, so each tick reads so many names, so many bytes, and stores so many events.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from rlhfdoctor.files.read import open_binary
from rlhfdoctor.files.walk import names_in
from rlhfdoctor.i18n.message import say
from rlhfdoctor.marks import PROBE, SNAPSHOT
from rlhfdoctor.privacy.secrets import cut_line
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.snapshot import MOST_FRAMES
from rlhfdoctor.trace.record import Emit, RecordEvent, StoredEvent, said
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record, RecordField
from rlhfdoctor.vocabulary.run import PHASES

_FILE_BYTES, _TICK_BYTES = 1 << 18, 1 << 20
"""Read of one file, and of all, in a tick; the rest waits."""
_LEAST_BYTES = 1 << 10
"""What a file counts that holds less: opening it costs, too."""
_MOST_NAMES = 8192
"""Of all folders; of one with more than its share, as that of many runs, the followed processes' own are looked up."""
_MOST_FOLDERS, _MOST_LETTERS, _MOST_FILES = 16, 1024, 20_000
_MOST_EVENTS, _EVENTS_PER_TICK = 20_000, 50
"""Stored in a burst, and what every tick adds: a job cannot push its own history out of the run's folder."""
_NUMBERS: tuple[RecordField, ...] = (R.step, R.rank, R.at_ns)
_SNAPSHOT_NUMBERS: tuple[RecordField, ...] = (
    R.at_ns,
    R.asked_bytes,
    R.held_bytes,
    R.reserved_bytes,
    R.unknown_bytes,
)
_LINE_LETTERS = 120
_LAST_STEP = 10**9
_MARKED: frozenset[RecordField] = frozenset({R.phase, R.step, R.role})
"""A mark says at least one of these."""


def _is_number(value: object) -> bool:
    """Whether a value is an integer that a trace can hold."""
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**61


def _mark_fields(mark: RecordEvent) -> StoredEvent:
    """The valid fields of a mark, each of the right type; the rest is dropped."""
    fields: StoredEvent = {key: mark[key] for key in _NUMBERS if _is_number(mark.get(key))}
    if abs(fields.get(R.step, 0)) > _LAST_STEP:
        del fields[R.step]
    if mark.get(R.phase) in PHASES:
        fields[R.phase] = mark[R.phase]
    if mark.get(R.edge) in ("start", "end"):
        fields[R.edge] = mark[R.edge]
    if isinstance(mark.get(R.role), str):
        fields[R.role] = clean(mark[R.role], 40)
    return fields


def _snapshot_fields(mark: Mapping[str, Any]) -> StoredEvent | None:
    """A snapshot of torch's allocator with what of it has the right form; None if it names no line."""
    frames = mark.get("frames")
    rows = [
        (clean(row["frame"], _LINE_LETTERS), row["bytes"])
        for row in (frames if isinstance(frames, list) else ())[:MOST_FRAMES]
        if isinstance(row, dict) and isinstance(row.get("frame"), str) and _is_number(row.get("bytes"))
    ]
    if not rows:
        return None
    given = cast(RecordEvent, mark)
    fields: StoredEvent = {key: given[key] for key in _SNAPSHOT_NUMBERS if _is_number(given.get(key))}
    if isinstance(mark.get("why"), str):
        fields[R.why] = clean(mark["why"], 40)
    return {**fields, R.lines: [line for line, _ in rows], R.sizes: [size for _, size in rows]}


@dataclass(slots=True)
class _File:
    """What is known of a file of marks."""

    offset: int = 0
    turn: int = 0
    """When it was read last."""


class MarkFiles:
    """The folders of marks that the run's processes name, and how far each file was read."""

    def __init__(self, target: Target) -> None:
        """Reads no folder yet."""
        self._target = target
        self._folders: dict[str, Collection[int]] = {}
        """Folder -> whose files in it are read."""
        self._files: dict[str, _File] = {}
        self._turn = 0

    def add(self, folder: str, owners: Collection[int] = ()) -> None:
        """Reads marks in a folder from now on."""
        if len(self._folders) < _MOST_FOLDERS and len(folder) < _MOST_LETTERS:
            self._folders.setdefault(folder, owners)

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Lines since the last call, each with the pid of who wrote it."""
        self._turn += 1
        found = [item for folder, owners in list(self._folders.items()) for item in self._grown(folder, owners)]
        found.sort(key=lambda item: self._files[item[0]].turn)
        left = _TICK_BYTES
        for path, pid, owners in found:
            if left <= 0:
                break
            data = self._fresh(path, owners)
            left -= max(len(data), _LEAST_BYTES)
            yield from ((pid, line) for line in data.splitlines())

    def _grown(self, folder: str, owners: Collection[int]) -> Iterator[tuple[str, int, Collection[int]]]:
        """The files of followed processes that hold more than was read: path, pid, owners."""
        for name in self._names(folder):
            stem = name.partition(".")[0]
            if not name.endswith(".jsonl") or not stem.isdecimal() or int(stem) not in self._target.ever:
                continue  # of an earlier run, or of a process that is still to come
            path = f"{folder}/{name}"
            if path not in self._files and len(self._files) >= _MOST_FILES:
                continue
            with contextlib.suppress(OSError):
                if os.stat(path).st_size > self._files.setdefault(path, _File()).offset:
                    yield path, int(stem), owners

    def _names(self, folder: str) -> list[str]:
        most = _MOST_NAMES // len(self._folders)
        try:
            names = names_in(folder, most + 1)
        except OSError:
            return []
        if len(names) <= most:
            return names
        return [f"{pid}.jsonl" for pid in self._target.processes]

    def _fresh(self, path: str, owners: Collection[int]) -> bytes:
        """Whole lines that a file holds behind what was read; a line that fills all is left out."""
        known = self._files[path]
        known.turn = self._turn
        try:
            with open_binary(path, follow=False, owners=owners) as file:
                file.seek(known.offset)
                data = file.read(_FILE_BYTES)
        except OSError:
            return b""
        end = data.rfind(b"\n") + 1
        known.offset += end or (len(data) if len(data) == _FILE_BYTES else 0)
        return data[:end]


class TrainerMarks:
    """What the lines say."""

    def __init__(self, target: Target, emit: Emit) -> None:
        """Nothing yet."""
        self._target, self._emit = target, emit
        self.probes: dict[int, dict[str, Any]] = {}
        """Pid -> the probe's last report."""
        self._room = _MOST_EVENTS
        self._is_flooded = False

    def take(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[RecordEvent]:
        """The marks of a tick, also those of a flood that are not stored.

        Args:
            lines: each with the pid of who wrote it.
        """
        self._room = min(self._room + _EVENTS_PER_TICK, _MOST_EVENTS)
        for pid, line in lines:
            yield from self._take(line, pid)

    def _take(self, line: bytes, pid: int) -> Iterator[RecordEvent]:
        try:
            mark = json.loads(line)
        except (ValueError, RecursionError):
            return
        if not isinstance(mark, dict):
            return
        given, process = cast(RecordEvent, mark), self._target.processes.get(pid)
        whose: StoredEvent = {R.pid: pid, R.uid: process.uid if process else None}
        if given.get(R.kind) == PROBE:
            self.probes[pid] = {
                key: value for key, value in mark.items() if key in TABLES["probe"] and _is_number(value)
            }
            self._take_role(process, given)
        elif given.get(R.kind) == SNAPSHOT:
            found = _snapshot_fields(mark)
            if found is not None:
                self._store(RECORD.process.snapshot, {**whose, **found})
        elif _MARKED & (fields := _mark_fields(given)).keys():
            self._take_role(process, fields)
            yield self._store(RECORD.note.mark, {R.basis: "trainer", **whose, **fields})

    def _take_role(self, process: Process | None, mark: RecordEvent) -> None:
        role = mark.get(R.role)
        if process is not None and isinstance(role, str) and (process.role, process.basis) != (role[:40], "probe"):
            process.role, process.basis = role[:40], "probe"
            fields: StoredEvent = {R.uid: process.uid, R.pid: process.pid, R.name: cut_line(process.name)}
            self._store(RECORD.process.named, {**fields, R.role: process.role, R.basis: "probe"})

    def _store(self, kind: Record, fields: StoredEvent) -> RecordEvent:
        """Stores an event while there is room; the first that finds none leaves a note."""
        if self._room > 0:
            self._room -= 1
            return self._emit(kind, fields)
        if not self._is_flooded:
            self._is_flooded = True
            why = say("came faster than they are kept; those beyond were left out")
            self._emit(RECORD.note.gap, said({R.what: say("marks of the trainer"), R.why: why}))
        return fields
