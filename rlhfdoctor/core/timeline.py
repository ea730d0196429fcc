"""Recorded runs -> charts: memory by role, by kind and by GPU over time, with phases, limits and kills on the same axis."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from rlhfdoctor.charts import Bound, Chart, Level, Mark, Panel, Span
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window, find_steps
from rlhfdoctor.i18n.message import Message, plural, quoted, say, term
from rlhfdoctor.report.phrasing import killer_says
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.read import NodeTrace
from rlhfdoctor.trace.record import RecordEvent, time_of
from rlhfdoctor.trace.run import read_traces
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.trace.tables import require_polars
from rlhfdoctor.types import Incident
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE, LimitName, limit_of
from rlhfdoctor.vocabulary.run import PHASES

if TYPE_CHECKING:
    import polars

_BUCKETS = (500, 4000)
"""Of the coarse levels; each bucket keeps its lowest and its highest sample."""
_MOST_POINTS = 100_000
_MOST_ROLES = 9
_MOST_NODES = 8
_LATE_S = 2.0
"""A death this long after the last sample is not drawn."""
_DOUBLE = 1.05
_MOST_SPANS, _MOST_STEPS = 4000, 2000
_ABOVE = 1.6
"""A limit further above the highest point is reported as text: a chart including it would show nothing else."""
_ORDER = (
    "actor",
    "critic",
    "reference",
    "reward",
    "rollout engine",
    "reward worker",
    "data loader",
    "driver",
    "worker",
    "raylet",
    "other",
)
_WORDS: Mapping[LimitName, Message] = {
    "cgroup": say("container limit"),
    "node": say("node"),
    "ray": say("Ray's threshold"),
}


def make_charts(
    paths: Sequence[str], incident: Incident, *, progress: Callable[[str, int], None] | None = None
) -> list[Chart]:
    """One chart for each recorded node, that of the death first; empty if the paths hold no trace.

    Every sample is read, not only those that a verdict needs.

    Args:
        incident: the result of `analyze` for the same paths; its death is marked.
        progress: called with the trace's folder and its samples.

    Raises:
        UsageError: there is a trace, and polars is not installed.
    """
    return draw_charts(read_traces(paths, progress), incident)


def draw_charts(traces: Sequence[Recorded], incident: Incident) -> list[Chart]:
    """As `make_charts`, of traces that a session has read with every sample."""
    if not traces:
        return []
    require_polars("charts of a recorded run")
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
        if window is not None and len(trace.node.times_ns) > 1:
            charts.append(_chart(trace, window, incident if number == 0 else None))
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
    require_polars("charts of a recorded run")
    charts = []
    for trace in map(Recorded, nodes):
        window = _fullest(trace)
        if window is not None and len(trace.node.times_ns) > 1:
            charts.append(_chart(trace, window, None))
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


def _chart(trace: Recorded, window: FailureWindow, incident: Incident | None) -> Chart:
    begin_s, end_s = (trace.seconds(at) for at in (min(trace.node.times_ns), max(trace.node.times_ns)))
    panels = [
        panel for panel in (_by_role(trace, window), _by_kind(trace, window), _by_gpu(trace)) if panel is not None
    ]
    notes = [
        say("{limit} ({size:bytes}) lies above the picture", limit=name, size=size)
        for name, size in _limits(trace, window)
        if panels and size > _ABOVE * panels[0].top_bytes and name not in {b.name for p in panels for b in p.bounds}
    ]
    notes += _doubts(trace, panels, incident, end_s)
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
        notes=tuple(notes),
    )


def _doubts(trace: Recorded, panels: Sequence[Panel], incident: Incident | None, end_s: float) -> Iterator[Message]:
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
    if trace.node.times_ns and any(two < one for one, two in pairwise(trace.node.times_ns)):
        yield say("the clock was set back during the run")


def _by_role(trace: Recorded, window: FailureWindow) -> Panel | None:
    """Anonymous and page-locked memory of the run's processes; shared memory that many map is in no role's sum."""
    import polars as pl

    frame = _processes(trace)
    if frame is None:
        return None
    sums = frame.group_by("at", "role").agg((pl.col("anon") + pl.col("locked")).sum().alias("held"))
    wide = sums.pivot("role", index="at", values="held").sort("at").fill_null(0)
    names = [name for name in wide.columns if name != "at"]
    peaks = {name: wide[name].max() for name in names}
    kept = sorted(names, key=lambda name: -int(peaks[name]))[:_MOST_ROLES]  # type: ignore[arg-type]
    small = [name for name in names if name not in kept]
    columns = {name: wide[name] for name in kept}
    if small:
        rest = wide.select(pl.sum_horizontal(small)).to_series()
        columns["other"] = columns["other"] + rest if "other" in columns else rest
    ordered = sorted(columns, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    levels = _levels(trace, wide["at"], [columns[name] for name in ordered])
    title = say("memory by role: anonymous and page-locked")
    return _with_bounds(
        Panel(kind="role", title=title, stacked=True, names=tuple(map(term, ordered)), bounds=(), levels=levels),
        _limits(trace, window),
    )


def _with_bounds(panel: Panel, limits: Iterable[tuple[Message, int]]) -> Panel:
    """The panel with those limits that a picture of it can hold."""
    near = tuple(Bound(name=name, bytes=size) for name, size in limits if size <= _ABOVE * panel.top_bytes)
    return replace(panel, bounds=near)


def _processes(trace: Recorded) -> polars.DataFrame | None:
    """(at, role, anon, locked) of every process at every sample; the doctor's own left out."""
    import polars as pl

    table = trace.node.tables.get("process")
    if table is None or not table.keys:
        return None
    roles = {
        uid: str(row.get(R.role) or "other")
        for uid, row in trace.known["process"].items()
        if row.get(R.role) != "doctor"
    }
    if not roles:
        return None

    def column(name: str) -> polars.Expr:
        return pl.when(pl.col(name) == NULL).then(0).otherwise(pl.col(name))

    frame = pl.DataFrame(
        {
            "at": pl.Series(table.times_ns),
            "uid": pl.Series(table.keys),
            **{name: pl.Series(table.values[f"{name}_bytes"]) for name in ("rss_anon", "rss_shmem", "locked")},
        }
    ).filter(pl.col("uid").is_in(list(roles)))
    return frame.select(
        "at",
        pl.col("uid").replace_strict(list(roles), list(roles.values()), return_dtype=pl.String).alias("role"),
        column("rss_anon").alias("anon"),
        pl.min_horizontal(column("locked"), column("rss_shmem")).alias("locked"),
    )


def _by_kind(trace: Recorded, window: FailureWindow) -> Panel | None:
    """What the limit's owner holds: anonymous, page-locked, other shared memory, page cache, kernel."""
    import polars as pl

    table = trace.node.tables.get("host" if window.of_node else "cgroup")
    if table is None or not table.keys:
        return None
    wanted = 0
    if not window.of_node:
        wanted = next((int(uid) for uid, row in trace.known["cgroup"].items() if row.get(R.path) == window.limit), 0)
    raw = pl.DataFrame(
        {
            "at": pl.Series(table.times_ns),
            "key": pl.Series(table.keys),
            **{n: pl.Series(v) for n, v in table.values.items()},
        }
    ).filter(pl.col("key") == wanted)
    frame = raw.with_columns(
        pl.when(pl.col(name) == NULL).then(None).otherwise(pl.col(name)).alias(name) for name in table.values
    )
    locked = _processes(trace)
    if locked is not None:
        frame = frame.join(
            locked.group_by("at").agg(pl.col("locked").sum()), on="at", how="left", maintain_order="left"
        )
    else:
        frame = frame.with_columns(pl.lit(0).alias("locked"))
    frame = frame.fill_null(0).sort("at")
    shmem = pl.col("shmem_bytes")
    pinned = pl.min_horizontal("locked", shmem)
    cache = pl.col("cached_bytes") - shmem + pl.col("buffers_bytes") if window.of_node else pl.col("file_bytes") - shmem
    kernel = (
        sum((pl.col(f"{name}_bytes") for name in ("slab", "page_tables", "kernel_stack")), pl.lit(0))
        if window.of_node
        else pl.col("kernel_bytes")
    )
    parts = frame.select(
        "at",
        pl.col("anon_bytes").alias("anonymous"),
        pinned.alias("page-locked"),
        (shmem - pinned).alias("other shared"),
        pl.max_horizontal(cache, 0).alias("page cache"),
        kernel.alias("kernel"),
    )
    names = [name for name in parts.columns if name != "at" and (parts[name] > 0).any()]
    if not names:
        return None
    title = say("the node by kind of memory") if window.of_node else say("the container by kind of memory")
    panel = Panel(
        kind="kind",
        title=title,
        stacked=True,
        names=tuple(map(term, names)),
        bounds=(),
        levels=_levels(trace, parts["at"], [parts[name] for name in names]),
    )
    return _with_bounds(
        panel, [(_WORDS["node" if window.of_node else "cgroup"], window.limit_bytes)] if window.limit_bytes else []
    )


def _by_gpu(trace: Recorded) -> Panel | None:
    import polars as pl

    table = trace.node.tables.get("gpu")
    if table is None or not table.keys:
        return None
    frame = pl.DataFrame(
        {"at": pl.Series(table.times_ns), "gpu": pl.Series(table.keys), "used": pl.Series(table.values["used_bytes"])}
    )
    wide = frame.pivot("gpu", index="at", values="used", aggregate_function="max").sort("at").fill_null(-1)
    names = [name for name in wide.columns if name != "at"]
    columns = [wide[name].set(wide[name] < 0, -1) for name in names]
    sizes = {size for gpu in trace.keys("gpu") if (size := trace.last("gpu", gpu, "total_bytes")) is not None}
    bounds = tuple(Bound(name=say("size of the GPU"), bytes=size) for size in sorted(sizes))
    return Panel(
        kind="gpu",
        title=say("GPU memory in use (NVML)"),
        stacked=False,
        names=tuple(say("GPU {number}", number=name) for name in names),
        bounds=bounds,
        levels=_levels(trace, wide["at"], columns),
    )


def _levels(trace: Recorded, at: polars.Series, columns: Sequence[polars.Series]) -> tuple[Level, ...]:
    """From coarse to fine: of each bucket of time the sample with the lowest and that with the highest sum."""
    import polars as pl

    frame = pl.DataFrame({"at": at, **{f"c{n}": column for n, column in enumerate(columns)}}).with_row_index("row")
    names = [f"c{number}" for number in range(len(columns))]
    frame = frame.with_columns(pl.sum_horizontal(names).alias("sum"))
    first, last = int(at[0]), int(at[-1])
    levels = []
    for buckets in (*_BUCKETS, _MOST_POINTS // 2):
        width = max((last - first) // buckets, 1)
        if frame.height <= 2 * buckets:
            levels.append(frame)
            break
        bucket = ((pl.col("at") - first) // width).alias("bucket")
        ends = frame.group_by(bucket).agg(
            pl.col("row").get(pl.col("sum").arg_min()).alias("low"),
            pl.col("row").get(pl.col("sum").arg_max()).alias("high"),
        )
        rows = {*ends["low"].to_list(), *ends["high"].to_list(), 0, frame.height - 1}
        levels.append(frame[sorted(rows)])
    return tuple(
        Level(
            times_s=((level["at"] - min(trace.node.times_ns)) / 1e9).to_list(),
            values=tuple(level[name].cast(pl.Int64).to_list() for name in names),
        )
        for level in levels
    )


def _limits(trace: Recorded, window: FailureWindow) -> Iterator[tuple[Message, int]]:
    """(name, bytes) of the limits that bound host memory, as they were seen last."""
    seen = {
        _WORDS[name]: size
        for row in trace.known["limit"].values()
        if (name := limit_of(row.get(R.name))) is not None
        and name in _WORDS
        and isinstance(size := row.get(R.limit_bytes), int)
    }
    if window.limit_bytes:
        seen[_WORDS["node" if window.of_node else "cgroup"]] = window.limit_bytes
    yield from seen.items()


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
            says=quoted(event[R.text]) if event.get(R.text) else say("alarm"),
        )
    for event in trace.of(RECORD.note.oom_kill):
        yield Mark(at_s=_at(trace, event, begin_s), kind="kill", says=say("the kernel's OOM killer"))
    death = incident.death if incident is not None else None
    if death is not None and death.time is not None:
        yield Mark(at_s=max(death.time - begin_s, 0.0), kind="death", says=killer_says(death))


def _at(trace: Recorded, event: RecordEvent, begin_s: float) -> float:
    return max(trace.seconds(time_of(event)) - begin_s, 0.0)
