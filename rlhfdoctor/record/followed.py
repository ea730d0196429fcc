"""The followed processes over time: when each is read in full, what it is called, what it held at its end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlhfdoctor.privacy.secrets import cut_line
from rlhfdoctor.record.activity import Activity
from rlhfdoctor.record.event_log import EventLog
from rlhfdoctor.record.job import Job
from rlhfdoctor.record.machine import Machine
from rlhfdoctor.record.target import FORKED, Process, Target
from rlhfdoctor.trace.record import StoredEvent
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_DUE_EVERY_S = 10.0
"""Interval for reading CPU time and title of a process, and everything of an idle one."""
_STILL_EVERY_S = 30.0
"""The same of a process that stands still."""
_SETTLED_S = 60.0
"""From this age on a process has its title, its cgroup and its /dev/shm."""
_STIRRED_BYTES = 16 << 20
"""Of memory that came or went and that is not that of the processes that were read: the others are read, too."""
_TITLE_TICKS = 2
"""A Ray worker's title changes with every method that it runs."""
_YOUNG_TICKS = 5
"""A launcher moves its child into a cgroup soon after the start, or never."""
_MAPS_GROWTH_BYTES = 64 << 20


class Followed:
    """What is done with every process of the target at each tick."""

    def __init__(self, target: Target, machine: Machine, activity: Activity, job: Job, log: EventLog) -> None:
        """`job` reaps the children among the processes that end."""
        self._target, self._machine, self._activity, self._job, self._log = target, machine, activity, job, log
        self._tick = 0
        self._interval_s = 1.0
        self._due: list[Process] = []
        self._young: list[Process] = []
        self._held_bytes: int | None = None
        """Of the node, at the tick before."""
        log.list_processes = self._described

    def sweep(self, tick: int, interval_s: float, *, every: bool) -> list[Process]:
        """Takes new processes in and reads those that moved; the ones that are gone are returned.

        With `every` none is passed over, however long it has stood still.
        """
        self._tick, self._interval_s = tick, interval_s
        for process in self._target.discover():
            self._add(process)
        self._due.clear()
        return self._target.sweep(self._is_due, every=every)

    def sweep_rest(self, host: Mapping[str, int]) -> list[Process]:
        """Reads the others, too, if more of the node's memory came or went than the processes that were read explain.

        Args:
            host: meminfo of this tick, in bytes; without it they are read.
        """
        anon, shared = host.get("anon_bytes"), host.get("shmem_bytes")
        held = None if anon is None or shared is None else anon + shared
        before, self._held_bytes = self._held_bytes, held
        if held is not None and before is not None:
            if abs(held - before - self._target.moved_bytes) < _STIRRED_BYTES:
                return []
        return self._target.sweep_rest()

    def _is_due(self, process: Process) -> bool:
        """Every process in full once in some seconds, each in a tick of its own."""
        if self._tick < process.due:
            return False
        every_s = _STILL_EVERY_S if process.is_still and self._is_settled(process) else _DUE_EVERY_S
        every = max(1, round(every_s / self._interval_s))
        process.due = self._tick + every - (process.due == 0) * (process.uid % every)
        self._due.append(process)
        return True

    def _add(self, process: Process) -> None:
        seen = self._log.emit(RECORD.process.seen, {**_origin_of(process), **_name_of(process)})
        process.seen_ns = seen[R.wall_ns], seen[R.mono_ns]
        process.first_tick = self._tick
        self._young.append(process)
        self._machine.add_process(process)
        self._activity.add_process(process)

    def _described(self) -> Iterator[StoredEvent]:
        """What was stored when each process was first seen, with its name of now."""
        for process in self._target.processes.values():
            if process.seen_ns is not None:
                wall_ns, mono_ns = process.seen_ns
                seen: StoredEvent = {R.kind: RECORD.process.seen, R.wall_ns: wall_ns, R.mono_ns: mono_ns}
                yield {**seen, **_origin_of(process), **_name_of(process)}

    def drop(self, process: Process) -> None:
        """The last sample of a process that is gone, stored before the next tick may lose it."""
        fields: StoredEvent = {
            R.uid: process.uid,
            R.pid: process.pid,
            R.name: cut_line(process.name),
            R.role: process.role,
        }
        s = process.status
        if s is not None:
            fields |= {
                R.rss_anon_bytes: s.rss_anon_bytes,
                R.rss_file_bytes: s.rss_file_bytes,
                R.rss_shmem_bytes: s.rss_shmem_bytes,
                R.peak_bytes: s.peak_bytes,
                R.state: s.state,
            }
        self._target.drop(process)
        self._job.reap()
        self._log.emit(RECORD.process.gone, fields)

    def look_closer(self) -> None:
        """Names that may have changed, cgroups of new processes, bytes read and written, one process's mappings."""
        grown = self._most_grown()
        for process in self._target.processes.values():
            if process.command.startswith("ray::") and (self._tick + process.uid) % _TITLE_TICKS == 0:
                self._rename(process)
        for process in (*self._young, *(p for p in self._due if not self._is_settled(p))):
            self._machine.place(process)
        if self._tick % 3 == 0:
            self._young = [p for p in self._young if self._is_young(p)]
        for process in self._young:
            if process.basis == FORKED and process.pid in self._target.processes:
                self._rename(process)  # torch names a loader's process a moment after the fork
        for process in self._due:
            self._rename(process)
            io = process.reader.io()
            if io is not None:
                process.slow = (*process.slow[:2], *io)
        if grown is not None and grown.status is not None:
            grown.mappings = grown.reader.maps() or grown.mappings
            grown.mapped_at_bytes = grown.status.rss_shmem_bytes or 0

    def _is_settled(self, process: Process) -> bool:
        return (self._tick - process.first_tick) * self._interval_s >= _SETTLED_S

    def _is_young(self, process: Process) -> bool:
        return self._tick - process.first_tick < _YOUNG_TICKS and process.pid in self._target.processes

    def _most_grown(self) -> Process | None:
        """The process whose RssShmem grew most since its mappings were read, if it grew enough."""
        grown, most = None, 0
        for process in self._target.processes.values():
            if process.row or process.status is None:
                continue  # it did not move
            growth = (process.status.rss_shmem_bytes or 0) - process.mapped_at_bytes
            if growth > most and growth > (_MAPS_GROWTH_BYTES if process.mappings else _MAPS_GROWTH_BYTES // 4):
                grown, most = process, growth
        return grown

    def _rename(self, process: Process) -> None:
        command = process.reader.cmdline()
        if command and command != process.command:
            process.command = command
            self._machine.title(process)
        if self._target.name(process, self._activity.names.get(process.pid)):
            self._log.emit(RECORD.process.named, _name_of(process))


def _origin_of(process: Process) -> StoredEvent:
    return {R.start_ticks: process.start_ticks, R.ppid: process.ppid}


def _name_of(process: Process) -> StoredEvent:
    return {
        R.uid: process.uid,
        R.pid: process.pid,
        R.name: cut_line(process.name),
        R.role: process.role,
        R.basis: cut_line(process.basis),
        R.command: cut_line(process.command),
    }
