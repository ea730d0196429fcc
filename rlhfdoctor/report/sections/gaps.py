"""What could not be read, each with the reason."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.i18n.message import Language, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.said import said
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.heading(say("not read ({gaps})", gaps=len(incident.gaps)))
    for gap in incident.gaps:
        page.write(f"{page.words(gap.what)}: {page.words(gap.why)}", "dim")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"### {t(say('Not read'))}", "")
    yield from (f"- {plain(t(gap.what))}: {plain(t(gap.why))}" for gap in incident.gaps)
    yield ""


def _to_dict(incident: Incident) -> list[dict[str, Any]]:
    return [said(what=gap.what, why=gap.why) for gap in incident.gaps]


SECTION = Section(
    name="gaps",
    place=60,
    title=say("not read"),
    has=lambda incident: bool(incident.gaps),
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {},
    to_dict=_to_dict,
)
