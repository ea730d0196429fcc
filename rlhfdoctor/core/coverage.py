"""The sources of a session by kind: kernel log, Ray's logs, the job's log, configuration, recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from rlhfdoctor.core.session import Session
from rlhfdoctor.core.several import find_runs_apart
from rlhfdoctor.coverage import SOURCE_KINDS, Coverage, Covered, SourceKind
from rlhfdoctor.evidence.window import kernel_was_read
from rlhfdoctor.i18n.message import say
from rlhfdoctor.types import Death, Event, Missing

_RAY = re.compile(
    r"^(?:raylet|gcs_server|log_monitor|monitor|dashboard|runtime_env|worker-|python-core-|ray_client|agent-)"
)
"""Files of a Ray session (ray/_private/ray_constants.py)."""
_KERNEL = re.compile(r"dmesg|^kern(?:el)?\b|^syslog|^messages|journal", re.IGNORECASE)
_UNSURE = 0.7
"""Judgement: how much of the distance from even odds is kept where a source is missing that could turn the first cause.
Measured on this project's own runs by what the job's log alone says against everything (tests/exam)."""

TIE_OF_LOG = Missing(
    what=say("what ties the failure to this run, whose own log shows that it ended well"),
    settle=say("the logs of the run alone, or logs that bear times"),
)
TIE = Missing(
    what=say("what ties the kernel's kill to this run (no pid that the other logs name, no time that both have)"),
    settle=say("dmesg -T, with logs that bear times"),
)


def find_coverage(session: Session) -> Coverage:
    """What was read, one row a kind, in the order of SOURCE_KINDS."""
    by_file: dict[str, list[Event]] = {name: [] for name in session.logs}
    for event in session.case.events:
        by_file.setdefault(event.origin.file, []).append(event)
    kinds = {name: _kind(name, events) for name, events in by_file.items() if name in session.logs}
    rows = [_recorded(session), *(_row(kind, kinds, by_file) for kind in ("kernel log", "Ray's logs", "job log"))]
    texts = [name for name in session.texts if name not in kinds]
    rows.append(Covered(kind="configuration", count=len(texts)))
    if not any(row.count for row in rows if row.kind == "kernel log") and any(map(kernel_was_read, session.traces)):
        rows.append(replace(rows[0], kind="kernel log"))
    read = sorted((row for row in rows if row.count), key=lambda row: SOURCE_KINDS.index(row.kind))
    return Coverage(tuple(read), tuple(session.shown(name) for name in find_runs_apart(session)))


def trusted(confidence: float, death: Death | None, coverage: Coverage, untied: bool) -> float:
    """A confidence, lower where the killer is unknown and neither kernel log nor recording was given.

    Args:
        untied: nothing ties the death to the run: a kill in the kernel log, or a failure in another log.
    """
    known = death is None or death.certain or coverage.has("trace", "kernel log")
    if known and not untied:
        return confidence
    return round(min(confidence, 0.5 + (confidence - 0.5) * _UNSURE), 2)


def _recorded(session: Session) -> Covered:
    times = [trace.seconds(at) for trace in session.traces for at in trace.node.times_ns[:1] + trace.node.times_ns[-1:]]
    return Covered(
        kind="trace",
        count=len(session.traces),
        hosts=tuple(sorted({str(node) for trace in session.traces if (node := trace.node.run.get("node"))})),
        from_s=min(times, default=None),
        until_s=max(times, default=None),
    )


def _kind(name: str, events: Sequence[Event]) -> SourceKind:
    """By the file's name; by its lines if the name is not recognized."""
    file = PurePosixPath(name.rpartition("!")[2]).name
    if _RAY.match(file):
        return "Ray's logs"
    of_kernel = sum(event.kind.scope == "kernel" for event in events)
    return "kernel log" if _KERNEL.search(file) or (of_kernel and 2 * of_kernel > len(events)) else "job log"


def _row(kind: SourceKind, kinds: dict[str, SourceKind], by_file: dict[str, list[Event]]) -> Covered:
    files = [name for name, found in kinds.items() if found == kind]
    events = [event for name in files for event in by_file[name]]
    times = sorted(_times(events))
    return Covered(
        kind=kind,
        count=len(files),
        hosts=tuple(sorted({event.origin.host for event in events if event.origin.host})),
        from_s=times[0] if times else None,
        until_s=times[-1] if times else None,
    )


def _times(events: Sequence[Event]) -> Iterator[float]:
    return (event.time for event in events if event.time is not None)
