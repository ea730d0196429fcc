"""What `doctor patch` says of each patch beside the diff: whether it is in it, why not, what to do next."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rlhfdoctor.i18n.message import NOTHING, Message, joined, plural, quoted, say
from rlhfdoctor.report.next_step import next_step
from rlhfdoctor.report.phrasing import NOT_SET, SAFETIES, freed, headline
from rlhfdoctor.report.sanitize import shell_path
from rlhfdoctor.report.sections.differences import describe, warn
from rlhfdoctor.types import Finding, Incident, Patch

_COUNT = 3
"""Settings that differ between file and log, of which a line is said."""


@dataclass(frozen=True, slots=True)
class PatchLines:
    """A line for the user, and the lines below it."""

    line: Message
    details: tuple[Message, ...] = ()
    diff: str = ""


def other_file(incident: Incident) -> Iterator[Message]:
    """That the log shows other settings than the files to be changed."""
    found = incident.differences.settings
    if not any(finding.patches for finding in incident.findings):
        return
    warning = warn(incident)
    if warning is not None:
        yield warning
    elif found:
        yield joined(say("file and log differ (the log is what ran)"), *map(describe, found[:_COUNT]), by=": ")
        if len(found) > _COUNT:
            yield plural("{n} more setting differs", "{n} more settings differ", len(found) - _COUNT)


def describe_patches(
    incident: Incident, chosen: Collection[Patch], everything: bool, write: bool = False
) -> Iterator[PatchLines]:
    """Each patch of what may be the cause, best first; of every finding with all that is known of it, if asked for."""
    ended = incident.verdict in ("healthy", "inconclusive")
    for finding in incident.findings:
        if not everything and (ended or finding.explained_by is not None or not _counts(finding, incident)):
            continue
        for patch in finding.patches:
            if everything or not patch.published:
                taken = say("to be written") if write else say("in the diff")
                state = taken if patch in chosen else _why_not(finding, patch, chosen)
                line = _line(finding, patch, state)
                diff = "" if patch in chosen else patch.diff
                price = (_cost(patch),) if patch.safety == "consent" and patch.cost else ()
                yield (
                    PatchLines(line, tuple(filter(None, _details(patch))), diff)
                    if everything
                    else PatchLines(line, price)
                )


def _counts(finding: Finding, incident: Incident) -> bool:
    return finding is incident.best or finding.confidence >= 0.5


def _line(finding: Finding, patch: Patch, state: Message) -> Message:
    change = NOTHING
    if not patch.instead and patch.after not in (None, "null"):
        before = quoted(patch.before) if patch.before else NOT_SET
        change = say("{before} -> {after}", before=before, after=patch.after or "")
    return joined(quoted(f"{finding.cause}:"), patch.named, change, quoted(f"[{patch.safety}]"), state, by=" ")


def _cost(patch: Patch) -> Message:
    return say("Cost: {cost}", cost=patch.cost) if patch.cost else NOTHING


def _details(patch: Patch) -> tuple[Message, ...]:
    return (patch.effect, freed(patch), _cost(patch), *patch.side_effects, patch.note)


def _why_not(finding: Finding, patch: Patch, chosen: Collection[Patch]) -> Message:
    if patch.published:
        return say("not written: it does not help here")
    if patch.safety == "show":
        return say("not written: {safety}", safety=SAFETIES["show"])
    if not patch.diff:
        return say("not written: no file that was given sets it")
    if any(other.setting == patch.setting and other.file == patch.file for other in chosen):
        return say("not written: another patch changes it")
    if patch.safety == "consent":
        return say("not written: needs --consent {cause}", cause=finding.cause)
    return say("not written: the cause is not likely enough")


def already(counts: Mapping[str, int]) -> Iterator[Message]:
    """Which files have been changed since the run, each in how many places."""
    for file, count in counts.items():
        yield say(
            "already applied: {file} was changed by doctor patch after this run ({changes}); take it back with: "
            "{command}",
            file=file,
            changes=plural("{n} place", "{n} places", count),
            command=taking_back(file),
        )


def taking_back(file: str) -> str:
    """The command that takes the changes of a file back.

    >>> taking_back("-x/ds.json")
    'doctor patch ./-x/ds.json --revert'
    """
    return f"doctor patch {shell_path(file)} --revert"


def why_nothing(incident: Incident, consent: Sequence[str]) -> Message:
    """Why there is nothing to write, and what to do instead."""
    if incident.verdict == "healthy":
        return say("nothing to write: {verdict}", verdict=headline(incident))
    if _willing(incident, consent):
        return say("nothing to write without your consent")
    if incident.verdict == "inconclusive":
        reason = say("nothing to write: {verdict}", verdict=headline(incident))
    elif incident.verdict == "undecided" and any(
        p.diff and p.safety == "safe" for f in incident.findings for p in f.patches
    ):
        reason = say("nothing to write: the evidence does not single out a cause")
    else:
        reason = say("nothing to write: no change of the files that were given is known to help")
    return joined(reason, say("now: {step}", step=next_step(incident)))


def _willing(incident: Incident, consent: Sequence[str]) -> list[str]:
    """Findings with patches that consent would write, best first."""
    return [
        finding.cause
        for finding in incident.findings
        if incident.verdict in ("cause", "undecided")
        if _counts(finding, incident) and finding.explained_by is None and finding.cause not in consent
        if any(patch.diff and patch.safety == "consent" and not patch.published for patch in finding.patches)
    ]


def consents(incident: Incident, consent: Sequence[str], command: str) -> Iterator[Message]:
    """The commands that write what needs consent."""
    for cause in _willing(incident, consent):
        given = " ".join(f"--consent {rule}" for rule in (*consent, cause))
        yield say("write with consent: {command}", command=f"{command} {given} --write")
