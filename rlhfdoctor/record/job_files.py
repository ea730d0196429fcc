"""Files that followed processes name: their output, their marks, the logs of their Ray sessions.

All of it is read in a thread (aside.py): on a mount that hangs a look at a path may never come back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.record.limits import RayLimit, find_ray_limit
from rlhfdoctor.record.log_tailer import LogTailer
from rlhfdoctor.record.trainer_marks import MarkFiles
from rlhfdoctor.sources.owners import is_written, owners_of
from rlhfdoctor.sources.ray import SessionNames
from rlhfdoctor.types import Value
from rlhfdoctor.vocabulary.names import Field

_LOOK_TICKS = 5
_MOST_SESSIONS = 8
_END_BYTES = 1 << 30


class FilesRead(NamedTuple):
    """What one look found."""

    log_marks: list[tuple[Pattern, Mapping[Field, Value], str]]
    """Pattern, fields, file."""
    lines: list[tuple[int, bytes]]
    """Of marks: pid, line."""
    names: dict[int, str] | None
    """Pid -> Ray's name; None: not looked for this time."""
    ray_limit: RayLimit | None


class JobFiles:
    """Where they are, and how far each was read."""

    def __init__(self, folder: str, marks: MarkFiles) -> None:
        """`folder` of the run; copies of logs go below its `logs/`."""
        self._folder, self._marks = folder, marks
        self.tailer = LogTailer(f"{folder}/logs", from_end=os.path.exists(f"{folder}/000002.trace"))
        self._sessions: dict[str, SessionNames] = {}
        self._owners: dict[str, Collection[int]] = {}
        """Folder of logs -> whose files in it are read."""
        self._outputs: list[int] = []
        self._ray_limit: RayLimit | None = None

    def follow_output(self, pid: int) -> None:
        """The files that a process writes its standard output and error to; only regular ones, of its user."""
        self._outputs.append(pid)

    def add_session(self, session: str, owners: Collection[int]) -> None:
        """A Ray session of a followed raylet."""
        if session not in self._sessions and len(self._sessions) < _MOST_SESSIONS:
            logs = f"{session}/logs"
            self._sessions[session] = SessionNames(session, owners=owners)
            self._owners[logs] = owners
            self.tailer.add_session(logs, owners)

    def read(self, tick: int, *, is_last: bool = False) -> FilesRead:
        """What is new; what seldom changes is looked for in every fifth tick."""
        names = None
        if is_last or tick % _LOOK_TICKS == 1:
            for pid in self._outputs:
                self._find_output(pid)
            self.tailer.look()
            names = self._find_names()
            self._find_limit()
        log_marks = list(self.tailer.read(most_bytes=_END_BYTES) if is_last else self.tailer.read())
        return FilesRead(log_marks, list(self._marks.read()), names, self._ray_limit)

    def _find_output(self, pid: int) -> None:
        """Anew each time: a log that was renamed is written on under its other name."""
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
            if not path.startswith(f"{self._folder}/"):  # a recorder before us had a command
                self.tailer.add(path, f"{pid}.{name}.log", owners_of(pid), inode=info.st_ino)

    def _find_names(self) -> dict[int, str]:
        names: dict[int, str] = {}
        for session in list(self._sessions.values()):
            names |= session.read()
            for driver in session.drivers:
                if os.path.exists(f"/proc/{driver}"):
                    names.setdefault(driver, "main_task")
        return names

    def _find_limit(self) -> None:
        """What Ray's memory monitor logged at its start; looked for until found."""
        for logs, owners in list(self._owners.items()):
            self._ray_limit = self._ray_limit or find_ray_limit(logs, owners)
