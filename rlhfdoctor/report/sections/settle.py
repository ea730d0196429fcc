"""What is missing: the inputs that would decide, with the one command for each."""

from __future__ import annotations

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.shown import likely
from rlhfdoctor.types import Incident

_COUNT = 5


def _text(incident: Incident, page: Page) -> None:
    t = page.words
    found = likely(incident)
    wanted = {m.settle: m.what for f in found for m in f.missing}
    if not found:
        wanted = {
            say("dmesg -T | grep -iE 'oom|killed process'   (as root on the node)"): say("what killed the process"),
            quoted("cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"): say(
                "the job's memory limit"
            ),
            say("the end of the dead process's own log (worker-*.err, python-core-worker-*.log)"): say(
                "its last words"
            ),
        }
    if wanted:
        page.heading(say("would settle it") if incident.verdict == "undecided" else say("not known"))
        for settle, what in list(wanted.items())[:_COUNT]:
            page.write(f"{t(what)}: {t(settle)}")


SECTION = Section(name="missing", place=50, has=lambda incident: incident.verdict != "healthy", text=_text)
