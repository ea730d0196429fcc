"""Whether what was read is of several runs, one after the other: then each deserves a verdict of its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter

from rlhfdoctor.core.session import Session
from rlhfdoctor.evidence.case import whole
from rlhfdoctor.evidence.steps import STEPS
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import FIELD

_RAY_SESSION = re.compile(r"(.*/session_\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_\d+_\d+)/")
"""ray/_private/node.py at 2.60: `session_{date}_{microseconds}_{pid}`; the nodes of a cluster have the head's."""
_NODE = re.compile(r"/nodes/[^/]+$")
"""Of a recorded run, the folder of another node."""
_CLOCKS_S = 60.0
"""Recordings of different nodes that miss each other by less are of one run."""


@dataclass(slots=True)
class _Span:
    """From when to when something ran."""

    name: str
    from_s: float
    until_s: float
    nodes: frozenset[str] = frozenset()
    steps: tuple[int, int] | None = None
    """First and last step that its log shows."""


def find_runs_apart(session: Session) -> tuple[str, ...]:
    """A path for each run, in order of time; empty where everything may be of one run.

    Recordings and logs of the job are of different runs where one ends before the next begins, logs only if the
    steps begin again, too: a log that was rotated goes on where the one before ended.
    """
    if session.traces:
        return _apart(list(_recordings(session)))
    sessions = {found.group(1): None for name in session.logs if (found := _RAY_SESSION.match(name))}
    if len({name.rpartition("/")[2] for name in sessions}) > 1:
        return tuple(sessions)
    return _apart(list(_job_logs(session)))


def _recordings(session: Session) -> Iterator[_Span]:
    for trace in session.traces:
        if len(trace.node.times_ns):
            first, last = (trace.seconds(trace.node.times_ns[at]) for at in (0, -1))
            yield _Span(_NODE.sub("", trace.node.folder), first, last, frozenset({str(trace.node.run.get("node"))}))


def _job_logs(session: Session) -> Iterator[_Span]:
    """Logs that show steps, and their end: a stamp at the last step or behind it."""
    by_file: dict[str, list[Event]] = {}
    for event in session.case.events:
        by_file.setdefault(event.origin.file, []).append(event)
    for name, events in by_file.items():
        times = [(event.time, _line(event)) for event in events if event.time is not None]
        steps = [(whole(event, FIELD.step), _line(event)) for event in events if event.kind in STEPS]
        found = [(step, line) for step, line in steps if step is not None]
        if times and found and max(line for _, line in times) >= max(line for _, line in found):
            first, last = min(found, key=itemgetter(1)), max(found, key=itemgetter(1))
            yield _Span(name, min(times)[0], max(times)[0], steps=(first[0], last[0]))


def _line(event: Event) -> int:
    return event.origin.line or 0


def _apart(spans: Sequence[_Span]) -> tuple[str, ...]:
    runs: list[_Span] = []
    for span in sorted(spans, key=lambda span: span.from_s):
        if not runs or _begins_anew(span, runs[-1]):
            runs.append(span)
        else:
            _join(runs[-1], span)
    return tuple(span.name for span in runs) if len(runs) > 1 else ()


def _begins_anew(span: _Span, last: _Span) -> bool:
    goes_on = last.steps is not None and span.steps is not None and span.steps[0] > last.steps[1]
    slack_s = _CLOCKS_S if span.nodes and not span.nodes & last.nodes else 0.0
    return span.name != last.name and span.from_s > last.until_s + slack_s and not goes_on


def _join(last: _Span, span: _Span) -> None:
    last.until_s, last.nodes = max(last.until_s, span.until_s), last.nodes | span.nodes
    if last.steps is not None and span.steps is not None:
        last.steps = (last.steps[0], max(last.steps[1], span.steps[1]))
