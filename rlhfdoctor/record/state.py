"""A watcher's state of a run: the newest figures of the trace, a short history for display."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhfdoctor.record.limits import is_coming
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import RecordEvent, StoredEvent, is_a
from rlhfdoctor.trace.schema import NULL, TABLES, scale_of
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE, LimitName, limit_of
from rlhfdoctor.vocabulary.names import Record

_HISTORY = 48
_EVENTS = 60
_SLOPE_S, _SLOPE_LEAST_S = 60.0, 10.0
_YOUNG_S = 30.0
_LARGEST = 32
"""Processes whose growth is shown."""
_SHOWN: frozenset[Record] = frozenset(
    {
        RECORD.note.alarm,
        RECORD.note.oom_kill,
        RECORD.kernel.line,
        RECORD.kernel.other,
        RECORD.cgroup.oom,
        RECORD.job.exited,
        RECORD.process.exited,
        RECORD.process.snapshot,
        RECORD.note.gap,
        RECORD.store.recovered,
        RECORD.store.dropped,
        RECORD.recorder.end,
        RECORD.ray.node,
        RECORD.node.lost,
        RECORD.node.back,
        RECORD.metrics.serving,
    }
)


@dataclass(slots=True)
class Limit:
    """A limit as the newest sample shows it."""

    name: LimitName
    level: str
    limit_bytes: int
    used_bytes: int = 0
    left_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    slope_bytes_per_s: float = 0.0
    rise_bytes: float = 0.0
    """From one step to the next, if `steps_count`."""
    steps_count: int = 0
    """The forecast rests on so many steps; 0: on spans of time."""
    seen_s: float = 0.0
    hangs_s: float = 0.0
    """For how long the run has been hanging at it."""

    @property
    def full_ratio(self) -> float:
        """0 to 1."""
        return self.used_bytes / self.limit_bytes if self.limit_bytes else 0.0


@dataclass(slots=True)
class Role:
    """All processes of one role together."""

    name: str
    count: int = 0
    anon_bytes: int = 0
    shmem_bytes: int = 0
    """Of the process with most: shared pages are in several."""
    history: deque[tuple[float, int]] = field(default_factory=lambda: deque(maxlen=_HISTORY))


@dataclass(frozen=True, slots=True)
class Held:
    """A process and what it holds."""

    uid: int
    pid: int | None
    command: str
    held_bytes: int
    """Anonymous and shared memory."""


@dataclass(slots=True)
class State:
    """Takes samples and events as a Follower gives them."""

    processes: dict[int, StoredEvent] = field(default_factory=dict)
    """uid -> identity of those that live."""
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)
    roles: dict[str, Role] = field(default_factory=dict)
    limits: dict[int, Limit] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    gpus: list[dict[str, Any]] = field(default_factory=list)
    mappings: dict[int, dict[str, Any]] = field(default_factory=dict)
    recorder: dict[str, Any] = field(default_factory=dict)
    cost_ratio: float = 0.0
    events: deque[RecordEvent] = field(default_factory=lambda: deque(maxlen=_EVENTS))
    phase: str | None = None
    step: int | None = None
    first_s: float | None = None
    """Wall clock of the first sample."""
    last_s: float | None = None
    last_mono_s: float = 0.0
    job_pid: int | None = None
    exit_code: int | None = None
    ended: str | None = None
    why: str = ""
    killed_count: int = 0
    alarm_count: int = 0
    """Alarms that fired."""
    _present: frozenset[int] = frozenset()
    """Numbers of the limits in the newest sample."""
    _grown: dict[int, deque[tuple[float, int]]] = field(default_factory=dict)
    """uid of the largest processes -> their last points."""
    _cost: tuple[float, int] | None = None
    _history_s: float = 0.0

    def take(self, item: Sample | RecordEvent, columns: Mapping[str, Sequence[str]]) -> None:
        """One more sample or event."""
        if isinstance(item, Sample):
            self._sample(item, columns)
        else:
            self._event(item)

    def _event(self, event: RecordEvent) -> None:
        if is_a(event, RECORD.process.seen, RECORD.process.named):
            self.processes.setdefault(event[R.uid], {}).update(event)
        elif is_a(event, RECORD.process.gone):
            uid = event.get(R.uid, 0)
            self.processes.pop(uid, None)
            self.rows.pop(uid, None)
            if (event.get(R.rss_anon_bytes) or 0) > 256 << 20:
                self.events.append(event)
        elif is_a(event, RECORD.limit.seen):
            name = limit_of(event.get(R.name))
            if name is not None:
                self.limits[event[R.uid]] = Limit(name, event.get(R.level) or "", event.get(R.limit_bytes) or 0)
        elif is_a(event, RECORD.note.mark) and event.get(R.edge) != "end":
            self.phase = event.get(R.phase) or self.phase
            self.step = event[R.step] if event.get(R.step) is not None else self.step
        elif is_a(event, RECORD.note.oom_kill) and event.get(R.level) != NODE:  # that counter counts other jobs too
            self.killed_count += int(event.get(R.count) or 1)
        else:
            self._job_event(event)
        if is_a(event, RECORD.note.alarm) and not event.get(R.again):
            self.alarm_count += 1
        if is_a(event, *_SHOWN) and not event.get(R.again):
            self.events.append(event)

    def _job_event(self, event: RecordEvent) -> None:
        """Start and end of the command, or of the recorder."""
        if is_a(event, RECORD.job.started):
            self.job_pid = event.get(R.pid)
        elif is_a(event, RECORD.job.exited):
            self.exit_code = int(event.get(R.code) or 0)
            self.why = str(event.get(R.why) or "")
        elif is_a(event, RECORD.recorder.start):
            self.ended = None
        elif is_a(event, RECORD.recorder.end):
            self.ended = str(event.get(R.why))

    def _sample(self, sample: Sample, columns: Mapping[str, Sequence[str]]) -> None:
        self.last_s, self.last_mono_s = sample.wall_ns / 1e9, sample.mono_ns / 1e9
        if self.first_s is None:
            self.first_s = self.last_s

        def rows(table: str) -> dict[int, dict[str, Any]]:
            if table not in sample.tables:
                return {}
            keys, values = sample.tables[table]
            names = columns[table]
            scales = [scale_of(name) for name in names]
            unknown = dict.fromkeys(column for column in TABLES.get(table, ()) if column not in names)  # an older trace
            return {
                key: unknown
                | {n: None if v == NULL else v if scale == 1 else v / scale for n, v, scale in zip(names, row, scales)}
                for key, row in zip(keys, zip(*values))
            }

        self.rows = rows("process")
        self.mappings = rows("mapping")
        self.host = rows("host").get(0, {})
        self.gpus = list(rows("gpu").values())
        self.recorder = rows("recorder").get(0, {})
        limits = rows("limit")
        self._present = frozenset(limits)
        for uid, row in limits.items():
            limit = self.limits.get(uid)
            if limit is not None:
                limit.used_bytes, limit.limit_bytes = row["used_bytes"] or 0, row["limit_bytes"] or limit.limit_bytes
                limit.left_s, limit.low_s, limit.high_s = row["left_s"], row["left_low_s"], row["left_high_s"]
                limit.slope_bytes_per_s = row["slope_bytes_per_s"] or 0
                limit.rise_bytes, limit.steps_count = row.get("rise_bytes") or 0, row.get("steps_count") or 0
                limit.seen_s, limit.hangs_s = row.get("seen_s") or 0, row.get("hangs_s") or 0
        self._cost_of(self.recorder.get("cpu_us"))
        self._count_roles()

    def _cost_of(self, cpu_us: int | None) -> None:
        if cpu_us is None:
            return
        if self._cost is not None and self.last_mono_s - self._cost[0] >= 10:
            self.cost_ratio = max(0.0, (cpu_us - self._cost[1]) / 1e6 / (self.last_mono_s - self._cost[0]))
            self._cost = (self.last_mono_s, cpu_us)
        elif self._cost is None:
            self._cost = (self.last_mono_s, cpu_us)

    def _count_roles(self) -> None:
        for role in self.roles.values():
            role.count = role.anon_bytes = role.shmem_bytes = 0
        for uid, row in self.rows.items():
            name = self.processes.get(uid, {}).get(R.role) or "other"
            own = self.roles.setdefault(name, Role(name))
            own.count += 1
            own.anon_bytes += row["rss_anon_bytes"] or 0
            own.shmem_bytes = max(own.shmem_bytes, row["rss_shmem_bytes"] or 0)
        span = max(1.0, ((self.last_s or 0) - (self.first_s or 0)) / _HISTORY)
        if self.last_mono_s - self._history_s >= min(span, 30.0):
            self._history_s = self.last_mono_s
            for role in self.roles.values():
                role.history.append((self.last_mono_s, role.anon_bytes + role.shmem_bytes))
            largest = self.by_held()[:_LARGEST]
            self._grown = {p.uid: self._grown.get(p.uid, deque(maxlen=_HISTORY)) for p in largest}
            for process in largest:
                self._grown[process.uid].append((self.last_mono_s, process.held_bytes))

    def present(self) -> dict[int, Limit]:
        """The limits of the newest sample by number; a cgroup may have vanished since, Ray may have stopped."""
        return {uid: limit for uid, limit in self.limits.items() if uid in self._present}

    @property
    def binding(self) -> Limit | None:
        """The limit that will be reached first, else the fullest."""
        coming = [x for x in self.limits.values() if x.limit_bytes and is_coming(x.left_s, x.full_ratio)]
        if coming:
            return min(coming, key=lambda limit: limit.left_s or 0.0)
        return max(self.limits.values(), key=lambda limit: limit.full_ratio, default=None)

    def by_size(self) -> list[Role]:
        """Roles that have processes, the one that holds most first."""
        there = (role for role in self.roles.values() if role.count)
        return sorted(there, key=lambda role: -(role.anon_bytes + role.shmem_bytes))

    @property
    def is_over(self) -> bool:
        """Whether the command, or the recording, has ended."""
        return self.ended is not None or self.exit_code is not None

    @property
    def is_young(self) -> bool:
        """Whether it is too early for any forecast."""
        return (self.last_s or 0) - (self.first_s or 0) < _YOUNG_S

    def by_held(self) -> list[Held]:
        """The processes that live, the one that holds most first."""
        held = []
        for uid, row in self.rows.items():
            known = self.processes.get(uid, {})
            size = (row["rss_anon_bytes"] or 0) + (row["rss_shmem_bytes"] or 0)
            held.append(Held(uid, known.get(R.pid), str(known.get(R.command) or known.get(R.name) or ""), size))
        return sorted(held, key=lambda process: -process.held_bytes)

    @property
    def age_s(self) -> float:
        """Seconds since the last sample was taken."""
        return 0.0 if self.last_s is None else max(0.0, time.time() - self.last_s)

    def slope(self, role: Role) -> float | None:
        """Bytes per second over the history of a role; None before there is any."""
        return _slope(role.history)

    def slope_of(self, process: Held) -> float | None:
        """The same of one of the largest processes."""
        return _slope(self._grown.get(process.uid, ()))


def _slope(history: Collection[tuple[float, int]]) -> float | None:
    points = list(history)
    recent = [point for point in points if point[0] >= points[-1][0] - _SLOPE_S]
    if len(recent) < 3 or recent[-1][0] - recent[0][0] < _SLOPE_LEAST_S:
        return None
    (t0, v0), (t1, v1) = recent[0], recent[-1]
    return (v1 - v0) / (t1 - t0) if t1 > t0 else None
