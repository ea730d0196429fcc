"""What to do now: one message for every verdict."""

from __future__ import annotations

from rlhfdoctor.i18n.message import NOTHING, Message, joined, say
from rlhfdoctor.report.shown import likely
from rlhfdoctor.types import Finding, Incident, Patch

LATE_STACK = say("py-spy dump --pid PID   (of the rank that does not come, by its log the last to finish a step)")


def next_step(incident: Incident) -> Message:
    """The cure that can be written, what to do by hand, or what to hand over next; never empty."""
    if incident.verdict == "healthy":
        return say("nothing has to be done")
    if incident.verdict == "inconclusive":
        return say("hand over the last lines with the exit status, dmesg -T, or Ray's logs of the session")
    if incident.verdict == "cause":
        return _treat(incident.findings[0])
    if incident.death is None:
        return say("read the line above; hand over what stands before it, the exit status, and dmesg -T")
    missing = next((m for finding in likely(incident) for m in finding.missing), None)
    if missing is not None:
        return say("hand over {what}: {settle}", what=missing.what, settle=missing.settle)
    if incident.death.killer == "collective-timeout":
        return say("run it again, and while the ranks wait: {stack}", stack=LATE_STACK)
    return say("run it again under doctor watch -- COMMAND: the recording decides what this leaves open")


def _treat(finding: Finding) -> Message:
    cures = [patch for patch in finding.patches if not patch.published]
    writable = next((patch for patch in cures if patch.diff and patch.safety != "show"), None)
    if writable is not None:
        return joined(finding.next_step if finding.axis == "course" else NOTHING, _change(writable))
    if finding.next_step:
        return finding.next_step
    return _change(cures[0]) if cures else say("check by hand: {check}", check=finding.check)


def _change(patch: Patch) -> Message:
    if patch.instead or patch.after in (None, "null"):
        return patch.named
    return say("set {setting} to {value}", setting=patch.named, value=patch.after)
