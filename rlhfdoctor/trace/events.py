"""A recorded run in the words of the other sources: Events of what the recorder saw, its figures at hand."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlhfdoctor.trace.node import Columns, NodeTrace
from rlhfdoctor.trace.record import RecordEvent, StoredEvent, is_a, mark_time_of, time_of
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.trace.tables import identities
from rlhfdoctor.types import Event, Origin, Value
from rlhfdoctor.units import show_bytes
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE
from rlhfdoctor.vocabulary.names import Field, Kind, Record, RecordField
from rlhfdoctor.vocabulary.recorder_events import KERNEL_LOG

_NEAR_NS = 3_000_000_000
_SHUTDOWN_NS = 30 * 10**9
_HELD_BYTES = 16 << 20
_FULL_RATIO = 0.9
_MEMCG = re.compile(r"oom_memcg=(/[^,]+)")
_GONE: Mapping[Field, RecordField] = {
    FIELD.pid: R.pid,
    FIELD.name: R.name,
    FIELD.role: R.role,
    FIELD.rss_anon_bytes: R.rss_anon_bytes,
    FIELD.rss_shmem_bytes: R.rss_shmem_bytes,
}
_MARK: Mapping[Field, RecordField] = {FIELD.phase: R.phase, FIELD.step: R.step, FIELD.pid: R.pid, FIELD.role: R.role}


class Recorded:
    """A node's trace with the questions that evidence asks."""

    def __init__(self, node: NodeTrace) -> None:
        """`node` as `read_node` gave it; its clock offset is applied to every time."""
        self.node = node
        self.offset_s = float(node.run.get("clock_offset_s") or 0.0)
        self.known = identities(node)
        self.file = f"{node.folder}/000001.trace"
        self._index: dict[str, dict[int, list[int]]] = {}
        self._of: dict[tuple[Record, ...], list[StoredEvent]] = {}

    def seconds(self, wall_ns: int) -> float:
        """Unix seconds on the cluster's common clock."""
        return wall_ns / 1e9 - self.offset_s

    def series(self, table: str, key: int, column: str) -> list[tuple[float, int]]:
        """(Unix seconds, value) of one row's column over the run; unknown values are left out."""
        data = self.node.tables.get(table)
        if data is None or column not in data.values:
            return []
        values = data.values[column]
        return [
            (self.seconds(data.times_ns[i]), values[i])
            for i in self._rows(table, data).get(key, ())
            if values[i] != NULL
        ]

    def keys(self, table: str) -> list[int]:
        """All rows of a table that ever were."""
        data = self.node.tables.get(table)
        return [] if data is None else list(self._rows(table, data))

    def _rows(self, table: str, data: Columns) -> dict[int, list[int]]:
        if table not in self._index:
            index: dict[int, list[int]] = {}
            for place, key in enumerate(data.keys):
                index.setdefault(key, []).append(place)
            self._index[table] = index
        return self._index[table]

    def last(self, table: str, key: int, column: str, before_s: float | None = None) -> int | None:
        """The last known value, at or before a time."""
        point = self.last_point(table, key, column, before_s)
        return None if point is None else point[1]

    def last_point(self, table: str, key: int, column: str, before_s: float | None = None) -> tuple[float, int] | None:
        """(Unix seconds, value) of the last known value, at or before a time."""
        data = self.node.tables.get(table)
        if data is None or column not in data.values:
            return None
        rows = self._rows(table, data).get(key, [])
        until = len(rows) if before_s is None else bisect_right(rows, before_s, key=lambda place: self._at(data, place))
        return self._known_point(data, column, reversed(rows[:until]))

    def first(self, table: str, key: int, column: str) -> int | None:
        """The first known value."""
        data = self.node.tables.get(table)
        if data is None or column not in data.values:
            return None
        point = self._known_point(data, column, self._rows(table, data).get(key, ()))
        return None if point is None else point[1]

    def _known_point(self, data: Columns, column: str, rows: Iterable[int]) -> tuple[float, int] | None:
        values = data.values[column]
        return next(((self._at(data, place), values[place]) for place in rows if values[place] != NULL), None)

    def _at(self, data: Columns, place: int) -> float:
        return self.seconds(data.times_ns[place])

    def of(self, *kinds: Record) -> list[StoredEvent]:
        """Events of the recorder of these kinds."""
        if kinds not in self._of:
            self._of[kinds] = [event for event in self.node.events if is_a(event, *kinds)]
        return self._of[kinds]

    def highest(self, table: str, key: int, column: str, since_s: float, until_s: float) -> int | None:
        """The highest known value of a row's column between two times."""
        data = self.node.tables.get(table)
        if data is None or column not in data.values:
            return None
        rows = self._rows(table, data).get(key, [])
        first = bisect_left(rows, since_s, key=lambda place: self._at(data, place))
        until = bisect_right(rows, until_s, key=lambda place: self._at(data, place))
        values = data.values[column]
        return max((values[place] for place in rows[first:until] if values[place] != NULL), default=None)

    def near(self, kind: Record, wall_ns: int, within_ns: int) -> list[StoredEvent]:
        """Events of a kind that are less than so far from a time."""
        events = self.of(kind)  # in order of time
        first = bisect_right(events, wall_ns - within_ns, key=time_of)
        return events[first : bisect_left(events, wall_ns + within_ns, key=time_of)]

    def role_of(self, pid: int | None) -> tuple[str | None, str | None]:
        """(role, name) of a pid, the last process that had it."""
        found = [row for row in self.known["process"].values() if row.get(R.pid) == pid]
        return (found[-1].get(R.role), found[-1].get(R.name)) if found else (None, None)


def span_of(traces: Sequence[Recorded]) -> tuple[float, float] | None:
    """From the first sample to the last, Unix seconds; None without samples."""
    ends = [trace.seconds(place) for trace in traces if trace.node.times_ns for place in _ends(trace.node.times_ns)]
    return (min(ends), max(ends)) if ends else None


def _ends(times_ns: Sequence[int]) -> tuple[int, int]:
    return times_ns[0], times_ns[-1]


def drop_foreign(events: Sequence[Event], traces: Sequence[Recorded]) -> tuple[list[Event], int]:
    """Events without the kernel's OOM reports about processes of other jobs, and how many kills those were.

    The kernel log is the node's. Where pids are the host's, a victim that was never followed is not ours;
    inside a pid namespace a kill is ours if a followed process was gone at that time.
    """
    if not traces:
        return list(events), 0
    kept: list[Event] = []
    report: list[Event] = []
    foreign = 0
    for event in events:
        if event.kind.scope != "kernel":
            kept.append(event)
            continue
        if event.kind == EVENT.kernel.oom_invoked and report:
            kept.extend(report)
            report = []
        report.append(event)
        if event.kind in (EVENT.kernel.killed, EVENT.kernel.kill_choice):
            if any(_is_ours(report, trace) for trace in traces):
                kept.extend(e for e in report if e.kind != EVENT.kernel.task or _is_followed(e, traces))
            else:
                foreign += 1
            report = []
    return kept + report, foreign


def _is_followed(row: Event, traces: Sequence[Recorded]) -> bool:
    """Whether a row of the kernel's task table is a process of the run; inside a pid namespace all are taken."""
    seen = [t for t in traces if t.node.header.get("host_pids") and t.known["process"]]
    return not seen or any(
        known.get(R.pid) == row.fields.get(FIELD.pid) for t in seen for known in t.known["process"].values()
    )


def _is_level(path: str, memcg: str) -> bool:
    """Whether the kernel's name is that of a cgroup; inside a container only the tail of it can be compared."""
    return path == memcg or (path.startswith("/sys/fs/cgroup/") and path.endswith(memcg))


def _is_ours(report: Sequence[Event], trace: Recorded) -> bool:
    event = report[-1]
    if not trace.known["process"]:
        return True  # unknown: the trace is too damaged
    host = bool(trace.node.header.get("host_pids"))
    levels = [
        str(row.get(R.name) if host and row.get(R.name) else row.get(R.path)) for row in trace.known["cgroup"].values()
    ]
    named = [_MEMCG.search(str(e.fields.get(FIELD.rest_text, ""))) for e in report if e.kind == EVENT.kernel.oom_kill]
    if any(match is not None and _is_level(path, match[1]) for match in named for path in levels):
        return True
    if trace.node.header.get("host_pids"):
        return any(row.get(R.pid) == event.fields.get(FIELD.pid) for row in trace.known["process"].values())
    if event.time is None:
        return True
    at_ns = round((event.time + trace.offset_s) * 1e9)
    return bool(trace.near(RECORD.process.gone, at_ns, _NEAR_NS))


def make_events(recorded: Recorded) -> Iterator[Event]:
    """Marks, kills, exits and alarms as Events; what only the recorder needs is left out."""
    for event in recorded.node.events:
        if is_a(event, RECORD.note.mark):
            yield from _mark(recorded, event)
        elif is_a(event, RECORD.note.oom_kill):
            yield from _kill(recorded, event)
        elif is_a(event, RECORD.job.exited) and event.get(R.code):
            code = int(event[R.code])
            yield _event(
                recorded,
                event,
                EVENT.trace.job_exit,
                {FIELD.exit_code: code, FIELD.pid: event.get(R.pid)},
                f"the command ended with {'signal ' + str(-code) if code < 0 else 'exit status ' + str(code)}",
            )
        elif is_a(event, RECORD.job.exited) and event.get(R.code) == 0:
            fields = {FIELD.pid: event.get(R.pid)}
            yield _event(recorded, event, EVENT.trace.job_done, fields, "the command ended with exit status 0")
        elif (
            is_a(event, RECORD.process.gone)
            and event.get(R.name) == "raylet"
            and not _ended_well_after(recorded, event)
        ):
            yield _event(
                recorded,
                event,
                EVENT.trace.raylet_gone,
                {FIELD.pid: event.get(R.pid)},
                f"the raylet (pid {event.get(R.pid)}) of {recorded.node.node} is gone",
            )
        elif is_a(event, RECORD.process.gone) and (event.get(R.rss_anon_bytes) or 0) >= _HELD_BYTES:
            held = show_bytes((event.get(R.rss_anon_bytes) or 0) + (event.get(R.rss_shmem_bytes) or 0))
            fields = {key: event.get(own) for key, own in _GONE.items()}
            who = event.get(R.role) or event.get(R.name)
            yield _event(
                recorded,
                event,
                EVENT.trace.gone,
                fields,
                f"{who} pid {event.get(R.pid)} is gone; it held {held} at its last sample",
            )
        elif is_a(event, RECORD.node.lost):
            yield _event(
                recorded,
                event,
                EVENT.trace.node_lost,
                {FIELD.why_text: event.get(R.why)},
                f"node {event.get(R.node)} is lost: {event.get(R.why)}",
            )
        elif is_a(event, RECORD.note.alarm):
            yield _event(
                recorded, event, EVENT.trace.alarm, {FIELD.left_s: event.get(R.left_s)}, str(event.get(R.text))
            )


def _ended_well_after(recorded: Recorded, event: RecordEvent) -> bool:
    """Whether the command that was recorded ended with 0 soon after: it shut its own Ray down."""
    return any(
        end.get(R.code) == 0 and end[R.wall_ns] - event[R.wall_ns] < _SHUTDOWN_NS
        for end in recorded.of(RECORD.job.exited)
    )


def _mark(recorded: Recorded, event: RecordEvent) -> Iterator[Event]:
    if event.get(R.edge) == "end":
        return
    fields = {key: event.get(own) for key, own in _MARK.items() if event.get(own) is not None}
    words = " ".join(
        [
            *([f"step {event[R.step]}"] if event.get(R.step) is not None else []),
            *([str(event[R.phase])] if event.get(R.phase) else []),
        ]
    )
    yield _event(recorded, event, EVENT.trace.mark, fields, f"{words} ({event.get(R.basis)})")


def _kill(recorded: Recorded, event: RecordEvent) -> Iterator[Event]:
    """A kill counter that rose; a process of the run must have gone at that time, or it was someone else's kill.

    A cgroup's counter rises for kills of its processes by any OOM killer (cgroup-v2.rst, memory.events): it
    was the cgroup's limit only if one of the limits above the process was full.
    """
    at = time_of(event)
    level = str(event.get(R.level))
    if not recorded.near(RECORD.process.gone, at, _NEAR_NS):
        return
    counted = any(e.get(R.level) != NODE for e in recorded.near(RECORD.note.oom_kill, at, 2 * _NEAR_NS))
    if level == NODE and (counted or _of_another_job(recorded, at)):
        return
    full = _full_limit(recorded, at)
    fields: dict[Field, Value] = {FIELD.level_text: full or level, FIELD.count: event.get(R.count)}
    where = "of the node" if level == NODE else f"of the cgroup {level}"
    kind = EVENT.trace.node_kill if full is None else EVENT.trace.cgroup_kill
    says = f"; {full} was full" if full is not None else ""
    yield _event(recorded, event, kind, fields, f"the kernel's kill counter {where} rose by {event.get(R.count)}{says}")


def _full_limit(recorded: Recorded, at_ns: int) -> str | None:
    """The cgroup whose limit was full (or reported so) within the seconds before, or None."""
    at = recorded.seconds(at_ns)
    for uid, row in recorded.known["cgroup"].items():
        limit = recorded.last("cgroup", uid, "max_bytes", at)
        highest = recorded.highest("cgroup", uid, "used_bytes", at - 3, at + 0.2)
        if limit and highest is not None and highest >= _FULL_RATIO * limit:
            return str(row.get(R.path))
    return None


def _of_another_job(recorded: Recorded, at_ns: int) -> bool:
    """Whether a rise of the node's counter belongs to a process that was not followed.

    Where the recorder read the kernel log, a kill of ours has its line there; else a kill that it saw of
    another job's process at that time explains the rise.
    """
    unread = any(gap.get(R.what) == KERNEL_LOG for gap in recorded.of(RECORD.note.gap))
    return not unread and not recorded.near(RECORD.kernel.line, at_ns, 2 * _NEAR_NS)


def _event(recorded: Recorded, event: RecordEvent, kind: Kind, fields: Mapping[Field, Value], text: str) -> Event:
    return Event(
        kind=kind,
        fields={key: value for key, value in fields.items() if value is not None},
        origin=Origin(file=recorded.file, host=recorded.node.run.get("node") or None, pid=event.get(R.pid)),
        text=text,
        time=recorded.seconds(mark_time_of(event)),
    )
