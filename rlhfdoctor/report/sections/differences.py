"""Settings for which the log of the run shows another value than the user's file; the log is what ran."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rlhfdoctor.i18n.message import Language, Message, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.said import said
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Difference, Incident
from rlhfdoctor.units import show_value

_TITLE = say("file and log differ")


def describe(found: Difference) -> Message:
    """The two values with their places."""
    return say(
        "{spelled}: {logged} in the log ({there}), {own} in the file ({here})",
        spelled=found.own.spelled,
        logged=show_value(found.logged.written),
        there=str(found.logged.origin),
        own=show_value(found.own.written),
        here=str(found.own.origin),
    )


def warn(incident: Incident) -> Message | None:
    """That the files are hardly those of the run, if so much differs; None otherwise."""
    found = incident.differences.settings
    if not incident.differences.another_run:
        return None
    files = ", ".join(dict.fromkeys(difference.own.origin.file for difference in found))
    return say(
        "{files}: hardly the configuration of this run; {count} of {compared} settings that the log shows have other "
        "values in it. Check that it is the right file before you change it.",
        files=files,
        count=len(found),
        compared=incident.differences.compared_count,
    )


def _text(incident: Incident, page: Page) -> None:
    found = incident.differences.settings
    page.heading(say("file and log differ (the log is what ran)"))
    for difference in found:
        page.write(page.words(describe(difference)), "dim")


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    yield from (f"### {t(say('File and log differ'))}", "", plain(t(say("The log is what ran."))), "")
    yield from (f"- {plain(t(describe(difference)))}" for difference in incident.differences.settings)
    yield ""


def _html(incident: Incident, charts: Any, t: Language) -> dict[str, Any]:
    return {"differing": [describe(difference) for difference in incident.differences.settings]}


def _to_dict(incident: Incident) -> dict[str, Any]:
    found = incident.differences
    rows = [
        {
            "setting": d.own.name,
            "spelled": d.own.spelled,
            "file": str(d.own.origin),
            "in_file": d.own.written,
            "log": str(d.logged.origin),
            "in_log": d.logged.written,
            **said(says=describe(d)),
        }
        for d in found.settings
    ]
    return {"compared_count": found.compared_count, "another_run": found.another_run, "settings": rows}


SECTION = Section(
    name="differences",
    place=35,
    title=_TITLE,
    has=lambda incident: bool(incident.differences.settings),
    text=_text,
    markdown=_markdown,
    html=_html,
    to_dict=_to_dict,
)
