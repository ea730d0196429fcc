"""The charts as one PNG or SVG file, for papers, slides, issue trackers; drawn by matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rlhfdoctor.charts import Chart, Mark, Panel
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import ENGLISH, Language, Message, plural, say, term
from rlhfdoctor.report.drawing import PALETTE, PHASES, colours, show_elapsed, ticks, top_of
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.units import show_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_STYLE = {"death": ("#b3261e", "-"), "kill": ("#b3261e", "-"), "alarm": ("#9a6700", ":")}
_FINE = 1
"""Of a panel's levels the second has more points than a picture has pixels."""


def render(
    charts: Sequence[Chart], title: Message, form: Literal["png", "svg"], *, dpi: int = 150, words: Language = ENGLISH
) -> bytes:
    """The first chart's panels below one another, as the bytes of a file.

    Args:
        title: the verdict, in one line.
        dpi: dots an inch; the picture is 11 inches wide.
        words: the language of what is written, if the machine has a font for it; else it is English.

    Raises:
        UsageError: there is no chart, or matplotlib is not installed.
    """
    if not charts or not charts[0].panels:
        raise UsageError(
            say("a picture needs a trace of two samples or more: give the folder that `doctor watch` wrote")
        )
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise UsageError(
            say("{form} needs matplotlib: pip install 'rlhfdoctor[pictures]'", form=form.upper())
        ) from None
    chart = charts[0]
    fonts = _fonts(words)
    t = words if fonts else ENGLISH
    with rc_context({"font.family": fonts or ["sans-serif"]}):
        figure = Figure(figsize=(11, 1.2 + 2.7 * len(chart.panels)), dpi=dpi, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(chart.panels), 1, sharex=True, squeeze=False)[:, 0]
        for axis, panel in zip(axes, chart.panels, strict=True):
            draw_panel(axis, chart, panel, t)
        axes[-1].set_xlabel(_below(chart, len(charts) - 1, t).replace("$", r"\$"))
        phases = dict.fromkeys(span.phase for span in chart.spans)
        keys = [Patch(color=PHASES.get(phase, "#999999"), label=t(term(phase.replace("_", " ")))) for phase in phases]
        if keys:
            figure.legend(handles=keys, loc="outside lower left", ncols=len(keys), fontsize=8, frameon=False)
        figure.suptitle(clean(t(title), 120).replace("$", r"\$"), x=0.01, ha="left", fontsize=12, fontweight="bold")
        out = io.BytesIO()
        figure.savefig(out, format=form, metadata={"Date": None} if form == "svg" else None)
    return out.getvalue()


_FONTS: Mapping[str, Sequence[str]] = {
    "en": ("sans-serif",),
    "zh": (
        "Noto Sans CJK SC",
        "Noto Sans CJK JP",  # matplotlib knows a collection of fonts by its first one, which has all of the characters
        "Source Han Sans SC",
        "WenQuanYi Micro Hei",
        "WenQuanYi Zen Hei",
        "Droid Sans Fallback",
        "PingFang SC",
        "Microsoft YaHei",
        "SimHei",
    ),
}
"""Of each language the families that have its letters."""


def _fonts(words: Language) -> list[str]:
    """The families of this machine in which the language can be written, the usual one after them; empty if none."""
    from matplotlib.font_manager import fontManager

    known = {*fontManager.get_font_names(), "sans-serif"}
    found = [family for family in _FONTS.get(words.name, ()) if family in known]
    return [*found[:1], "DejaVu Sans"] if found and words is not ENGLISH else found


def _below(chart: Chart, others_count: int, t: Language) -> str:
    """What the axis of time is, and what the picture leaves out."""
    axis = t(say("time since {begin:time} on {node}", begin=chart.begin_s, node=clean(chart.node)))
    if others_count:
        axis += t.stop + " " + t(plural("{n} more node is not shown", "{n} more nodes are not shown", others_count))
    return "\n".join((axis, *(clean(t(note)) for note in chart.notes)))


def draw_panel(axis: Axes, chart: Chart, panel: Panel, t: Language = ENGLISH) -> None:
    """A panel on matplotlib axes: areas or lines, limits, phases on top, kills."""
    level = panel.levels[min(_FINE, len(panel.levels) - 1)]
    shades = [PALETTE[int(name[1:])] for name in colours(panel)]
    if panel.stacked:
        known = [[max(size, 0) for size in row] for row in level.values]
        axis.stackplot(level.times_s, known, labels=list(map(t, panel.names)), colors=shades, linewidth=0)
    else:
        for name, row, shade in zip(panel.names, level.values, shades, strict=True):
            axis.plot(level.times_s, [size if size >= 0 else float("nan") for size in row], label=t(name), color=shade)
    top = top_of(panel)
    for bound in panel.bounds:
        axis.axhline(bound.bytes, color="#b3261e", linestyle="--", linewidth=1)
        says = f"{t(bound.name)} {show_bytes(bound.bytes)}"
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
        _draw_mark(axis, mark, mark.at_s < chart.length_s / 2, t)
    axis.set(xlim=(0, chart.length_s), ylim=(0, top), yticks=ticks(top))
    axis.set_title(t(panel.title), loc="left", fontsize=9, pad=12)
    axis.yaxis.set_major_formatter(_labels(show_bytes))
    axis.xaxis.set_major_formatter(_labels(show_elapsed))
    axis.grid(axis="y", linewidth=0.5, alpha=0.5)
    axis.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8, frameon=False)


def _draw_mark(axis: Axes, mark: Mark, is_early: bool, t: Language) -> None:
    if mark.kind in _STYLE:
        shade, line = _STYLE[mark.kind]
        axis.axvline(mark.at_s, color=shade, linestyle=line, linewidth=1)
    if mark.kind == "death":
        axis.annotate(
            clean(t(mark.says), 60).replace("$", r"\$"),
            (mark.at_s, 0.8),
            xycoords=("data", "axes fraction"),
            xytext=(5 if is_early else -5, 0),
            textcoords="offset points",
            ha="left" if is_early else "right",
            color=_STYLE["death"][0],
            fontsize=8,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1},
        )


def _labels(show: Any) -> Any:
    return lambda value, _place: show(max(value, 0))
