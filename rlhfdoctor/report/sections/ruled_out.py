"""Causes that were looked at, each with the fact that excludes it."""

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
    page.heading(say("ruled out"))
    for item in incident.ruled_out:
        page.write(f"{item.cause}: {page.words(item.because)}")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"### {t(say('Ruled out'))}", "")
    yield from (f"- **{item.cause}**: {plain(t(item.because))}" for item in incident.ruled_out)
    yield ""


def _to_dict(incident: Incident) -> list[dict[str, Any]]:
    return [{"cause": item.cause, **said(because=item.because)} for item in incident.ruled_out]


SECTION = Section(
    name="ruled_out",
    place=30,
    title=say("ruled out"),
    has=lambda incident: bool(incident.ruled_out),
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {},
    to_dict=_to_dict,
)
