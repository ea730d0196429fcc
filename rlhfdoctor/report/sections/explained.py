"""Measured, explained by: what each kind of process held, by the parts of a configuration that account for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlhfdoctor.explanation import COMPONENT_SAYS, Explained, Explanation, Suspect
from rlhfdoctor.i18n.message import NOTHING, Language, Message, joined, plural, say, term
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.shown import is_of_host_memory
from rlhfdoctor.types import Incident
from rlhfdoctor.units import show_bytes

if TYPE_CHECKING:
    from rlhfdoctor.charts import Chart

_ROWS, _PARTS = 5, 4
_SMALL_RATIO = 0.02
"""Rows and parts below this share are left to the JSON report."""
_POSSIBLE = 0.1
"""A suspect from this probability on is worth naming."""


def _is_shown(incident: Incident) -> bool:
    return incident.explained is not None and incident.explained.is_modelled and is_of_host_memory(incident)


def _text(incident: Incident, page: Page) -> None:
    found = incident.explained
    if found is None:
        return
    page.heading(say("measured, explained by"))
    for row in _rows(found):
        page.write(
            page.words(say("{who}: {parts}", who=_who(row), parts=_parts(row))),
            first=f"{show_bytes(row.bytes):>10}  ",
            rest=" " * 14,
        )
    page.write(page.words(_verdict(found)))
    page.write(page.words(_basis(found)), "dim")


def _rows(found: Explanation) -> Sequence[Explained]:
    return [row for row in found.rows if row.bytes >= _SMALL_RATIO * found.total_bytes][:_ROWS]


def _who(row: Explained) -> Message:
    """The role, how many processes, and the name where the role says little."""
    count = plural("{n} process", "{n} processes", row.count)
    if row.name and row.role == "other":
        return say("{name}, {count}", name=clean(row.name, 40), count=count)
    return say("{role}, {count}", role=term(row.role), count=count)


def _parts(row: Explained) -> Message:
    """The largest components, and what is left."""
    parts = [
        say("{component} {size:bytes}", component=COMPONENT_SAYS[part.component], size=part.bytes)
        for part in row.parts
        if part.bytes >= _SMALL_RATIO * row.bytes
    ][:_PARTS]
    rest = row.rest_bytes
    left = NOTHING
    if rest > _SMALL_RATIO * row.bytes:
        left = say("unexplained {size:bytes}", size=rest)
    elif rest < -_SMALL_RATIO * row.bytes:
        left = say("{size:bytes} less than these parts", size=-rest)
    return joined(*parts, left, by=", ")


def _verdict(found: Explanation) -> Message:
    """Which component filled the memory, or which ones are possible."""
    role = term(found.rows[0].role)
    likely, copy = found.likely, found.copy
    if likely is not None:
        what = COMPONENT_SAYS[likely.component]
        mostly = say("{role} held mostly {what} ({sure} likely)", role=role, what=what, sure=_sure(likely))
        if likely.component == "something else":
            mostly = say(
                "no part of the configuration explains most of what {role} held ({sure} likely)",
                role=role,
                sure=_sure(likely),
            )
        besides = NOTHING
        if copy is not None and copy.component != likely.component:
            besides = say("besides, {what} ({sure} likely)", what=COMPONENT_SAYS[copy.component], sure=_sure(copy))
        return joined(mostly, besides)
    possible = [
        say("{what} ({sure})", what=COMPONENT_SAYS[one.component], sure=_sure(one))
        for one in found.suspects
        if one.probability >= _POSSIBLE
    ]
    several = joined(*possible, by=", ")
    return say("several explain what {role} held about equally well: {several}", role=role, several=several)


def _sure(one: Suspect) -> str:
    """In steps of 5 %, and never certain: what simulated tables carry (tests/exam/EXPLAINED.md)."""
    return f"{min(round(one.probability * 20) / 20, 0.95):.0%}"


def _basis(found: Explanation) -> Message:
    """What was measured, and under which configuration it is explained."""
    if not found.assumed:
        return say("measured: {basis}; no configuration that the budget knows explains it", basis=found.basis)
    if found.is_guessed:
        return say(
            "measured: {basis}; no configuration at hand, fits: {assumed}", basis=found.basis, assumed=found.assumed
        )
    return say("measured: {basis}; explained {assumed}", basis=found.basis, assumed=found.assumed)


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    found = incident.explained
    if found is None:
        return
    yield from (f"### {t(say('Measured, explained by'))}", "")
    yield from (f"| {t(say('processes'))} | {t(say('measured'))} | {t(say('explained by'))} |", "|---|---:|---|")
    for row in _rows(found):
        yield f"| {plain(t(_who(row)))} | {show_bytes(row.bytes)} | {plain(t(_parts(row)))} |"
    yield from ("", f"{plain(t(_verdict(found)))}  ", plain(t(_basis(found))), "")


def _html(incident: Incident, _charts: Sequence[Chart], _t: Language) -> dict[str, Any]:
    found = incident.explained
    if found is None:
        return {}
    rows = [{"who": _who(row), "bytes": row.bytes, "parts": _parts(row)} for row in _rows(found)]
    return {"explained": {"rows": rows, "verdict": _verdict(found), "basis": _basis(found)}}


def _to_dict(incident: Incident) -> dict[str, Any] | None:
    found = incident.explained
    if found is None:
        return None
    return {
        "rows": [
            {
                "role": row.role,
                "name": clean(row.name),
                "count": row.count,
                "bytes": row.bytes,
                "parts": [
                    {"component": part.component, "bytes": part.bytes, "roles": list(part.roles)} for part in row.parts
                ],
                "rest_bytes": row.rest_bytes,
            }
            for row in found.rows
        ],
        "consumer": [
            {"role": one.role, "component": one.component, "probability": round(one.probability, 3)}
            for one in found.suspects
        ],
        "copies": [{"component": one.component, "probability": round(one.probability, 3)} for one in found.passing],
        "guessed": found.is_guessed,
        "victim_ratio": None if found.victim_ratio is None else round(found.victim_ratio, 3),
        **said(basis=found.basis, assumed=found.assumed),
    }


SECTION = Section(
    name="explained",
    place=45,
    title=say("measured, explained by"),
    has=_is_shown,
    text=_text,
    markdown=_markdown,
    html=_html,
    to_dict=_to_dict,
)
