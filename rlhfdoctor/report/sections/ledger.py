"""The ledger: who held how many bytes, by which figure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rlhfdoctor.i18n.message import NOTHING, Language, Message, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.said import said
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.shown import is_of_host_memory
from rlhfdoctor.types import Incident, Part
from rlhfdoctor.units import show_bytes

if TYPE_CHECKING:
    from rlhfdoctor.charts import Chart

_COUNT = 7


def _text(incident: Incident, page: Page) -> None:
    t = page.words
    page.heading(say("ledger"))
    for part, basis in _shown(incident.ledger):
        shared = part.is_rest and part.bytes < 0
        name = say("counted twice (shared pages)") if shared else part.part
        size = abs(part.bytes) if shared else part.bytes
        page.write(f"{show_bytes(size):>10}  {t(name)}{f'  ({t(basis)})' if basis else ''}")


def _shown(parts: Sequence[Part]) -> Iterator[tuple[Part, Message]]:
    """The largest parts and always the remainder; a basis is shown if it differs from the row above."""
    rest = [part for part in parts if part.is_rest or part.bytes < 0]
    before = NOTHING
    for part in [*[part for part in parts if part not in rest][:_COUNT], *rest]:
        yield part, NOTHING if part.basis == before else part.basis
        before = part.basis


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"### {t(say('Ledger'))}", "")
    yield from (f"| {t(say('part'))} | {t(say('size'))} | {t(say('basis'))} |", "|---|---:|---|")
    yield from (f"| {plain(t(p.part))} | {show_bytes(p.bytes)} | {plain(t(p.basis))} |" for p in incident.ledger)
    yield ""


def _html(incident: Incident, _charts: Sequence[Chart], _t: Language) -> dict[str, Any]:
    """Rows with their share of the largest, for the bar."""
    largest = max((abs(part.bytes) for part in incident.ledger), default=1) or 1
    rows = [
        {"part": part, "rest": part is incident.ledger[-1], "share": round(100 * abs(part.bytes) / largest)}
        for part in incident.ledger
    ]
    return {"ledger": rows}


def _to_dict(incident: Incident) -> list[dict[str, Any]]:
    return [{"bytes": part.bytes, **said(part=part.part, basis=part.basis)} for part in incident.ledger]


SECTION = Section(
    name="ledger",
    place=40,
    title=say("ledger"),
    has=lambda incident: bool(incident.ledger) and is_of_host_memory(incident),
    text=_text,
    markdown=_markdown,
    html=_html,
    to_dict=_to_dict,
)
