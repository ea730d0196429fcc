"""A panel of a chart as SVG, as it is seen without JavaScript; report.js draws the same from the same numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import accumulate

from rlhfdoctor.charts import Chart, Panel
from rlhfdoctor.i18n.message import ENGLISH, Language, say
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.units import show_bytes

WIDTH, HEIGHT = 960, 260
LEFT, RIGHT, TOP, BOTTOM = 66, 12, 16, 24
"""Margins in pixels, the same in report.js."""
_COLOURS = {
    "actor": 0,
    "critic": 1,
    "reference": 2,
    "reward": 3,
    "rollout engine": 4,
    "reward worker": 5,
    "data loader": 6,
    "driver": 7,
    "worker": 8,
    "raylet": 9,
    "other": 10,
    "anonymous": 0,
    "page-locked": 1,
    "other shared": 4,
    "page cache": 10,
    "kernel": 9,
}
PALETTE = (
    "#4477aa",
    "#cc4455",
    "#228833",
    "#b8a222",
    "#33a0c4",
    "#aa3377",
    "#8a8a2e",
    "#d98a1f",
    "#b07c4f",
    "#6b6f76",
    "#c3c8ce",
)
"""The colours of `colours`, on white; report.css has them for dark pages, too."""
PHASES = {
    "load": "#a8b0b8",
    "rollout": "#58b79a",
    "score": "#e3b53c",
    "update": "#7f8be0",
    "weight_sync": "#d77fb8",
    "checkpoint": "#d95f4f",
    "eval": "#9ac14a",
}
_ROUND = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TENTHS_S = 20
"""A shorter run has tenths of a second on its axis."""
_MARKED = ("death", "kill", "alarm")


def colours(panel: Panel) -> list[str]:
    """The class of each name, the same for a role in every picture."""
    return [f"c{_COLOURS.get(name.id, place % 11)}" for place, name in enumerate(panel.names)]


@dataclass(frozen=True, slots=True)
class _Scale:
    length_s: float
    top_bytes: int

    def x(self, at_s: float) -> float:
        return round(LEFT + at_s / self.length_s * (WIDTH - LEFT - RIGHT), 1)

    def y(self, size: float) -> float:
        return round(HEIGHT - BOTTOM - size / self.top_bytes * (HEIGHT - TOP - BOTTOM), 1)


def draw(chart: Chart, panel: Panel, classes: Sequence[str], t: Language = ENGLISH) -> str:
    """The panel over the whole run, drawn from its coarsest level.

    Args:
        classes: of each name, for its colour.
    """
    scale = _Scale(chart.length_s, top_of(panel))
    label = t(say("{title}: at most {top:bytes}", title=panel.title, top=panel.top_bytes))
    body = "".join(
        (
            *_phases(chart, scale),
            *_areas(panel, scale, classes),
            *_axes(chart, scale),
            *_bounds(panel, scale, t),
            *_marks(chart, scale, t),
        )
    )
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(label)}">{body}</svg>'


def top_of(panel: Panel) -> int:
    """The upper end of the axis: a little above what is drawn, limits included."""
    return round(1.05 * max([panel.top_bytes, 1, *(bound.bytes for bound in panel.bounds)]))


def _phases(chart: Chart, scale: _Scale) -> Iterator[str]:
    for span in chart.spans:
        width = scale.x(span.end_s) - scale.x(span.begin_s)
        if width >= 0.5:
            place = f'x="{scale.x(span.begin_s)}" y="4" width="{width:.1f}" height="8"'
            yield f'<rect class="p-{escape(span.phase)}" {place}/>'


def _areas(panel: Panel, scale: _Scale, classes: Sequence[str]) -> Iterator[str]:
    level = panel.levels[0]
    xs = [scale.x(at) for at in level.times_s]
    if not panel.stacked:
        for row, name in zip(panel.levels[0].values, classes, strict=True):
            points = " ".join(f"{x},{scale.y(size)}" for x, size in zip(xs, row, strict=True) if size >= 0)
            yield f'<polyline class="line {name}" points="{points}"/>'
        return
    columns = [
        list(accumulate((max(size, 0) for size in column), initial=0)) for column in zip(*level.values, strict=True)
    ]
    for place, name in enumerate(classes):
        upper = [f"{x},{scale.y(column[place + 1])}" for x, column in zip(xs, columns, strict=True)]
        lower = [f"{x},{scale.y(column[place])}" for x, column in zip(xs, columns, strict=True)]
        yield f'<polygon class="area {name}" points="{" ".join(upper + lower[::-1])}"/>'


def _axes(chart: Chart, scale: _Scale) -> Iterator[str]:
    for size in ticks(scale.top_bytes):
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{scale.y(size)}" y2="{scale.y(size)}"/>'
        yield f'<text class="tick end" x="{LEFT - 6}" y="{scale.y(size) + 4}">{show_bytes(size)}</text>'
    for part in range(5):
        at = chart.length_s * part / 4
        place = "" if part == 0 else " end" if part == 4 else " middle"
        label = show_elapsed(at, chart.length_s < _TENTHS_S)
        yield f'<text class="tick{place}" x="{scale.x(at)}" y="{HEIGHT - 6}">{label}</text>'


def ticks(top_bytes: int) -> list[int]:
    """Round sizes up to the axis's end, three to six of them.

    >>> [show_bytes(size) for size in ticks(9 << 30)]
    ['0 B', '2.00 GiB', '4.00 GiB', '6.00 GiB', '8.00 GiB']
    """
    raw = max(top_bytes / 5, 1.0)
    unit = next((1024**power for power in (4, 3, 2, 1) if raw >= 1024**power), 1)
    step = next((size * unit for size in _ROUND if size * unit >= raw), 1024 * unit)
    return list(range(0, top_bytes + 1, step))


def _bounds(panel: Panel, scale: _Scale, t: Language) -> Iterator[str]:
    for bound in panel.bounds:
        y = scale.y(bound.bytes)
        yield f'<line class="bound" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        below = y - 4 if y > TOP + 14 else y + 13
        label = f"{escape(t(bound.name))} {show_bytes(bound.bytes)}"
        yield f'<text class="bound-name" x="{LEFT + 6}" y="{below}">{label}</text>'


def _marks(chart: Chart, scale: _Scale, t: Language) -> Iterator[str]:
    for mark in chart.marks:
        if mark.kind in _MARKED and mark.at_s <= chart.length_s + 2:
            x = min(scale.x(mark.at_s), WIDTH - RIGHT)
            title = f"<title>{escape(clean(t(mark.says)))}</title>"
            yield f'<line class="mark {mark.kind}" x1="{x}" x2="{x}" y1="{TOP}" y2="{HEIGHT - BOTTOM}">{title}</line>'
            if mark.kind == "death":
                side, at = ("end", x - 5) if x > WIDTH / 2 else ("", x + 5)
                label = escape(clean(t(mark.says), 40))
                yield f'<text class="mark-name {side}" x="{at}" y="{TOP + 30}">{label}</text>'


def show_elapsed(seconds: float, tenths: bool = False) -> str:
    """Time since the start, as labelled on the axis.

    >>> show_elapsed(0), show_elapsed(75), show_elapsed(3725), show_elapsed(1.26, tenths=True)
    ('0:00', '1:15', '1:02:05', '0:01.3')
    """
    if tenths:
        minutes, rest = divmod(round(seconds, 1), 60)
        return f"{int(minutes)}:{rest:04.1f}"
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, last = divmod(rest, 60)
    return f"{hours}:{minutes:02d}:{last:02d}" if hours else f"{minutes}:{last:02d}"
