"""What was read, of which hosts, from when to when; what was not given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlhfdoctor.coverage import Covered, SourceKind
from rlhfdoctor.i18n.message import Language, Message, joined, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.phrasing import sentence
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident
from rlhfdoctor.units import show_clock, show_time

_HOST_COUNT = 3
KIND_SAYS: Mapping[SourceKind, Message] = {
    "trace": say("recording"),
    "kernel log": say("kernel log"),
    "Ray's logs": say("Ray's logs"),
    "job log": say("job's log"),
    "configuration": say("configuration"),
}


def coverage_says(incident: Incident) -> Message:
    """One line: what was read, then what was not given."""
    rows = incident.coverage.read
    days = {show_time(at)[:10] for row in rows for at in (row.from_s, row.until_s) if at is not None}
    what = tuple(_read(row, len(days) == 1) for row in rows)
    says = say("read: {what:, }", what=what)
    if len(days) == 1:
        says = say("read, all of {day}: {what:, }", day=days.pop(), what=what)
    lacks = tuple(KIND_SAYS[kind] for kind in incident.coverage.missing)
    return joined(says, say("not given: {what:, }", what=lacks)) if lacks else says


def _read(row: Covered, of_one_day: bool) -> Message:
    name = KIND_SAYS[row.kind]
    if row.hosts:
        shown = row.hosts if len(row.hosts) <= _HOST_COUNT else (*row.hosts[: _HOST_COUNT - 1], "...")
        name = say("{source} of {hosts:, }", source=name, hosts=shown)
    if row.from_s is None or row.until_s is None:
        return name
    if not of_one_day:
        return say("{source} ({first:time} to {last:time})", source=name, first=row.from_s, last=row.until_s)
    if show_clock(row.from_s) == show_clock(row.until_s):
        return say("{source} ({at:clock})", source=name, at=row.from_s)
    return say("{source} ({first:clock} to {last:clock})", source=name, first=row.from_s, last=row.until_s)


def _text(incident: Incident, page: Page) -> None:
    page.write(page.words(coverage_says(incident)), "dim")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (plain(sentence(coverage_says(incident), t)), "")


def _to_dict(incident: Incident) -> dict[str, Any]:
    rows = [
        {
            "kind": row.kind,
            "count": row.count,
            "hosts": list(row.hosts),
            "from": _shown(row.from_s),
            "until": _shown(row.until_s),
        }
        for row in incident.coverage.read
    ]
    return {"read": rows, "not_given": list(incident.coverage.missing), "runs": list(incident.coverage.runs)}


def _shown(at: float | None) -> str | None:
    return None if at is None else show_time(at)


SECTION = Section(
    name="coverage",
    place=6,
    has=lambda incident: bool(incident.coverage.read),
    text=_text,
    markdown=_markdown,
    to_dict=_to_dict,
)
