"""A warning ahead of all advice where the user's files are hardly those of the run."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.i18n.message import NOTHING, Language, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.sections.differences import warn
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.console.print()
    page.write(page.words(warn(incident) or NOTHING), "yellow")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"> {plain(t(warn(incident) or NOTHING))}", "")


SECTION = Section(
    name="other_file",
    place=5,
    title=say("another file"),
    has=lambda incident: warn(incident) is not None,
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {"other_file": warn(incident) or NOTHING},
)
