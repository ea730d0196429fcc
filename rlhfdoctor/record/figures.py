"""The figures of a recording at one moment, for whatever shows curves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rlhfdoctor.curves import Figure, Measure
from rlhfdoctor.privacy.controls import encodable
from rlhfdoctor.record.state import Limit, State
from rlhfdoctor.trace.frames import Rows, Sample
from rlhfdoctor.trace.record import RecordEvent
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.run import OTHER, PHASES

_LIMIT = ("limit", "level")
USED = Measure("limit_used_bytes", "Memory in use below a limit that cannot be reclaimed.", _LIMIT)
SIZE = Measure("limit_bytes", "The limit.", _LIMIT)
LEFT = Measure("limit_left_seconds", "Forecast time until the limit is reached.", _LIMIT, worst_is_least=True)
LOW = Measure("limit_left_low_seconds", "Lower bound of the forecast.", _LIMIT, worst_is_least=True)
HIGH = Measure("limit_left_high_seconds", "Upper bound of the forecast.", _LIMIT, worst_is_least=True)
GROWTH = Measure("limit_growth_bytes_per_second", "Growth on which the forecast rests.", _LIMIT)
HANG = Measure("limit_hang_seconds", "For how long the run has been hanging at the limit.", _LIMIT)
ALARM = Measure("limit_alarm", "Whether an alarm stands for the limit (1) or not (0).", _LIMIT)
ALARM_COUNT = Measure("alarms", "Standing alarms.")
FIRED = Measure("alarms_fired", "Alarms since the recording began.", counts=True)
KILLS = Measure("oom_kills", "Processes of the run that the kernel's OOM killer ended.", counts=True)
RSS = Measure("role_rss_bytes", "RSS by role; shared pages count in each.", ("role",))
ANON = Measure("role_anon_bytes", "Anonymous memory by role.", ("role",))
SHMEM = Measure("role_shmem_bytes", "Shared memory of the role's process that has most mapped.", ("role",))
PINNED = Measure("role_pinned_bytes", "Memory locked (mlock) or pinned by drivers, by role.", ("role",))
PROCESSES = Measure("role_processes", "Processes by role.", ("role",))
SHM_UNLINKED = Measure("shm_unlinked_bytes", "Part of /dev/shm without a name.")
SHM_ORPHANED = Measure("shm_orphaned_bytes", "Part of /dev/shm that no process has open.")
STALL = Measure("memory_stall_seconds", "Time in which some task waited for memory (PSI).", counts=True)
GPU_USED = Measure("gpu_used_bytes", "GPU memory in use.", ("gpu",))
GPU_SIZE = Measure("gpu_bytes", "Memory of the GPU.", ("gpu",))
GPU_BUSY = Measure("gpu_busy_ratio", "Part of the time in which the GPU was busy, 0 to 1.", ("gpu",))
STEP = Measure("step", "Step that the run is in.")
PHASE = Measure("phase", "Phase that the run is in (1), or not (0).", ("phase",))
OWN_CPU = Measure("recorder_cpu_seconds", "CPU time of the recorder itself.", counts=True)
OWN_RSS = Measure("recorder_rss_bytes", "RSS of the recorder itself.")
SAMPLED = Measure("sample_timestamp_seconds", "When the newest sample was taken, Unix time.")


def figures_of(state: State) -> Iterator[Figure]:
    """All that is known at the newest sample of a state; what is unknown is left out."""
    if state.last_s is None:
        return
    for limit in state.present().values():
        yield from _of_limit(limit)
    yield Figure(FIRED, (), state.alarm_count)
    yield Figure(KILLS, (), state.killed_count)
    yield from _of_roles(state)
    yield from _of_host(state.host)
    for number, gpu in enumerate(state.gpus):
        yield from _known((str(number),), gpu, ((GPU_USED, "used_bytes"), (GPU_SIZE, "total_bytes")))
        yield from _known((str(number),), gpu, ((GPU_BUSY, "busy_ratio"),))
    if state.step is not None:
        yield Figure(STEP, (), state.step)
    if state.phase is not None:
        yield from (Figure(PHASE, (phase,), float(phase == state.phase)) for phase in PHASES)
    yield from _known((), state.recorder, ((OWN_RSS, "rss_bytes"),))
    if state.recorder.get("cpu_us") is not None:
        yield Figure(OWN_CPU, (), state.recorder["cpu_us"] / 1e6)


def _of_limit(limit: Limit) -> Iterator[Figure]:
    labels = (limit.name, label(limit.level))
    yield Figure(USED, labels, limit.used_bytes)
    yield Figure(SIZE, labels, limit.limit_bytes)
    for measure, value in ((LEFT, limit.left_s), (LOW, limit.low_s), (HIGH, limit.high_s)):
        if value is not None:
            yield Figure(measure, labels, round(value, 1))
    if limit.left_s is not None:
        yield Figure(GROWTH, labels, limit.slope_bytes_per_s)
    yield Figure(HANG, labels, limit.hangs_s)


def _of_roles(state: State) -> Iterator[Figure]:
    rss: dict[str, int] = {}
    pinned: dict[str, int] = {}
    for uid, row in state.rows.items():
        name = state.processes.get(uid, {}).get(R.role) or OTHER
        size = sum(row[column] or 0 for column in ("rss_anon_bytes", "rss_file_bytes", "rss_shmem_bytes"))
        rss[name] = rss.get(name, 0) + size
        pinned[name] = pinned.get(name, 0) + (row["locked_bytes"] or 0) + (row["pinned_bytes"] or 0)
    for name in sorted(rss):
        labels, role = (label(name),), state.roles[name]
        yield Figure(RSS, labels, rss[name])
        yield Figure(ANON, labels, role.anon_bytes)
        yield Figure(SHMEM, labels, role.shmem_bytes)
        yield Figure(PINNED, labels, pinned[name])
        yield Figure(PROCESSES, labels, role.count)


def _of_host(host: Mapping[str, Any]) -> Iterator[Figure]:
    yield from _known((), host, ((SHM_UNLINKED, "shm_unlinked_bytes"), (SHM_ORPHANED, "shm_orphaned_bytes")))
    if host.get("some_us") is not None:
        yield Figure(STALL, (), host["some_us"] / 1e6)


def _known(labels: tuple[str, ...], row: Mapping[str, Any], columns: Iterable[tuple[Measure, str]]) -> Iterator[Figure]:
    for measure, column in columns:
        if row.get(column) is not None:
            yield Figure(measure, labels, row[column])


def label(name: object) -> str:
    """A label that UTF-8 can hold: a cgroup's path may have any bytes."""
    return encodable(str(name))


class Latest:
    """The newest figures of a recording that goes on, taken by its loop, asked for by other threads."""

    def __init__(self) -> None:
        self._state, self._lock = State(), threading.Lock()
        self._alarms: frozenset[int] = frozenset()
        self._sequence = 0

    def take_event(self, event: RecordEvent) -> None:
        """An event as it is stored."""
        with self._lock:
            self._state.take(event, TABLES)

    def take_sample(self, tables: dict[str, Rows], alarms: Iterable[int]) -> None:
        """A tick's tables, and the numbers of the limits for which an alarm stands."""
        self._sequence += 1
        sample = Sample(self._sequence, time.time_ns(), time.monotonic_ns(), tables)
        with self._lock:
            self._state.take(sample, TABLES)
            self._alarms = frozenset(alarms)

    def read(self) -> Sequence[Figure]:
        """The newest figures, with what only a recording that goes on can say: alarms that stand, its last sample."""
        with self._lock:
            found = list(figures_of(self._state))
            if self._state.last_s is not None:
                found.append(Figure(SAMPLED, (), round(self._state.last_s, 3)))
            found += [
                Figure(ALARM, (limit.name, label(limit.level)), float(uid in self._alarms))
                for uid, limit in self._state.present().items()
            ]
            return [*found, Figure(ALARM_COUNT, (), len(self._alarms))]
