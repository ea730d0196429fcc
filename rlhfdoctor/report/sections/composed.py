"""One sentence over the axes of the incident: what was full, what filled it, when, by which course."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.i18n.message import Language
from rlhfdoctor.report.composed import composed
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.phrasing import sentence
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.write(page.words(composed(incident)))


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (plain(sentence(composed(incident), t)), "")


SECTION = Section(
    name="composed",
    place=4,
    has=lambda incident: bool(composed(incident)),
    text=_text,
    markdown=_markdown,
)
