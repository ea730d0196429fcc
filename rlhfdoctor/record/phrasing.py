"""Sentences of the live view: limits, forecasts, shared memory, events, one line for pipes."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from rlhfdoctor.i18n.message import NOTHING, Message, joined, quoted, say, term
from rlhfdoctor.record.state import Limit, State
from rlhfdoctor.snapshot import OUT_OF_MEMORY
from rlhfdoctor.trace.record import RecordEvent, message_of, record_of, time_of
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE, say_limit
from rlhfdoctor.vocabulary.names import Record
from rlhfdoctor.vocabulary.run import SPOKEN

_LEAST_UNLINKED_BYTES = 1 << 20
_FULL_RATIO, _NARROW_RATIO = 0.97, 0.1


def say_word(word: object) -> Message:
    """A role or phase: a word of the vocabulary has a name in every language, another one is quoted."""
    return term(str(word)) if word in SPOKEN else quoted(word)


def say_where(state: State) -> Message:
    """Step and phase, as far as they are known."""
    step = NOTHING if state.step is None else say("step {number}", number=state.step)
    return joined(step, say_word(state.phase) if state.phase else NOTHING, by=" ")


def say_use(limit: Limit) -> Message:
    """How full a limit is."""
    return say(
        "{limit} {full:.0%} of {size:bytes}",
        limit=say_limit(limit.name, limit.level),
        full=limit.full_ratio,
        size=limit.limit_bytes,
    )


def say_left(limit: Limit) -> Message:
    """The forecast in words: its bounds, and what it rests on; nothing without one."""
    if limit.left_s is None:
        return NOTHING
    low, high = limit.low_s, limit.high_s
    if low is not None and high is not None and high - low > _NARROW_RATIO * limit.left_s:
        left = say(
            "full in about {left:duration} ({low:duration} to {high:duration})",
            left=limit.left_s,
            low=low,
            high=high,
        )
    else:
        left = say("full in about {left:duration}", left=limit.left_s)
    if limit.steps_count:
        rise = say("+{rise:bytes} a step over {count} steps", rise=limit.rise_bytes, count=limit.steps_count)
    elif not limit.seen_s:
        rise = say("+{rise:bytes} a minute", rise=limit.slope_bytes_per_s * 60)
    else:
        rise = say("+{rise:bytes} a minute over {seen:duration}", rise=limit.slope_bytes_per_s * 60, seen=limit.seen_s)
    return joined(left, rise, by=", ")


def say_outlook(state: State, limit: Limit) -> Message:
    """What is to be expected of the limit that binds."""
    if state.is_over:
        return NOTHING
    if limit.hangs_s:
        return say("the run hangs at this limit, for {time:duration} so far", time=limit.hangs_s)
    if limit.left_s is not None:
        return say_left(limit)
    if limit.full_ratio >= _FULL_RATIO:
        return say("full: the kernel may kill at any moment") if limit.name == "cgroup" else say("full")
    return say("measuring...") if state.is_young else say("no steady growth towards a limit")


def say_shared(state: State) -> list[Message]:
    """Totals of pinned memory, of shared memory without files and of /dev/shm, as far as they are known."""
    host, parts = state.host, []
    shared = max((row["rss_shmem_bytes"] or 0 for row in state.rows.values()), default=0)
    locked = sum((row["locked_bytes"] or 0) + (row["pinned_bytes"] or 0) for row in state.rows.values())
    shmem, used, unlinked = host.get("shmem_bytes"), host.get("shm_used_bytes"), host.get("shm_unlinked_bytes")
    if locked:
        parts.append(say("mlocked or pinned {size:bytes}", size=locked))
    if shmem is not None and used is not None and shmem > used:
        parts.append(say("shmem without files {size:bytes}", size=shmem - used))
    elif shared:
        parts.append(say("largest shmem {size:bytes}", size=shared))
    if used is not None:
        orphaned = host.get("shm_orphaned_bytes") or 0
        without_name = unlinked is not None and unlinked > _LEAST_UNLINKED_BYTES
        parts.append(
            joined(
                say("/dev/shm {size:bytes}", size=used),
                say("{size:bytes} of it unlinked", size=unlinked) if without_name else NOTHING,
                say("{size:bytes} orphaned", size=orphaned) if orphaned else NOTHING,
                by=", ",
            )
        )
    return parts


def say_exit(code: int) -> Message:
    """An exit code for people.

    >>> str(say_exit(0)), str(say_exit(3)), str(say_exit(-9))
    ('exit status 0', 'exit status 3', 'killed by SIGKILL')
    """
    if code >= 0:
        return say("exit status {code}", code=code)
    try:
        return say("killed by {signal}", signal=signal.Signals(-code).name)
    except ValueError:
        return say("killed by signal {number}", number=-code)


def _say_kills(event: RecordEvent) -> Message:
    level = event[R.level]
    where = say("the node") if level == NODE else quoted(level.rsplit("/", 1)[-1])
    return say("the kernel killed {count} at {where}", count=event[R.count], where=where)


def _say_gone(event: RecordEvent) -> Message:
    return say(
        "{name} pid {pid} is gone; it held {size:bytes} anon",
        name=say_word(event.get(R.role) or event.get(R.name)),
        pid=event[R.pid],
        size=event[R.rss_anon_bytes] or 0,
    )


def _say_snapshot(event: RecordEvent) -> Message:
    words = {"pid": event[R.pid], "line": quoted(event[R.lines][0]), "size": event[R.sizes][0]}
    if event.get(R.why) == OUT_OF_MEMORY:
        return say("pid {pid} ran out of GPU memory; {line} holds most of it, {size:bytes}", **words)
    return say("the GPU of pid {pid} is nearly full; {line} holds most of it, {size:bytes}", **words)


_GOOD: dict[Record, Callable[[RecordEvent], Message]] = {
    RECORD.kernel.other: lambda e: say("the kernel killed a process of another job (pid {pid})", pid=e[R.pid]),
    RECORD.note.gap: lambda e: say(
        "not available: {what}: {why}", what=message_of(e, R.what), why=message_of(e, R.why)
    ),
    RECORD.store.recovered: lambda e: say(
        "the disk takes writes again; {count} frames were kept in memory", count=e[R.kept_count]
    ),
    RECORD.store.dropped: lambda e: say(
        "the trace is too large: its {count} oldest segments were deleted", count=e[R.segments_count]
    ),
    RECORD.recorder.end: lambda e: say("recording ended: {why}", why=message_of(e, R.why)),
    RECORD.node.back: lambda e: say("node {node} is back", node=str(e.get(R.node))),
    RECORD.metrics.serving: lambda e: say("metrics at http://127.0.0.1:{port}/metrics", port=str(e[R.port])),
    RECORD.ray.node: lambda e: say(
        "Ray node {address} (raylet {pid})", address=str(e.get(R.address) or ""), pid=e[R.pid]
    ),
}
_BAD: dict[Record, Callable[[RecordEvent], Message]] = {
    RECORD.note.alarm: lambda e: say("alarm: {text}", text=message_of(e, R.text)),
    RECORD.process.snapshot: _say_snapshot,
    RECORD.note.oom_kill: _say_kills,
    RECORD.kernel.line: lambda e: quoted(e[R.text].partition("+00:00 ")[2]),
    RECORD.cgroup.oom: lambda e: say("out of memory in the cgroup"),
    RECORD.process.gone: _say_gone,
    RECORD.node.lost: lambda e: say("node {node} is lost: {why}", node=str(e.get(R.node)), why=message_of(e, R.why)),
}


def _say_end(event: RecordEvent) -> Message:
    if not event.get(R.pid) and R.why in event:
        return say("the command could not be started: {why}", why=quoted(event[R.why]))
    return say("the command ended: {how}", how=say_exit(int(event[R.code])))


_ENDS: dict[Record, Callable[[RecordEvent], Message]] = {
    RECORD.job.exited: _say_end,
    RECORD.process.exited: lambda e: say("pid {pid} ended: {how}", pid=e[R.pid], how=say_exit(int(e[R.code]))),
}
"""They are bad news unless the exit status is 0."""


def say_event(event: RecordEvent) -> tuple[Message, bool]:
    """An event as a line with its time, and whether it is bad news; nothing for what is no news."""
    kind = record_of(event)
    says = {**_GOOD, **_BAD, **_ENDS}.get(kind) if kind is not None else None
    if says is None:
        return NOTHING, False
    bad = kind in _BAD or (kind in _ENDS and event[R.code] != 0)
    return joined(quoted(_clock(time_of(event) / 1e9)), says(event), by=" "), bad


def say_line(state: State) -> Message:
    """The state as one plain line, for pipes: where the run is, the limit that binds, the roles that hold most."""
    limit, at = state.binding, quoted(_clock(state.last_s or 0))
    if limit is None:
        return joined(at, say("recording"), by=" ")
    most = [
        say("{role} {size:bytes}", role=say_word(role.name), size=role.anon_bytes + role.shmem_bytes)
        for role in state.by_size()[:3]
    ]
    left = say_outlook(state, limit) if limit.hangs_s or limit.left_s is not None else NOTHING
    figures = joined(say_use(limit), left, joined(*most, by=", "))
    return joined(at, joined(say_where(state), figures, by=": "), by=" ")


def _clock(at_s: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(at_s))
