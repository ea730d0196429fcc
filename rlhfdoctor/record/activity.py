"""What the run is doing: kernel log, log lines, marks that the trainer writes, the probe, Ray's names."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping
from typing import Any, cast

from rlhfdoctor.evidence.bars import LiveBars
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.files.read import open_binary
from rlhfdoctor.files.write import append, make_folder
from rlhfdoctor.i18n.message import quoted, say, term
from rlhfdoctor.marks import PROBE, SNAPSHOT
from rlhfdoctor.privacy.secrets import cut_line
from rlhfdoctor.record.log_tailer import LogTailer
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.snapshot import MOST_FRAMES
from rlhfdoctor.sources.kmsg import KernelLog
from rlhfdoctor.sources.owners import is_written, owners_of
from rlhfdoctor.sources.procfs import has_host_pids, parse_cmdline, read_file
from rlhfdoctor.sources.ray import SessionNames, find_node
from rlhfdoctor.trace.record import Emit, RecordEvent, StoredEvent, said
from rlhfdoctor.types import Gap, Value
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Field, Kind, RecordField
from rlhfdoctor.vocabulary.recorder_events import KERNEL_LOG
from rlhfdoctor.vocabulary.run import PHASES

_MARKS_FOLDER = re.compile(rb"(?:^|\0)RLHFDOCTOR_MARKS=([^\0]+)")
_KERNEL_BYTES = 4 << 20
_MARKS_BYTES = 1 << 18
_ENVIRONMENT_TRIES = 3
_MOST_SESSIONS = 8
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
_VICTIM = re.compile(r"Killed process (\d+)|oom-kill:.*,pid=(\d+)")


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


class Activity:
    """Sources of phases, steps, names and kills, other than counters."""

    def __init__(self, folder: str, target: Target, emit: Emit, kmsg: str = "/dev/kmsg") -> None:
        """`folder` of the run; copies of logs go below its `logs/`."""
        self._folder, self._target, self._emit, self._kmsg = folder, target, emit, kmsg
        self.tailer = LogTailer(f"{folder}/logs", from_end=os.path.exists(f"{folder}/000002.trace"))
        self.names: dict[int, str] = {}
        """Pid -> Ray's name."""
        self.probes: dict[int, dict[str, Any]] = {}
        """Pid -> the probe's last report."""
        self._sessions: dict[str, SessionNames] = {}
        self._owners: dict[str, Collection[int]] = {}
        """Folder of logs or marks -> whose files in it are read."""
        self._kernel: KernelLog | None = None
        self._kernel_bytes = 0
        self._host_pids = has_host_pids()
        self._notifier: Notifier | None = None
        self._marks: dict[str, int] = {}
        self._folders: set[str] = set()
        self._unread: dict[int, int] = {}
        """Pid -> how often its environment was empty: between exec and its first instruction it has none."""
        self._last: tuple[str | None, int | None] = (None, None)
        self._bars = LiveBars()

    def start(self, notifier: Notifier) -> list[Gap]:
        """Opens the kernel log and follows the job's own output; what is unavailable becomes a gap."""
        self._notifier = notifier
        make_folder(f"{self._folder}/logs")
        for name in ("job.log", "job.out.log", "job.err.log"):
            self.tailer.add(f"{self._folder}/logs/{name}")
        self._folders.add(f"{self._folder}/marks")
        try:
            self._kernel = KernelLog(self._kmsg)
        except OSError as error:
            return [
                Gap(
                    what=term(KERNEL_LOG),
                    why=say("{strerror}: kills are known by the kernel's counters only", strerror=error.strerror),
                )
            ]
        notifier.add(self._kernel.fd, "kmsg")
        return []

    def follow_output(self, pid: int) -> None:
        """Follows the files that a process writes its standard output and error to; only regular ones, of its user."""
        before = set()
        for number, name in ((1, "out"), (2, "err")):
            link = f"/proc/{pid}/fd/{number}"
            try:
                path, info = os.readlink(link), os.stat(link)
                if not stat.S_ISREG(info.st_mode) or not os.path.samestat(info, os.lstat(path)):
                    continue  # a terminal, a pipe; deleted, or in another mount namespace
                if not is_written(pid, number):
                    continue  # O_PATH needs no right to the file at all
            except OSError:
                continue
            if path not in before and not path.startswith(f"{self._folder}/"):  # a recorder before us had a command
                before.add(path)
                self.tailer.add(path, f"{pid}.{name}.log", owners_of(pid))

    def add_process(self, process: Process) -> None:
        """A new process: its marks folder, and its Ray session if it is a raylet."""
        self._read_environment(process.pid)
        if not process.command.split(" ", 1)[0].endswith("/raylet"):
            return
        command = parse_cmdline(
            read_file(f"/proc/{process.pid}/cmdline") or b"", 1 << 20
        )  # some 10 kB: flags with whole commands
        node = find_node(process.pid, command)
        if node is not None:
            self._emit(
                RECORD.ray.node,
                {R.pid: node.pid, R.session: node.session, R.address: node.address, R.store_bytes: node.store_bytes},
            )
            if node.session and node.session not in self._sessions and len(self._sessions) < _MOST_SESSIONS:
                owners, logs = owners_of(process.pid), f"{node.session}/logs"
                self._sessions[node.session] = SessionNames(node.session, owners=owners)
                self._owners[logs] = owners
                self.tailer.add_session(logs, owners)

    def _read_environment(self, pid: int) -> None:
        """The marks folder that a process was started with; an empty environment is read again in the next ticks."""
        environment = read_file(f"/proc/{pid}/environ", 1 << 18)
        tries = self._unread.pop(pid, 0)
        if environment == b"" and tries < _ENVIRONMENT_TRIES:
            self._unread[pid] = tries + 1
        elif environment and (match := _MARKS_FOLDER.search(environment)):
            folder = match[1].decode("utf-8", "surrogateescape")
            self._owners.setdefault(folder, owners_of(pid))
            self._folders.add(folder)

    def read(self, tick: int) -> Iterator[RecordEvent]:
        """Marks since the last call, as the events that were stored."""
        self.read_kernel()
        for pid in list(self._unread):
            self._read_environment(pid)
        if tick % 5 == 1:
            self.tailer.look()
            self.names = {}
            for session in self._sessions.values():
                self.names |= session.read()
                for driver in session.drivers:
                    if os.path.exists(f"/proc/{driver}"):
                        self.names.setdefault(driver, "main_task")
        for pattern, fields, path in self.tailer.read():
            yield from self._log_mark(self._bars.read(pattern.kind, fields, path), fields, path)
        yield from self._trainer_marks()

    @property
    def sessions(self) -> list[tuple[str, Collection[int]]]:
        """Log folders of the Ray sessions that were seen, and whose files are read there."""
        return [(logs, self._owners[logs]) for logs in (f"{session}/logs" for session in self._sessions)]

    def read_kernel(self) -> None:
        """New lines of the kernel log go to logs/kernel.log; a kill is an event at once."""
        if self._kernel is None:
            return
        lines = self._kernel.read()
        if not lines:
            return
        data = ("\n".join(lines) + "\n").encode("utf-8", "replace")
        if self._kernel_bytes < _KERNEL_BYTES:
            with (
                contextlib.suppress(OSError),
                os.fdopen(append(f"{self._folder}/logs/kernel.log", real=True), "ab", 0) as file,
            ):
                file.write(data)
                self._kernel_bytes += len(data)
        for line in lines:
            victim = _VICTIM.search(line)
            if victim is not None:
                pid = int(victim[1] or victim[2])
                if victim[2]:
                    continue  # the verdict's own line follows with the sizes
                ours = not self._host_pids or pid in self._target.ever
                self._emit(RECORD.kernel.line if ours else RECORD.kernel.other, {R.text: line[:1000], R.pid: pid})

    def _log_mark(self, kind: Kind, fields: Mapping[Field, Value], path: str) -> Iterator[RecordEvent]:
        """A framework's own line; only changes of phase or step are stored."""
        found = fields.get(FIELD.step)
        step = found if isinstance(found, int) else None
        phase = MARKS.get(kind)
        if kind in (EVENT.phase.step, EVENT.phase.episode) and step is not None and step != self._last[1]:
            self._last = (self._last[0], step)
            yield self._emit(RECORD.note.mark, {R.step: step, R.basis: "log line", R.file: os.path.basename(path)})
        elif phase is not None and phase != self._last[0]:
            self._last = (phase, self._last[1])
            yield self._emit(RECORD.note.mark, {R.phase: phase, R.basis: "log line", R.file: os.path.basename(path)})

    def _trainer_marks(self) -> Iterator[RecordEvent]:
        """Lines that `rlhfdoctor.marks` and the probe wrote, of followed processes only."""
        for folder in self._folders:
            try:
                names = os.listdir(folder)
            except OSError:
                continue
            for name in names:
                stem = name.partition(".")[0]
                if not name.endswith(".jsonl") or not stem.isdecimal():
                    continue
                yield from self._marks_of(f"{folder}/{name}", int(stem), self._owners.get(folder, ()))

    def _marks_of(self, path: str, pid: int, owners: Collection[int]) -> Iterator[RecordEvent]:
        if pid not in self._target.ever:
            return  # of an earlier run, or of a process that is still to come
        offset = self._marks.get(path, 0)
        try:
            if os.stat(path).st_size <= offset:
                return
            with open_binary(path, follow=False, owners=owners) as file:
                file.seek(offset)
                data = file.read(_MARKS_BYTES)
        except OSError:
            return
        end = data.rfind(b"\n") + 1
        self._marks[path] = offset + (end or (len(data) if len(data) == _MARKS_BYTES else 0))
        process = self._target.processes.get(pid)
        for line in data[:end].splitlines():
            try:
                mark = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if not isinstance(mark, dict):
                continue
            given = cast(RecordEvent, mark)
            if given.get(R.kind) == PROBE:
                self.probes[pid] = {key: value for key, value in mark.items() if _is_number(value)}
                self._take_role(process, given)
                continue
            if given.get(R.kind) == SNAPSHOT:
                found = _snapshot_fields(mark)
                if found is not None:
                    self._emit(RECORD.process.snapshot, {R.pid: pid, R.uid: process.uid if process else None, **found})
                continue
            fields = _mark_fields(given)
            if _MARKED & fields.keys():
                self._take_role(process, fields)
                yield self._emit(
                    RECORD.note.mark,
                    {R.basis: "trainer", R.pid: pid, R.uid: process.uid if process else None, **fields},
                )

    def _take_role(self, process: Process | None, mark: RecordEvent) -> None:
        role = mark.get(R.role)
        if process is not None and isinstance(role, str) and (process.role, process.basis) != (role[:40], "probe"):
            process.role, process.basis = role[:40], "probe"
            fields: StoredEvent = {R.uid: process.uid, R.pid: process.pid, R.name: cut_line(process.name)}
            self._emit(RECORD.process.named, {**fields, R.role: process.role, R.basis: "probe"})

    def finish(self) -> None:
        """The last lines of everything, before the recording ends."""
        self.read_kernel()
        self.tailer.look()
        for pattern, fields, path in self.tailer.read():
            for _ in self._log_mark(pattern.kind, fields, path):
                pass
        for _ in self._trainer_marks():
            pass
        for text in sorted(self.tailer.failed):
            self._emit(RECORD.note.gap, said({R.what: say("log"), R.why: quoted(text)}))
