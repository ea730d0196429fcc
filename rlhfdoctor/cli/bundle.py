"""`doctor bundle`: a redacted archive of a run on the command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlhfdoctor.cli.console import Progress, rules_option, tell
from rlhfdoctor.cli.project import ProjectCommand, project_of
from rlhfdoctor.i18n.message import NOTHING, Message, joined, plural, quoted, say
from rlhfdoctor.report.phrasing import VERDICTS

if TYPE_CHECKING:
    from rlhfdoctor.core.bundle import Bundle

_KINDS = {
    "user": say("users"),
    "host": say("hosts"),
    "address": say("addresses"),
    "email": say("e-mail addresses"),
    "path": say("private paths"),
    "word": say("words of --hide"),
}


def _hidden(context: click.Context, _option: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    """The project's words, too."""
    return (*project_of(context).values.get("hide", ()), *value)


@click.command(cls=ProjectCommand)
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    default="doctor-bundle.tar.gz",
    show_default=True,
    metavar="FILE",
    help="Archive to write; it may not exist yet.",
)
@click.option(
    "--hide",
    multiple=True,
    callback=_hidden,
    metavar="WORD",
    help="A further word to replace, such as a project's name; repeatable.",
)
@click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, if it cannot be detected.")
@rules_option
def bundle(
    paths: tuple[str, ...], out: str, hide: tuple[str, ...], framework: str | None, rules: tuple[Path, ...]
) -> None:
    """Pack what a run left behind for an issue tracker, without names and secrets.

    PATHS is what `doctor analyze` takes. Users, hosts, addresses and the private beginnings of paths become tokens that
    are the same everywhere in the archive (user-1, host-2, 192.0.2.3, /path-4); keys, tokens and passwords are not kept
    at all. The middle of logs of more than 64 MiB is left out. MANIFEST.json in the archive lists what was taken,
    changed and cut. The archive is read back, and the verdict compared. Look through it before you publish it.

    \b
    Examples:
      doctor bundle doctor-runs/20260131T120000Z-train
      doctor bundle ray_logs launch.sh dmesg.txt --hide acme --out incident.tar.gz
    """
    from rlhfdoctor.core.bundle import make_bundle

    with Progress() as progress:
        made = make_bundle(paths, Path(out), hide=hide, framework=framework, rules=rules, progress=progress)
    for line in _said(made):
        tell(line)
    sys.exit(0 if made.same else 1)


def _said(made: Bundle) -> Iterator[Message]:
    """What the archive holds, what was changed, and whether it still gives the same diagnosis."""
    yield say(
        "wrote {file}: {files}, {size:bytes}, packed {packed:bytes}",
        file=str(made.path),
        files=plural("{n} file", "{n} files", len(made.files) - 1),
        size=sum(int(file["bytes"]) for file in made.files),
        packed=made.path.stat().st_size,
    )
    for kind, count in made.tokens.items():
        places = plural("{n} place", "{n} places", made.changes.get(kind, 0))
        yield say("   {count:4} {kind} have tokens, in {places}", count=count, kind=_KINDS[kind], places=places)
    if made.changes.get("secret"):
        yield say("   {count:4} keys, tokens or passwords were taken out", count=made.changes["secret"])
    for what in made.cut:
        yield say("   cut: {what}", what=what)
    yield _verdict_said(made)
    yield say("look through it before you publish it: no pattern knows every secret")


def _verdict_said(made: Bundle) -> Message:
    verdict, first = NOTHING, made.after.findings[0].cause if made.after is not None and made.after.findings else ""
    if made.after is not None:
        verdict = joined(VERDICTS[made.after.verdict], quoted(f"({first})" if first else ""), by=" ")
    if made.same:
        return say("it gives the same verdict as its source: {verdict}", verdict=verdict)
    return say(
        "it does NOT give the verdict of its source, but {verdict}: what was cut or replaced was needed",
        verdict=verdict,
    )
