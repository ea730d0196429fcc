"""What the run is doing: kernel log, log lines, marks that the trainer writes, Ray's names."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from rlhfdoctor.evidence.bars import LiveBars
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.files.write import append, make_folder
from rlhfdoctor.i18n.message import quoted, say, term
from rlhfdoctor.record.aside import Aside
from rlhfdoctor.record.job_files import FilesRead, JobFiles
from rlhfdoctor.record.limits import RayLimit
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.record.trainer_marks import MarkFiles, TrainerMarks
from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.sources.kmsg import KernelLog
from rlhfdoctor.sources.owners import owners_of
from rlhfdoctor.sources.procfs import has_host_pids, parse_cmdline, read_file
from rlhfdoctor.sources.ray import find_node
from rlhfdoctor.trace.record import Emit, RecordEvent, said
from rlhfdoctor.types import Gap, Value
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Field, Kind
from rlhfdoctor.vocabulary.recorder_events import KERNEL_LOG

_MARKS_FOLDER = re.compile(rb"(?:^|\0)RLHFDOCTOR_MARKS=([^\0]+)")
_KERNEL_BYTES = 4 << 20
_ENVIRONMENT_TRIES = 3
_HANG_S, _LAST_S = 10.0, 20.0
"""After which a look at files is said to hang, and for how long their last lines are waited for."""
_VICTIM = re.compile(r"\S+ (?:(?:Memory cgroup o|O)ut of memory[^:]{0,40}: )?Killed process (\d{1,10}) \(")
"""Behind the stamp: what a line quotes, such as a cgroup's path, names no victim."""


class Activity:
    """Sources of phases, steps, names and kills, other than counters."""

    def __init__(self, folder: str, target: Target, emit: Emit, kmsg: str = "/dev/kmsg") -> None:
        """`folder` of the run; copies of logs go below its `logs/`."""
        self._folder, self._target, self._emit, self._kmsg = folder, target, emit, kmsg
        self._mark_files = MarkFiles(target)
        self.files = JobFiles(folder, self._mark_files)
        self.aside: Aside[FilesRead] = Aside()
        self._is_hanging = False
        self.names: dict[int, str] = {}
        """Pid -> Ray's name."""
        self.ray_limit: RayLimit | None = None
        """What Ray's memory monitor logged at its start."""
        self._kernel: KernelLog | None = None
        self._kernel_bytes = 0
        self._host_pids = has_host_pids()
        self._notifier: Notifier | None = None
        self._marks = TrainerMarks(target, emit)
        self._unread: dict[int, int] = {}
        """Pid -> how often its environment was empty: between exec and its first instruction it has none."""
        self._last: tuple[str | None, int | None] = (None, None)
        self._bars = LiveBars()

    def start(self, notifier: Notifier) -> list[Gap]:
        """Opens the kernel log and follows the job's own output; what is unavailable becomes a gap."""
        self._notifier = notifier
        make_folder(f"{self._folder}/logs")
        for name in ("job.log", "job.out.log", "job.err.log"):
            self.files.tailer.add(f"{self._folder}/logs/{name}")
        self._mark_files.add(f"{self._folder}/marks")
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
            if node.session:
                self.files.add_session(node.session, owners_of(process.pid))

    def _read_environment(self, pid: int) -> None:
        """The marks folder that a process was started with; an empty environment is read again in the next ticks."""
        environment = read_file(f"/proc/{pid}/environ", 1 << 18)
        tries = self._unread.pop(pid, 0)
        if environment == b"" and tries < _ENVIRONMENT_TRIES:
            self._unread[pid] = tries + 1
        elif environment and (match := _MARKS_FOLDER.search(environment)):
            self._mark_files.add(match[1].decode("utf-8", "surrogateescape"), owners_of(pid))

    def read(self, tick: int) -> Iterator[RecordEvent]:
        """Marks since the last call, as the events that were stored."""
        self.read_kernel()
        for pid in list(self._unread):
            self._read_environment(pid)
        found = self.aside.run(partial(self.files.read, tick))
        if self.aside.waits_s > _HANG_S and not self._is_hanging:
            self._is_hanging = True
            why = say("their file system does not answer: no marks and no lines of logs, until it does")
            self._emit(RECORD.note.gap, said({R.what: say("logs and marks of the job"), R.why: why}))
        if found is not None:
            self._is_hanging = False
            yield from self._take(found)

    def _take(self, found: FilesRead) -> Iterator[RecordEvent]:
        if found.names is not None:
            self.names = found.names
        self.ray_limit = found.ray_limit
        for pattern, fields, path in found.log_marks:
            yield from self._log_mark(self._bars.read(pattern.kind, fields, path), fields, path)
        yield from self._marks.take(found.lines)

    @property
    def probes(self) -> Mapping[int, Mapping[str, Any]]:
        """Pid -> the probe's last report."""
        return self._marks.probes

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
            victim = _VICTIM.match(line)
            if victim is not None:
                pid = int(victim[1])
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

    def finish(self) -> None:
        """The last lines of everything, before the recording ends."""
        self.read_kernel()
        until = time.monotonic() + _LAST_S
        is_last = False
        while not is_last and time.monotonic() < until:
            is_last = not self.aside.waits_s
            found = self.aside.run(partial(self.files.read, 0, is_last=True), until - time.monotonic())
            if found is not None:
                for _ in self._take(found):
                    pass
        for text in sorted(self.files.tailer.failed):
            self._emit(RECORD.note.gap, said({R.what: say("log"), R.why: quoted(text)}))
