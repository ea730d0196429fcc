"""What to do now: which patches may be written, with the command."""

from __future__ import annotations

from rlhfdoctor.i18n.message import say
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.safety import COLOURS, EXPLAINED
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import Section
from rlhfdoctor.types import Incident


def _text(incident: Incident, page: Page) -> None:
    first = incident.findings[0]
    patches = first.patches
    t = page.words
    page.head(("", ""))
    for name, says in EXPLAINED.items():
        if any(p.safety == name for p in patches):
            page.head((f"[{name}]", COLOURS[name]), (f" {t(says)}", "dim"))
    command = f"doctor patch {' '.join(clean(source) for source in incident.sources)} --write"
    if any(p.diff and p.safety == "safe" for p in patches):
        page.head(
            (t(say("write the safe ones: ")), "dim"), (command, "bold"), (t(say("   (--revert takes it back)")), "dim")
        )
    if any(p.diff and p.safety == "consent" for p in patches):
        page.head(
            (t(say("and with consent:    ")), "dim"),
            (f"{command} --consent {first.cause}", "bold"),
            (t(say("   (--revert takes it back)")), "dim"),
        )


SECTION = Section(
    name="next_step",
    place=70,
    has=lambda incident: incident.verdict == "cause" and bool(incident.findings and incident.findings[0].patches),
    text=_text,
)
