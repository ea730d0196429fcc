"""`doctor patch`: changes of the user's files, shown, written or taken back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor.cli.console import echo, language_option, rules_option, tell
from rlhfdoctor.cli.incident import (
    EXIT_CODES,
    any_paths_argument,
    given_options,
    ray_option,
    read_session,
    reading_options,
)
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import plural, say
from rlhfdoctor.report.sanitize import shell_path

if TYPE_CHECKING:
    from rlhfdoctor.patch.merge import Change
    from rlhfdoctor.types import Incident


@click.command(cls=ProjectCommand)
@any_paths_argument
@ray_option
@reading_options
@rules_option
@click.option("--write", is_flag=True, help="Apply the diff to the files.")
@click.option("--consent", multiple=True, metavar="RULE", help="Apply this rule's consent patches too; repeatable.")
@click.option("--revert", is_flag=True, help="Restore the files as they were before --write, byte for byte.")
@click.option("--all", "everything", is_flag=True, help="Say all of every patch, also of those that are not written.")
@language_option
def patch(
    paths: tuple[str, ...],
    write: bool,
    consent: tuple[str, ...],
    revert: bool,
    everything: bool,
    rules: tuple[Path, ...],
    lang: str,
    **reading: Any,
) -> None:
    """Print the patches for an incident as one unified diff, apply them, or take them back.

    Standard output is the diff that --write would write, for `git apply` or `patch -p1`; what else there is to say goes
    to standard error. Safe patches change neither what is learned nor whether the run starts. Consent patches cost
    something and need --consent RULE. Shown ones are never written.

    The exit status is that of analyze, 1 for an incident, until the files are written: then it is 0.

    \b
    Examples:
      doctor patch ray_logs launch.sh
      doctor patch ray_logs launch.sh > fix.diff; git apply fix.diff
      doctor patch ray_logs launch.sh --write --consent host-container-limit
      doctor patch launch.sh --ray --write
      doctor patch launch.sh --revert
    """
    if revert:
        _revert(paths)
        return
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.engine.catalogue import load_catalogue
    from rlhfdoctor.patch.apply import selected
    from rlhfdoctor.patch.merge import apply_all, is_member
    from rlhfdoctor.report import patches as said
    from rlhfdoctor.report.sanitize import without_secrets

    catalogue = load_catalogue(*rules)
    with read_session(paths, **reading) as session:
        incident, applied = make_incident(session, catalogue), dict(session.applied)
    _check(incident, consent)
    for message in said.other_file(incident):
        tell(message, err=True)
    chosen = selected(incident.findings, consent)
    changes = apply_all(chosen, applied)
    inside = next((change.file for change in changes if is_member(change.file)), None)
    extract = say("{file}: is inside an archive; extract it before patching", file=inside or "")
    if inside is not None and write:
        raise UsageError(extract)
    for described in said.describe_patches(incident, chosen, everything, write):
        tell(described.line, err=True)
        for detail in described.details:
            tell(say("   {detail}", detail=detail), err=True)
        echo(without_secrets(described.diff), err=True, end="")
    command = _command(paths)
    if changes:
        _write(changes) if write else _print(changes)
        given = "".join(f" --consent {rule}" for rule in consent)
        if not write:
            tell(
                say("write it: {command}", command=f"{command}{given} --write") if inside is None else extract, err=True
            )
    elif applied:
        for message in said.already({file: len(earlier.edits) for file, earlier in applied.items()}):
            tell(message, err=not write)
    else:
        tell(said.why_nothing(incident, consent), err=True)
    for message in said.consents(incident, consent, command):
        tell(message, err=True)
    sys.exit(0 if write and (changes or applied) else EXIT_CODES[incident.verdict])


def _revert(paths: Sequence[str]) -> None:
    from rlhfdoctor.patch.apply import revert_files

    restored = revert_files([Path(path) for path in paths])
    for path in restored:
        tell(say("restored {file}", file=str(path)))
    if not restored:
        raise UsageError(say("nothing to take back: no patched file below {paths:, }", paths=tuple(paths) or (".",)))


def _check(incident: Incident, consent: Sequence[str]) -> None:
    """Refuses consent to what was not found."""
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


def _print(changes: Sequence[Change]) -> None:
    """The diff on standard output; where it applies, if that is not here."""
    from rlhfdoctor.patch.diff import whole_diff

    here = Path.cwd()
    diff, top = whole_diff(changes, here)
    if sys.stdout is not None and sys.stdout.isatty():
        echo(diff, end="")
    else:  # byte for byte
        click.echo(diff.encode("utf-8", "surrogateescape"), nl=False)
    if top != here.resolve():
        tell(say("the diff applies in {folder}: patch -p1 -d {folder} < FILE", folder=shell_path(str(top))), err=True)


def _write(changes: Sequence[Change]) -> None:
    from rlhfdoctor.patch.apply import write_change
    from rlhfdoctor.report.patches import taking_back

    for change in changes:
        write_change(change)
        tell(
            say(
                "patched {file} ({changes}); take it back with: {command}",
                file=change.file,
                changes=plural("{n} change", "{n} changes", change.count),
                command=taking_back(change.file),
            )
        )


def _command(paths: Sequence[str]) -> str:
    """The command as it was given, to be continued."""
    return " ".join(["doctor", "patch", *map(shell_path, paths), *given_options()])
