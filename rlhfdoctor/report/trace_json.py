"""A recorded run in figures as JSON, `rlhfdoctor.trace/1`: what its charts show, without the samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhfdoctor.charts import Chart, GpuSnapshot, Level, Panel
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.units import show_time

SCHEMA = "rlhfdoctor.trace/1"
_MOST_MARKS = 50


def to_dict(charts: Sequence[Chart]) -> dict[str, Any]:
    """Each recorded node: memory by role, kind and GPU with its peaks, the limits, the phases, what happened."""
    return {"schema": SCHEMA, "nodes": [_node(chart) for chart in charts]}


def _node(chart: Chart) -> dict[str, Any]:
    happened = [mark for mark in chart.marks if mark.kind != "step"]
    return {
        "node": clean(chart.node),
        "began": show_time(chart.begin_s),
        "length_s": round(chart.length_s, 1),
        "step_count": len(chart.marks) - len(happened),
        "panels": [_panel(panel) for panel in chart.panels],
        "phases": _phases(chart),
        "marks": [{"at_s": round(m.at_s, 1), "kind": m.kind, **said(says=m.says)} for m in happened[-_MOST_MARKS:]],
        "gpu_snapshots": [_snapshot(one) for one in chart.snapshots],
        **said(notes=chart.notes),
    }


def _snapshot(one: GpuSnapshot) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "role": clean(one.role),
        "at_s": round(one.at_s, 1),
        "ran_out_of_memory": one.ran_out,
        "held_bytes": one.held_bytes,
        "lines": [{"line": clean(line.text), "held_bytes": line.held_bytes} for line in one.lines],
    }


def _panel(panel: Panel) -> dict[str, Any]:
    level = panel.levels[-1]
    sums = [sum(size for size in column if size > 0) for column in zip(*level.values)]
    lines = [
        {**said(name=name), "last_bytes": max(values[-1], 0) if values else None, **_peak(values, level)}
        for name, values in zip(panel.names, level.values)
    ]
    return {
        "kind": panel.kind,
        **said(title=panel.title),
        "sample_count": len(level.times_s),
        "limits": [{**said(name=bound.name), "bytes": bound.bytes} for bound in panel.bounds],
        "lines": lines,
        "together": _peak(sums, level) if panel.stacked else None,
    }


def _peak(values: Sequence[int], level: Level) -> dict[str, Any]:
    """The highest sample; -1 is no sample."""
    place = max(range(len(values)), key=values.__getitem__, default=None)
    if place is None or values[place] < 0:
        return {"peak_bytes": None, "peak_at_s": None}
    return {"peak_bytes": values[place], "peak_at_s": round(level.times_s[place], 1)}


def _phases(chart: Chart) -> list[dict[str, Any]]:
    """How often each phase was entered, how long it took in all, and the peak of the first panel's sum in it."""
    panel = chart.panels[0] if chart.panels and chart.panels[0].stacked else None
    level = panel.levels[-1] if panel is not None else None
    sums = list(map(sum, zip(*level.values))) if level is not None else []
    found = []
    for phase in dict.fromkeys(span.phase for span in chart.spans):
        spans = [span for span in chart.spans if span.phase == phase]
        inside = [
            size
            for at, size in zip(level.times_s if level is not None else (), sums)
            if any(span.begin_s <= at <= span.end_s for span in spans)
        ]
        found.append(
            {
                "phase": phase,
                "count": len(spans),
                "total_s": round(sum(span.end_s - span.begin_s for span in spans), 1),
                "peak_bytes": max(inside, default=None),
            }
        )
    return found
