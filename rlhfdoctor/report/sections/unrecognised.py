"""Lines that read like a failure, which no pattern knows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.i18n.message import Language, say
from rlhfdoctor.report.marked import code
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.heading(say("not recognised: no pattern knows these lines, and they read like a failure"))
    for event in incident.unrecognised:
        page.quote("  --> ", str(event.origin), "cyan")
        page.quote("   | ", event.text)


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"### {t(say('Not recognised'))}", "")
    yield from (f"- `{code(str(event.origin))}`: `{code(event.text)}`" for event in incident.unrecognised)
    yield ""


def _to_dict(incident: Incident) -> list[dict[str, Any]]:
    return [
        {"file": event.origin.file, "line": event.origin.line, "text": clean(event.text, 2000)}
        for event in incident.unrecognised
    ]


SECTION = Section(
    name="unrecognised",
    place=8,
    title=say("not recognised"),
    has=lambda incident: bool(incident.unrecognised),
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {},
    to_dict=_to_dict,
)
