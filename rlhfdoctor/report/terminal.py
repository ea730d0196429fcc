"""The report on a terminal, in the form of a good compiler diagnostic: the answer on one screen, or all of it."""

from __future__ import annotations

from rich.console import Console

from rlhfdoctor.i18n.message import ENGLISH, Language
from rlhfdoctor.report.answer import STYLES, answer
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.phrasing import VERDICTS, headline, killed, known_version, vanished
from rlhfdoctor.report.section import sections
from rlhfdoctor.types import Incident


def render(incident: Incident, console: Console, all_findings: bool = False, words: Language = ENGLISH) -> None:
    """Prints the report in the language of `words`. Text from logs is cleaned of control characters first.

    Args:
        all_findings: everything there is to say, in place of what fits on a screen of 24 lines.
    """
    page = Page(console, words)
    if not all_findings:
        page.print(answer(incident, page))
        return
    _head(incident, page)
    for section in sections():
        if section.text is not None and section.has(incident):
            section.text(incident, page)


def _head(incident: Incident, page: Page) -> None:
    """The verdict, what was killed by whom, and the line that shows it."""
    t = page.words
    style = STYLES[incident.verdict]
    if incident.verdict == "cause":
        page.head((t(VERDICTS["cause"]), style), ("  ", ""), (t(headline(incident)), "bold"))
    else:
        page.head((t(headline(incident)), style))
    if incident.death is not None:
        page.write(t(killed(incident)))
        event = incident.death.event
        if event is not None:
            page.quote("  --> ", str(event.origin), "cyan")
            page.quote("   | ", event.text)
            page.quoted.add((event.origin.file, event.origin.line))
        if vanished(incident.death):
            page.write(t(vanished(incident.death)), "dim")
    if incident.framework is not None:
        page.write(f"{t(known_version(incident.framework))}  ({t(incident.framework.basis)})", "dim")
