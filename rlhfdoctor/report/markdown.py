"""The report as Markdown, for issue trackers, chat, notebooks."""

from __future__ import annotations

from rlhfdoctor.i18n.message import ENGLISH, Language, say
from rlhfdoctor.report.marked import block, code, plain
from rlhfdoctor.report.phrasing import VERDICTS, headline, killed, known_version
from rlhfdoctor.report.section import sections
from rlhfdoctor.types import Incident


def render(incident: Incident, t: Language = ENGLISH) -> str:
    """The whole report as Markdown text."""
    lead = f"{t(VERDICTS['cause'])}: " if incident.verdict == "cause" else ""  # the other headlines begin with theirs
    lines = [f"## {lead}{plain(t(headline(incident)))}", ""]
    if incident.death is not None:
        lines += [plain(t(killed(incident))) + t.stop, ""]
        event = incident.death.event
        if event is not None:
            lines += [f"`{code(str(event.origin))}`", *block(event.text), ""]
    if incident.framework is not None:
        version, basis = t(known_version(incident.framework)), t(incident.framework.basis)
        lines += [f"{t(say('Framework'))}: {plain(version)} ({plain(basis)})", ""]
    for section in sections():
        if section.markdown is not None and section.has(incident):
            lines += section.markdown(incident, t)
    return "\n".join(lines).rstrip() + "\n"
