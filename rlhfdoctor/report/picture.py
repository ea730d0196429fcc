"""The charts as one PNG or SVG file, for papers, slides, issue trackers; drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from rlhfdoctor.charts import Chart, Mark, Panel
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.report.drawing import PALETTE, PHASES, colours, show_elapsed, ticks, top_of
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.units import show_bytes, show_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = {"death": ("#b3261e", "-"), "kill": ("#b3261e", "-"), "alarm": ("#9a6700", ":")}
_FINE = 1
"""Of a panel's levels the second has more points than a picture has pixels."""


def render(charts: Sequence[Chart], title: Message, form: Literal["png", "svg"], *, dpi: int = 150) -> bytes:
    """The first chart's panels below one another, as the bytes of a file.

    Args:
        title: the verdict, in one line.
        dpi: dots an inch; the picture is 11 inches wide.

    Raises:
        UsageError: there is no chart, or matplotlib is not installed.
    """
    if not charts or not charts[0].panels:
        raise UsageError(
            say("a picture needs a trace of two samples or more: give the folder that `doctor watch` wrote")
        )
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise UsageError(
            say("{form} needs matplotlib: pip install 'rlhfdoctor[pictures]'", form=form.upper())
        ) from None
    chart = charts[0]
    figure = Figure(figsize=(11, 1.2 + 2.7 * len(chart.panels)), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(chart.panels), 1, sharex=True, squeeze=False)[:, 0]
    for axis, panel in zip(axes, chart.panels, strict=True):
        draw_panel(axis, chart, panel)
    more = f"; {len(charts) - 1} more nodes are not shown" if len(charts) > 1 else ""
    said = "".join(f"\n{clean(str(note))}" for note in chart.notes)
    axes[-1].set_xlabel(f"time since {show_time(chart.begin_s)} on {clean(chart.node)}{more}{said}".replace("$", r"\$"))
    phases = dict.fromkeys(span.phase for span in chart.spans)
    keys = [Patch(color=PHASES.get(phase, "#999999"), label=phase.replace("_", " ")) for phase in phases]
    if keys:
        figure.legend(handles=keys, loc="outside lower left", ncols=len(keys), fontsize=8, frameon=False)
    figure.suptitle(clean(str(title), 120).replace("$", r"\$"), x=0.01, ha="left", fontsize=12, fontweight="bold")
    out = io.BytesIO()
    figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


def draw_panel(axis: Axes, chart: Chart, panel: Panel) -> None:
    """A panel on matplotlib axes: areas or lines, limits, phases on top, kills."""
    level = panel.levels[min(_FINE, len(panel.levels) - 1)]
    shades = [PALETTE[int(name[1:])] for name in colours(panel)]
    if panel.stacked:
        known = [[max(size, 0) for size in row] for row in level.values]
        axis.stackplot(level.times_s, known, labels=[str(name) for name in panel.names], colors=shades, linewidth=0)
    else:
        for name, row, shade in zip(panel.names, level.values, shades, strict=True):
            axis.plot(
                level.times_s, [size if size >= 0 else float("nan") for size in row], label=str(name), color=shade
            )
    top = top_of(panel)
    for bound in panel.bounds:
        axis.axhline(bound.bytes, color="#b3261e", linestyle="--", linewidth=1)
        says = f"{bound.name} {show_bytes(bound.bytes)}"
        axis.text(0.005 * chart.length_s, bound.bytes, says, color="#b3261e", fontsize=8, va="bottom")
    for span in chart.spans:
        place = (span.begin_s / chart.length_s, (span.end_s - span.begin_s) / chart.length_s)
        axis.barh(
            1.03,
            place[1],
            left=place[0],
            height=0.03,
            color=PHASES.get(span.phase, "#999999"),
            transform=axis.transAxes,
            clip_on=False,
        )
    for mark in chart.marks:
        _draw_mark(axis, mark)
    axis.set(xlim=(0, chart.length_s), ylim=(0, top), yticks=ticks(top))
    axis.set_title(str(panel.title), loc="left", fontsize=9, pad=12)
    axis.yaxis.set_major_formatter(_labels(show_bytes))
    axis.xaxis.set_major_formatter(_labels(show_elapsed))
    axis.grid(axis="y", linewidth=0.5, alpha=0.5)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def _draw_mark(axis: Axes, mark: Mark) -> None:
    if mark.kind in _STYLE:
        shade, line = _STYLE[mark.kind]
        axis.axvline(mark.at_s, color=shade, linestyle=line, linewidth=1)


def _labels(show: Any) -> Any:
    return lambda value, _place: show(max(value, 0))
