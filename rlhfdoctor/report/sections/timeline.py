"""What happened, in order: the lines that the findings rest on, in time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rlhfdoctor.i18n.message import Language, plural, say
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Event, Incident
from rlhfdoctor.units import show_time

if TYPE_CHECKING:
    from rlhfdoctor.charts import Chart


def _html(incident: Incident, charts: Sequence[Chart], _t: Language) -> dict[str, Any]:
    """A row for each line; of progress between two others only what a finding quotes."""
    rows: list[dict[str, Any]] = []
    for kept, group in groupby(_places(incident), lambda place: _is_kept(incident, place)):
        places = list(group)
        if kept or len(places) <= _FEW:
            rows += [{"number": place, **_event(incident.timeline[place], charts, incident)} for place in places]
        else:
            rows.append({"folded": plural("{n} more line of progress", "{n} more lines of progress", len(places))})
    stamped = [bool(row.get("time")) for row in rows if "folded" not in row]
    return {"events": rows, "has_times": any(stamped), "unordered": not all(stamped)}


_FEW = 3
"""So many lines of progress are shown as they are."""


def _places(incident: Incident) -> list[int]:
    """Of the events, each line of a file once."""
    first: dict[tuple[str, int | None, str], int] = {}
    for place, event in enumerate(incident.timeline):
        at = (event.origin.file, event.origin.line, event.text)
        first.setdefault(at, place)
    return sorted(first.values())


def _is_kept(incident: Incident, place: int) -> bool:
    """Whether a line is more than progress: a failure, the last one before it, or what a finding quotes."""
    event = incident.timeline[place]
    quotes = (quote for finding in incident.findings for quote in (*finding.evidence, *finding.against))
    if event.kind.scope != "phase" or any((q.file, q.line) == (event.origin.file, event.origin.line) for q in quotes):
        return True
    following = incident.timeline[place + 1] if place + 1 < len(incident.timeline) else None
    return following is None or following.kind.scope != "phase"


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
