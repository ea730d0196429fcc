"""What is missing: the inputs that would decide, with the one command for each."""

from __future__ import annotations

from rlhfdoctor.i18n.message import Message, quoted, say
from rlhfdoctor.report.next_step import LATE_STACK
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.shown import likely
from rlhfdoctor.types import Incident

_COUNT = 5


_KERNEL = say('dmesg -T | grep -iE "oom|killed process"   # as root on the node')
_HOW_IT_ENDED: dict[Message, Message] = {
    say("its last lines, with the exit status; sacct -j JOB, kubectl describe pod, ray job status ID"): say(
        "how the run ended"
    ),
    _KERNEL: say("whether the kernel killed it"),
    quoted("/tmp/ray/session_latest/logs"): say("what Ray says of its workers"),
    say("doctor watch -- COMMAND, or doctor watch --pid PID"): say(
        "the next run's memory, with the way in which it ends"
    ),
}
"""Settle -> what, where nothing shows the end."""


def _killer_is_unknown(incident: Incident) -> bool:
    return incident.death is None or incident.death.killer in ("", "sigkill-unknown")


def wanted(incident: Incident) -> dict[Message, Message]:
    """Settle -> what: how to get an input that would decide, and what it is; the most telling first."""
    found = likely(incident)
    missing = {m.settle: m.what for f in found for m in f.missing}
    if not found and incident.death is not None and incident.death.killer == "collective-timeout":
        missing = {
            LATE_STACK: say("where the late rank stands"),
            say("the end of each rank's own log, with the time of its last line"): say("which rank did not come"),
        }
    elif not found:
        missing = {
            **({_KERNEL: say("what killed the process")} if _killer_is_unknown(incident) else {}),
            quoted("cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"): say(
                "the job's memory limit"
            ),
            say("the end of the dead process's own log (worker-*.err, python-core-worker-*.log)"): say(
                "its last words"
            ),
        }
    if incident.verdict == "inconclusive":
        missing = _HOW_IT_ENDED | missing if found else _HOW_IT_ENDED
    return dict(list(missing.items())[:_COUNT])


def _text(incident: Incident, page: Page) -> None:
    t, missing = page.words, wanted(incident)
    if missing:
        page.heading(say("would settle it") if incident.verdict in ("undecided", "inconclusive") else say("not known"))
        for settle, what in missing.items():
            page.write(f"{t(what)}: {t(settle)}")


SECTION = Section(name="missing", place=50, has=lambda incident: incident.verdict != "healthy", text=_text)
