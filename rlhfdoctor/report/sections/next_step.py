"""What to do now, for every verdict; which patches may be written, with the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.i18n.message import Language, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.next_step import WRITTEN, next_command, next_step
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.safety import COLOURS, EXPLAINED
from rlhfdoctor.report.said import said
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.head(("", ""))
    if incident.verdict == "cause":
        _legend(incident, page)
    page.write(page.words(say("now: {step}", step=next_step(incident))), "bold", first="")
    page.print(page.command(next_command(incident)))


def _legend(incident: Incident, page: Page) -> None:
    """What the safety of the first finding's patches means, and how they are written."""
    patches, t = incident.findings[0].patches, page.words
    for name, says in EXPLAINED.items():
        if any(p.safety == name for p in patches):
            page.print(page.lines((f"[{name}] ", COLOURS[name]), (t(says), "dim"), first="", rest="   "))
    if any(p.diff for p in patches):
        page.write(t(WRITTEN), "dim", first="", rest="   ")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"**{plain(t(say('now: {step}', step=next_step(incident))))}**", "")
    yield from ("```sh", " ".join(next_command(incident)), "```", "")


def _to_dict(incident: Incident) -> dict[str, Any]:
    return said(text=next_step(incident))


SECTION = Section(
    name="next_step",
    place=70,
    text=_text,
    markdown=_markdown,
    to_dict=_to_dict,
)
