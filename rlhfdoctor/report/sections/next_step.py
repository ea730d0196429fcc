"""What to do now, for every verdict; which patches may be written, with the command."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.i18n.message import Language, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.next_step import next_step
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.safety import COLOURS, EXPLAINED
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    page.head(("", ""))
    if incident.verdict == "cause":
        _commands(incident, page)
    page.write(page.words(say("now: {step}", step=next_step(incident))), "bold", first="")


def _commands(incident: Incident, page: Page) -> None:
    """How the patches of the first finding are written."""
    first = incident.findings[0]
    t = page.words
    for name, says in EXPLAINED.items():
        if any(p.safety == name for p in first.patches):
            page.head((f"[{name}]", COLOURS[name]), (f" {t(says)}", "dim"))
    command = f"doctor patch {' '.join(clean(source) for source in incident.sources)} --write"
    if any(p.diff and p.safety == "safe" for p in first.patches):
        page.head(
            (t(say("write the safe ones: ")), "dim"), (command, "bold"), (t(say("   (--revert takes it back)")), "dim")
        )
    if any(p.diff and p.safety == "consent" for p in first.patches):
        page.head(
            (t(say("and with consent:    ")), "dim"),
            (f"{command} --consent {first.cause}", "bold"),
            (t(say("   (--revert takes it back)")), "dim"),
        )


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"**{plain(t(say('now: {step}', step=next_step(incident))))}**", "")


def _to_dict(incident: Incident) -> dict[str, Any]:
    return said(text=next_step(incident))


SECTION = Section(
    name="next_step",
    place=70,
    text=_text,
    markdown=_markdown,
    html=lambda incident, charts, t: {"next_step": say("now: {step}", step=next_step(incident))},
    to_dict=_to_dict,
)
