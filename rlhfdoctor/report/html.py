"""The report as one HTML file that needs no network: readable without JavaScript, to be looked into with it."""

from __future__ import annotations

import base64
import zlib
from array import array
from collections.abc import Mapping, Sequence
from operator import sub
from typing import Any

from markupsafe import Markup

from rlhfdoctor.charts import Chart, Level, Panel
from rlhfdoctor.i18n.message import ENGLISH, NOTHING, Language, Message, say, term
from rlhfdoctor.report.composed import composed
from rlhfdoctor.report.drawing import colours, draw, show_elapsed, top_of
from rlhfdoctor.report.next_step import next_command, next_step
from rlhfdoctor.report.phrasing import (
    VERDICTS,
    headline,
    killed,
    known_version,
    sentence,
    vanished,
)
from rlhfdoctor.report.sanitize import clean, visible
from rlhfdoctor.report.section import sections
from rlhfdoctor.report.sections.coverage import coverage_says
from rlhfdoctor.report.web import make_environment, read_template, shared_values
from rlhfdoctor.types import Incident
from rlhfdoctor.units import show_bytes, show_confidence, show_time

_STALE_S = 15.0
_MOST = 2**31 - 1
_STEPS = 1 << 14
"""Values are rounded to 1/_STEPS of the highest one, or to KiB: finer than a pixel at any zoom that samples allow."""
_KEYS: Mapping[str, Message] = {
    "death": say("the end of the run"),
    "kill": say("a kill by the kernel"),
    "alarm": say("an alarm of the recorder"),
    "step": say("a step"),
}
_SPOKEN = (say("together"), say("copied"), say("selected: press Ctrl+C"), say(" to "))
"""Texts of report.js."""


def render(
    incident: Incident,
    charts: Sequence[Chart] = (),
    *,
    made_s: float | None = None,
    version: str = "",
    words: Language = ENGLISH,
) -> str:
    """The whole page, in the language of `words`.

    Args:
        charts: of recorded nodes, that of the death first.
        made_s: when the report was made, Unix seconds; omitted if None.
        version: of the doctor.
    """
    script = read_template("report.js")
    environment = make_environment(words)
    environment.filters |= {
        "exact": _exact,
        "whole_words": _whole_words,
        "visible": visible,
        "bytes": show_bytes,
        "sentence": lambda message: sentence(message, words),
        "elapsed": show_elapsed,
        "growth": _growth,
    }
    shown = [section for section in sections() if section.html is not None and section.has(incident)]
    values: dict[str, Any] = {}
    for section in shown:
        values |= section.html(incident, charts, words) if section.html is not None else {}
    return environment.get_template("report.html").render(
        incident=incident,
        **shared_values(words, script),
        script=Markup(script),  # our own file, hashed by the policy
        say=say,
        verdict=words(VERDICTS[incident.verdict]),
        spoken={message.id: words(message) for message in _SPOKEN},
        headline=headline(incident),
        is_cause=incident.verdict == "cause",
        killed=killed(incident),
        vanished=words(vanished(incident.death)),
        composed=composed(incident),
        coverage=coverage_says(incident) if incident.coverage.read else NOTHING,
        next_step=say("now: {step}", step=next_step(incident)),
        next_command=" ".join(next_command(incident)),
        framework=words(known_version(incident.framework)) if incident.framework is not None else "",
        charts=[_chart(number, chart, words) for number, chart in enumerate(charts)],
        show_confidence=show_confidence,
        sections=shown,
        **values,
        made=show_time(made_s) if made_s is not None else "",
        version=version,
    )


def _whole_words(text: str) -> Markup:
    """A command of which no word is broken at a hyphen."""
    return Markup(" ").join(Markup("<span>{}</span>").format(word) for word in text.split(" "))


def _exact(text: str) -> str:
    """Text for the clipboard, byte for byte, in letters that no parser changes."""
    return base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()


def _growth(slope: float | None) -> str:
    """Bytes a minute with a sign; empty where they are unknown, or less than a MiB."""
    if slope is None or abs(slope) * 60 < 1 << 20:
        return ""
    return ("+" if slope > 0 else "") + show_bytes(slope * 60)


def _chart(number: int, chart: Chart, t: Language) -> dict[str, Any]:
    death = next((mark.at_s for mark in chart.marks if mark.kind == "death"), None)
    peaks = _peaks(chart, death, t)
    return {
        "number": number,
        "chart": chart,
        "begin": show_time(chart.begin_s),
        "length": show_elapsed(chart.length_s),
        "phases": [
            (phase, t(term(phase.replace("_", " ")))) for phase in dict.fromkeys(span.phase for span in chart.spans)
        ],
        "marks": [(kind, t(says)) for kind, says in _KEYS.items() if any(mark.kind == kind for mark in chart.marks)],
        "panels": [_panel(chart, panel, t) for panel in chart.panels],
        "peaks": peaks,
        "died": any(then is not None for *_, then in peaks),
        "data": {
            "begin": chart.begin_s,
            "length": chart.length_s,
            "words": {s.phase: t(term(s.phase.replace("_", " "))) for s in chart.spans},
            "spans": [[s.phase, round(s.begin_s, 3), round(s.end_s, 3)] for s in chart.spans],
            "marks": [[m.kind, round(m.at_s, 3), clean(t(m.says))] for m in chart.marks],
            "panels": [_data(panel, t) for panel in chart.panels],
        },
    }


def _panel(chart: Chart, panel: Panel, t: Language) -> dict[str, Any]:
    classes = colours(panel)
    return {
        "panel": panel,
        "svg": Markup(draw(chart, panel, classes, t)),
        "legend": list(zip(map(t, panel.names), classes, strict=True)),
    }


def _peaks(chart: Chart, death: float | None, t: Language) -> list[tuple[str, int, str, int | None]]:
    """(name, highest bytes, when, bytes at the last sample before the death) of the first panel, in figures."""
    if not chart.panels:
        return []
    panel = chart.panels[0]
    level = panel.levels[-1]
    rows = []
    last = max((place for place, at in enumerate(level.times_s) if death is None or at <= death), default=0)
    if death is not None and death - level.times_s[last] > _STALE_S:
        death = None  # the time long before it is irrelevant
    for name, values in zip(map(t, panel.names), level.values, strict=True):
        place = max(range(len(values)), key=values.__getitem__)
        rows.append(
            (name, values[place], show_elapsed(level.times_s[place]), values[last] if death is not None else None)
        )
    return sorted(rows, key=lambda row: -row[1])


def _data(panel: Panel, t: Language) -> dict[str, Any]:
    """What report.js draws: per level base64 of deflated 32-bit differences, times in milliseconds first."""
    unit = max(1024, top_of(panel) // _STEPS)
    return {
        "title": t(panel.title),
        "stacked": panel.stacked,
        "names": [t(name) for name in panel.names],
        "classes": colours(panel),
        "top": top_of(panel),
        "unit": unit,
        "bounds": [[t(bound.name), bound.bytes] for bound in panel.bounds],
        "levels": [{"count": len(level.times_s), "data": pack(level, unit)} for level in panel.levels],
    }


def pack(level: Level, unit: int) -> str:
    """A level as text: differences of times (ms), then of each name's values (in units, -1 for unknown), deflated."""
    times = [round(at * 1000) for at in level.times_s]
    numbers = array("i", (min(at - before, _MOST) for at, before in zip(times, [0, *times])))  # gaps of at most 24 days
    for sizes in level.values:
        row = [-1 if size < 0 else round(size / unit) for size in sizes]
        numbers.extend(map(sub, row, [0, *row]))
    if numbers.itemsize != 4:
        raise TypeError("a C int is not 32 bits wide here")
    return base64.b64encode(zlib.compress(numbers.tobytes(), 9)).decode()
