"""The memory cgroups that followed processes live in, with all above them: their figures, their kill counters."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from rlhfdoctor.record.columns import number
from rlhfdoctor.sources.cgroupfs import Level, find_chain, find_hierarchy, find_path, read_level
from rlhfdoctor.sources.kept import KeptFiles
from rlhfdoctor.trace.record import Emit
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE

_WHOLE_TICKS = 10
_KILL_ECHO_S = 5.0


@dataclass(slots=True)
class _Known:
    """A level that was seen."""

    uid: int
    own: bool
    """Whether followed processes live in it."""
    level: Level | None = None
    """As last read."""
    kill_count: int | None = None


class Levels:
    """All levels that are there; one whose cgroup was removed is forgotten, since a launcher may make one a task."""

    def __init__(self, emit: Emit, root: str, kept: KeptFiles) -> None:
        """Knows none yet. `root` is where /proc and /sys are looked for."""
        self._emit, self._root, self._kept = emit, root, kept
        self.hierarchy = find_hierarchy(root)
        self._known: dict[str, _Known] = {}
        """By folder."""
        self._next, self._ticks = 1, 0
        self._node_kill_count: int | None = None
        self._kill_reported_s = -1e9
        self._gone: list[int] = []

    def place(self, pid: int) -> None:
        """Takes the levels of the cgroup that a process is in now."""
        if self.hierarchy is None:
            return
        folder = find_path(self.hierarchy, self._root, pid)
        if folder is None or (folder in self._known and self._known[folder].own):
            return
        for level in find_chain(self.hierarchy, folder):
            if level == self.hierarchy.mount:
                continue  # the node itself
            known = self._known.get(level)
            if known is not None and (known.own or level != folder):
                continue
            if known is None:
                known = self._known[level] = _Known(self._next, level == folder)
                self._next += 1
            known.own = level == folder
            self._emit(
                RECORD.cgroup.seen,
                {
                    R.uid: known.uid,
                    R.path: level,
                    R.name: level.removeprefix(self.hierarchy.mount),
                    R.version: self.hierarchy.version,
                    R.own: known.own,
                },
            )

    @property
    def all(self) -> list[Level]:
        """What could be read at this tick."""
        return [known.level for known in self._known.values() if known.level is not None]

    def read(self) -> Any:
        """The rows of this tick, None without any level.

        Levels that processes live in or that have a limit are read at every tick, the others now and then.
        """
        self._ticks += 1
        if self.hierarchy is None or not self._known:
            return None
        keys: list[int] = []
        rows: list[list[int]] = []
        for folder, known in list(self._known.items()):
            level, whole = known.level, known.level is None or (self._ticks + known.uid) % _WHOLE_TICKS == 0
            if whole or known.own or (level is not None and level.max_bytes is not None):
                level = read_level(self.hierarchy, folder, None if whole else level, self._kept.read)
            assert level is not None
            known.level = level if level.current_bytes is not None or level.anon_bytes is not None else None
            if known.level is None:  # it is gone, or the root of v2
                if not os.path.exists(folder):
                    del self._known[folder]
                    self._gone.append(known.uid)
                continue
            keys.append(known.uid)
            rows.append([number(getattr(level, name)) for name in TABLES["cgroup"]])
        return keys, [list(column) for column in zip(*rows)] if rows else [[] for _ in TABLES["cgroup"]]

    def take_gone(self) -> list[int]:
        """Numbers of the levels that are gone since the last call."""
        gone, self._gone = self._gone, []
        return gone

    def emit_kills(self, node_count: int | None) -> None:
        """A kill counter that rose is an event, even if the kernel log cannot be read.

        v2's counters include the cgroups below and the node's includes all: a kill is reported once, at the
        deepest level that counted it.
        """
        risen: dict[str, int] = {}
        for folder, known in self._known.items():
            count = None if known.level is None else known.level.oom_kill_count
            if count is not None:
                _note(risen, folder, known.kill_count, count)
                known.kill_count = count
        if node_count is not None:
            _note(risen, NODE, self._node_kill_count, node_count)
            self._node_kill_count = node_count
        reported: list[str] = []
        for where in sorted(risen, key=lambda path: (path == NODE, -len(path))):
            if where == NODE and (reported or time.monotonic() - self._kill_reported_s < _KILL_ECHO_S):
                continue
            if any(path.startswith(where + "/") for path in reported):
                continue
            reported.append(where)
            self._kill_reported_s = time.monotonic()
            level = self._known[where].level if where != NODE else None
            self._emit(
                RECORD.note.oom_kill,
                {
                    R.level: where,
                    R.count: risen[where],
                    R.used_bytes: level.used_bytes if level else None,
                    R.max_bytes: level.max_bytes if level else None,
                },
            )


def _note(risen: dict[str, int], where: str, before: int | None, count: int) -> None:
    if before is not None and count > before:
        risen[where] = count - before
