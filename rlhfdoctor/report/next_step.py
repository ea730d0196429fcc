"""What to do now: one message for every verdict, with the command that begins it."""

from __future__ import annotations

from collections.abc import Sequence

from rlhfdoctor.i18n.message import NOTHING, Message, joined, say
from rlhfdoctor.report.sanitize import shell_path
from rlhfdoctor.report.shown import likely, worth_showing
from rlhfdoctor.types import Finding, Incident, Patch

LATE_STACK = say("py-spy dump --pid PID   (of the rank that does not come, by its log the last to finish a step)")

WRITTEN = say(
    "doctor patch shows the changes, --write makes the safe ones, --consent CAUSE others, --revert undoes them"
)


def next_step(incident: Incident) -> Message:
    """The cure that can be written, what to do by hand, or what to hand over next; never empty."""
    if are_mixed(incident):
        return say("get a verdict of each run")
    if incident.verdict == "healthy":
        warned = (finding.next_step for finding in worth_showing(incident) if finding.next_step)
        return next(warned, say("nothing has to be done"))
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


def are_mixed(incident: Incident) -> bool:
    """Whether several runs were read as one, so that each is judged by itself before anything is changed."""
    return 0 < len(incident.coverage.runs) <= _MOST_SOURCES and bool(_again(incident))


def writable(finding: Finding) -> Patch | None:
    """The first change that `doctor patch --write` would make for this finding, with consent where it takes that."""
    return next((p for p in finding.patches if p.diff and p.safety != "show" and not p.published), None)


def next_command(incident: Incident) -> list[str]:
    """A command that can be run as it stands: it writes the cure, explains it, or asks again with more files.

    In words that stay on one line, each an option with its value.
    """
    best, again = incident.best, _again(incident)
    if are_mixed(incident):
        runs = _quoted(incident.coverage.runs)
        return ["doctor", "analyze", "--each", *runs, *_options(incident, "--rules", "--framework")]
    patch = writable(best) if incident.verdict == "cause" and best is not None else None
    if best is not None and patch is not None and again:
        return patch_command(incident, best, patch)
    if again and _wants_kernel_log(incident):
        return ["dmesg -T > dmesg.txt &&", "doctor", "analyze", *again, "dmesg.txt"]
    if incident.verdict == "healthy" and again and incident.coverage.has("trace"):
        return ["doctor", "report", *_sources(incident), *_options(incident, "--framework", "--rules")]
    if best is not None and incident.verdict != "healthy":
        return ["doctor", "rules", "explain", best.cause, *_options(incident, "--rules")]
    return ["doctor", "analyze", *again, "--all"] if again else ["doctor", "rules", "list"]


def patch_command(incident: Incident, finding: Finding, patch: Patch) -> list[str]:
    """The command that writes a patch, or shows it where it cannot be written yet; empty if there is none."""
    again = _again(incident)
    if not again or not patch.diff or patch.safety == "show":
        return []
    can_be_written = not incident.differences.another_run and "!" not in (patch.file or "")
    agreed = patch.safety == "safe" and finding.confidence >= _LEAST_CONFIDENCE
    options = [*(["--write"] if can_be_written else []), *([] if agreed else [f"--consent {finding.cause}"])]
    return ["doctor", "patch", *again, *options]


def _again(incident: Incident) -> list[str]:
    """The paths and the options that the incident was read by; empty if there is no path to read again."""
    return [*sources, *incident.options] if (sources := _sources(incident)) else []


def _options(incident: Incident, *names: str) -> list[str]:
    return [option for option in incident.options if option.startswith(names)]


def _sources(incident: Incident) -> list[str]:
    """The paths as a shell takes them; empty where they cannot be read again, or are too many to copy."""
    found = _quoted(incident.sources)
    return found if "-" not in found and len(found) <= _MOST_SOURCES else []


def _quoted(paths: Sequence[str]) -> list[str]:
    return [shell_path(path) for path in paths]


_LEAST_CONFIDENCE = 0.5
"""Of a finding whose safe patches `doctor patch --write` makes without being asked for them."""
_MOST_SOURCES = 8


def _wants_kernel_log(incident: Incident) -> bool:
    """Whether the kernel's log is lacking, which says why a process vanished, or that none was killed."""
    if incident.verdict not in ("undecided", "inconclusive") or incident.coverage.has("kernel log", "trace"):
        return False
    return incident.death is None or incident.death.killer == "sigkill-unknown"


def _treat(finding: Finding) -> Message:
    cures = [patch for patch in finding.patches if not patch.published]
    cure = writable(finding)
    if cure is not None:
        return joined(finding.next_step if finding.axis == "course" else NOTHING, _change(cure))
    if finding.next_step:
        return finding.next_step
    return _change(cures[0]) if cures else say("check by hand: {check}", check=finding.check)


def _change(patch: Patch) -> Message:
    if patch.instead or patch.after in (None, "null"):
        return patch.named
    return say("set {setting} to {value}", setting=patch.named, value=patch.after)
