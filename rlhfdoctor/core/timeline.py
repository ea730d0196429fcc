"""Recorded runs -> charts: panels of memory over time, with phases, limits, kills on the same axis."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rlhfdoctor.charts import Chart, Mark, Panel, Span
from rlhfdoctor.core.holders import find_holders, find_snapshots
from rlhfdoctor.core.panels import ABOVE, history_of, known_limits, make_panels
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window, find_steps
from rlhfdoctor.i18n.message import Message, plural, say
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.report.phrasing import killer_says
from rlhfdoctor.trace.archive import shown, unpacked
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.history import History
from rlhfdoctor.trace.node import NodeTrace
from rlhfdoctor.trace.record import RecordEvent, message_of, time_of
from rlhfdoctor.trace.run import read_traces
from rlhfdoctor.types import Incident
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE
from rlhfdoctor.vocabulary.run import PHASES

_MOST_NODES = 8
_LATE_S = 2.0
"""A death this long after the last sample is not drawn."""
_DOUBLE = 1.05
_MOST_SPANS, _MOST_STEPS = 4000, 2000


def make_charts(paths: Paths, incident: Incident, *, progress: Callable[[str, int], None] | None = None) -> list[Chart]:
    """One chart for each recorded node, that of the death first; empty if the paths hold no trace.

    Every sample is read, not only those that a verdict needs.

    Args:
        incident: the result of `analyze` for the same paths; its death is marked.
        progress: called with the trace's folder and its samples.
    """
    with unpacked(listed(paths), []) as names:
        traces = read_traces(names)
        for trace in traces:
            trace.node.folder = shown(trace.node.folder, names)
        return draw_charts(traces, incident, progress)


def draw_charts(
    traces: Sequence[Recorded], incident: Incident, progress: Callable[[str, int], None] | None = None
) -> list[Chart]:
    """As `make_charts`, of the traces of a session, which has to be open: their segments are read once more."""
    if not traces:
        return []
    first = find_failure_window(Case(incident.timeline, traces=traces), incident.death)
    traces = sorted(traces, key=lambda trace: first is None or trace is not first.trace)
    charts = []
    for number, trace in enumerate(traces[:_MOST_NODES]):
        death = incident.death if number == 0 else None
        window = (
            find_failure_window(Case(incident.timeline, traces=[trace]), death)
            if death is not None
            else _fullest(trace)
        )
        chart = _chart(trace, window, incident if number == 0 else None) if window is not None else None
        if chart is not None:
            charts.append(chart)
            if progress is not None:
                progress(trace.node.folder, len(trace.node.times_ns))
    if charts and len(traces) > _MOST_NODES:
        charts[-1] = replace(
            charts[-1],
            notes=(
                *charts[-1].notes,
                say(
                    "{traces} nodes were recorded; only {most_nodes} are drawn",
                    traces=len(traces),
                    most_nodes=_MOST_NODES,
                ),
            ),
        )
    return charts


def trace_charts(nodes: Sequence[NodeTrace]) -> list[Chart]:
    """The charts of traces that were read already, without the annotations of an incident."""
    charts = []
    for trace in map(Recorded, nodes):
        window = _fullest(trace)
        chart = _chart(trace, window, None) if window is not None else None
        charts += [chart] if chart is not None else []
    return charts


def _fullest(trace: Recorded) -> FailureWindow | None:
    """The limit that was fullest at its peak, if it is unknown which one was binding."""
    end_s = trace.seconds(trace.node.times_ns[-1]) if trace.node.times_ns else 0.0
    found = []
    for uid, row in trace.known["cgroup"].items():
        limit, use = trace.last("cgroup", int(uid), "max_bytes"), trace.series("cgroup", int(uid), "used_bytes")
        if limit and use:
            found.append(
                (max(size for _, size in use) / limit, FailureWindow(trace, end_s, str(row.get(R.path)), limit, use))
            )
    total = trace.last("host", 0, "total_bytes")
    free = trace.series("host", 0, "available_bytes")
    if total and free:
        use = [(at, total - size) for at, size in free]
        found.append((max(size for _, size in use) / total, FailureWindow(trace, end_s, NODE, total, use)))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def _chart(trace: Recorded, window: FailureWindow, incident: Incident | None) -> Chart | None:
    """None where there are not two samples to draw between."""
    history = history_of(trace, window)
    if len(history.times_ns) < 2:
        return None
    begin_s, end_s = trace.seconds(history.times_ns[0]), trace.seconds(history.times_ns[-1])
    panels = make_panels(trace, window, history)
    notes = [
        say("{limit} ({size:bytes}) lies above the picture", limit=name, size=size)
        for name, size in known_limits(trace, window)
        if panels and size > ABOVE * panels[0].top_bytes and name not in {b.name for p in panels for b in p.bounds}
    ]
    notes += _doubts(history, panels, incident, end_s)
    spans = list(_spans(trace, begin_s, end_s))
    if len(spans) > _MOST_SPANS:
        notes.append(
            plural(
                "{n} phase: only the last {most} are drawn",
                "{n} phases: only the last {most} are drawn",
                len(spans),
                most=_MOST_SPANS,
            )
        )
    return Chart(
        node=trace.node.node,
        begin_s=begin_s,
        length_s=max(end_s - begin_s, 1e-3),
        panels=tuple(panels),
        spans=tuple(spans[-_MOST_SPANS:]),
        marks=tuple(sorted(_marks(trace, begin_s, incident), key=lambda mark: mark.at_s)),
        holders=find_holders(trace),
        snapshots=find_snapshots(trace, begin_s),
        notes=tuple(notes),
    )


def _doubts(history: History, panels: Sequence[Panel], incident: Incident | None, end_s: float) -> Iterator[Message]:
    """Notes that are needed to interpret the chart."""
    death = incident.death if incident is not None else None
    if death is not None and death.time is not None and death.time - end_s > _LATE_S:
        yield say("the recording ends {early:s} before the death", early=round(death.time - end_s))
    if death is not None and death.time is None:
        yield say("the time of the death is unknown, so it is not marked")
    sums = {panel.kind: panel.top_bytes for panel in panels}
    bound = max((bound.bytes for panel in panels for bound in panel.bounds), default=0)
    if bound and sums.get("role", 0) > max(bound, sums.get("kind", 0)) * _DOUBLE:
        yield say("forked processes share pages, which the sum of the roles counts once for each of them")
    if history.clock_was_set_back:
        yield say("the clock was set back during the run")


def _spans(trace: Recorded, begin_s: float, end_s: float) -> Iterator[Span]:
    """Phases from mark to mark; what several roles enter one after the other is one phase. Phases end with the job."""
    marks = sorted(
        (at, event.get(R.edge) == "end", str(event[R.phase]))
        for event in trace.of(RECORD.note.mark)
        if event.get(R.phase) in PHASES and (at := _marked(trace, event)) is not None
    )
    over = [trace.seconds(time_of(event)) for event in trace.of(RECORD.job.exited, RECORD.note.oom_kill)]
    end_s = min([end_s, *(at for at in over if at >= begin_s)])
    now, since = "", begin_s
    for at, ends, phase in marks:
        if ends and phase != now:
            continue
        new = "" if ends else phase
        if new == now:
            continue
        if now and min(at, end_s) > since:
            yield Span(phase=now, begin_s=since - begin_s, end_s=min(at, end_s) - begin_s)
        now, since = new, max(at, begin_s)
    if now and end_s > since:
        yield Span(phase=now, begin_s=since - begin_s, end_s=end_s - begin_s)


def _marked(trace: Recorded, event: RecordEvent) -> float | None:
    """When the trainer set a mark; None if damaged."""
    at_ns = event.get(R.at_ns) or time_of(event)
    return trace.seconds(at_ns) if isinstance(at_ns, int) else None


def _marks(trace: Recorded, begin_s: float, incident: Incident | None) -> Iterator[Mark]:
    for number, at in enumerate(find_steps(trace)[:_MOST_STEPS]):
        yield Mark(at_s=max(at - begin_s, 0.0), kind="step", says=say("step {number}", number=number))
    for event in trace.of(RECORD.note.alarm):
        yield Mark(
            at_s=_at(trace, event, begin_s),
            kind="alarm",
            says=message_of(event, R.text) or say("alarm"),
        )
    for event in trace.of(RECORD.note.oom_kill):
        yield Mark(at_s=_at(trace, event, begin_s), kind="kill", says=say("the kernel's OOM killer"))
    death = incident.death if incident is not None else None
    if death is not None and death.time is not None:
        yield Mark(at_s=max(death.time - begin_s, 0.0), kind="death", says=killer_says(death))


def _at(trace: Recorded, event: RecordEvent, begin_s: float) -> float:
    return max(trace.seconds(time_of(event)) - begin_s, 0.0)
