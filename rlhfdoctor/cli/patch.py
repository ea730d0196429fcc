"""`doctor patch`: changes of the user's files, shown, written or taken back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor.cli.console import echo, tell
from rlhfdoctor.cli.incident import EXIT_CODES, any_paths_argument, incident_of, ray_option, reading_options
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import NOTHING, joined, plural, quoted, say
from rlhfdoctor.report.phrasing import NOT_SET, SAFETIES

if TYPE_CHECKING:
    from rlhfdoctor.types import Incident, Patch


@click.command()
@any_paths_argument
@ray_option
@reading_options
@click.option("--write", is_flag=True, help="Apply the safe patches to the files.")
@click.option("--consent", multiple=True, metavar="RULE", help="Apply this rule's consent patches too; repeatable.")
@click.option("--revert", is_flag=True, help="Restore the files as they were before --write, byte for byte.")
def patch(paths: tuple[str, ...], write: bool, consent: tuple[str, ...], revert: bool, **reading: Any) -> None:
    """Show the patches for an incident as unified diffs, apply them, or take them back.

    Safe patches change neither what is learned nor whether the run starts. Consent patches cost
    something and need --consent RULE. Shown ones are never written.

    \b
    Examples:
      doctor patch ray_logs launch.sh
      doctor patch ray_logs launch.sh --write --consent host-container-limit
      doctor patch launch.sh --ray --write
      doctor patch launch.sh --revert
    """
    from rlhfdoctor.patch.apply import revert_files, selected
    from rlhfdoctor.report.sections.differences import warn

    if revert:
        restored = revert_files([Path(path) for path in paths])
        for path in restored:
            tell(say("restored {file}", file=str(path)))
        if not restored:
            raise UsageError(say("nothing to take back: no patched file below {paths:, }", paths=paths))
        return
    incident = incident_of(paths, **reading)
    known = {finding.cause for finding in incident.findings}
    for rule in consent:
        if rule not in known:
            raise UsageError(
                say(
                    "--consent {cause}: no such finding here. Findings: {known:, }",
                    cause=rule,
                    known=tuple(sorted(known)) or say("none"),
                )
            )
    chosen = selected(incident.findings, consent)
    warning = warn(incident)
    if warning is not None and any(finding.patches for finding in incident.findings):
        echo(f"# {warning}", err=write)
    if not write:
        for finding in incident.findings:
            for item in finding.patches:
                _show_patch(finding.cause, item, item in chosen)
        sys.exit(EXIT_CODES[incident.verdict])
    _write_patches(incident, paths, consent, reading)


def _show_patch(cause: str, item: Patch, wanted: bool) -> None:
    kept = say("not written: {safety}", safety=SAFETIES[item.safety]) if item.diff else say("no file to change")
    state = say("would be written") if wanted else kept
    before = quoted(item.before) if item.before else NOT_SET
    change = NOTHING if item.after in (None, "null") else say("{before} -> {after}", before=before, after=item.after)
    tell(joined(quoted(f"# {cause}: {item.spelled}"), change, quoted(f"[{item.safety}]"), state, by=" "))
    if sys.stdout is not None and sys.stdout.isatty():
        echo(item.diff, end="")
    else:  # for `patch -p1`: byte for byte
        click.echo(item.diff.encode("utf-8", "surrogateescape"), nl=False)


def _write_patches(
    incident: Incident, paths: tuple[str, ...], consent: tuple[str, ...], reading: dict[str, Any]
) -> None:
    """One patch after the other: each is planned again on the text that the previous one produced."""
    from rlhfdoctor.patch.apply import selected, write_file
    from rlhfdoctor.patch.merge import apply_all

    chosen = selected(incident.findings, consent)
    inside = next((p.file for p in chosen if p.file and "!" in p.file), None)
    if inside is not None:
        raise UsageError(say("{file}: is inside an archive; extract it before patching", file=inside))
    texts, analysed = apply_all(chosen), {patch.file: patch.base for patch in chosen if patch.file}
    if not texts:
        tell(say("nothing written: no patch of a known cause is safe or has your consent"), err=True)
        sys.exit(1)
    for name, (text, count) in texts.items():
        write_file(Path(name), text, analysed[name])
        changes = plural("{n} change", "{n} changes", count)
        tell(
            say(
                "patched {file} ({changes}); take it back with: doctor patch {file} --revert",
                file=name,
                changes=changes,
            )
        )
