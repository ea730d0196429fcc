"""Warnings ahead of all advice: files that are hardly those of the run, several runs that were read as one."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.i18n.message import Language, Message, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.sections.differences import warn
from rlhfdoctor.types import Incident


def warnings(incident: Incident) -> list[Message]:
    """What makes the verdict, or its patches, one of something else than the run; mostly nothing."""
    return [warning for warning in (_several(incident), warn(incident)) if warning is not None]


def _several(incident: Incident) -> Message | None:
    count = len(incident.coverage.runs)
    says = say("this looks like {n} runs, one after the other, and was read as one: the verdict mixes them", n=count)
    return says if count else None


def _text(incident: Incident, page: Page) -> None:
    page.console.print()
    for warning in warnings(incident):
        page.write(page.words(warning), "yellow")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    for warning in warnings(incident):
        yield from (f"> {plain(t(warning))}", "")


SECTION = Section(
    name="warnings",
    place=5,
    title=say("warnings"),
    has=lambda incident: bool(warnings(incident)),
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {"warnings": warnings(incident)},
)
