"""What happened, in order: the lines that the findings rest on, in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhfdoctor.charts import Chart
from rlhfdoctor.i18n.message import Language, say
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Event, Incident
from rlhfdoctor.units import show_time


def _html(incident: Incident, charts: Sequence[Chart], _t: Language) -> dict[str, Any]:
    return {"events": [_event(event, charts, incident) for event in incident.timeline]}


def _event(event: Event, charts: Sequence[Chart], incident: Incident) -> dict[str, Any]:
    """A line of the timeline, with its place in the first chart."""
    at = None
    if event.time is not None and charts and -60 <= event.time - charts[0].begin_s <= charts[0].length_s + 60:
        at = round(min(max(event.time - charts[0].begin_s, 0.0), charts[0].length_s), 3)
    return {
        "time": show_time(event.time) if event.time is not None else "",
        "at": at,
        "kind": event.kind,
        "origin": str(event.origin),
        "text": event.text,
        "fatal": incident.death is not None and event is incident.death.event,
    }


def _moment(event: Event) -> dict[str, Any]:
    return {
        "time": show_time(event.time) if event.time is not None else None,
        "kind": event.kind,
        "file": event.origin.file,
        "line": event.origin.line,
        "host": event.origin.host,
        "rank": event.origin.rank,
        "text": clean(event.text, 300),
    }


SECTION = Section(
    name="timeline",
    place=20,
    title=say("events"),
    has=lambda incident: bool(incident.timeline),
    html=_html,
    to_dict=lambda incident: [_moment(event) for event in incident.timeline],
)
