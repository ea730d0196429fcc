"""`doctor bundle`: a redacted archive of a run on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlhfdoctor.cli.console import Progress
from rlhfdoctor.units import show_bytes, show_count

if TYPE_CHECKING:
    from rlhfdoctor.core.bundle import Bundle

_KINDS = {
    "user": "users",
    "host": "hosts",
    "address": "addresses",
    "email": "e-mail addresses",
    "path": "private paths",
    "word": "words of --hide",
}


@click.command()
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
    "--hide", multiple=True, metavar="WORD", help="A further word to replace, such as a project's name; repeatable."
)
@click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, if it cannot be detected.")
def bundle(paths: tuple[str, ...], out: str, hide: tuple[str, ...], framework: str | None) -> None:
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
        made = make_bundle(paths, Path(out), hide=hide, framework=framework, progress=progress)
    click.echo(_said(made))
    sys.exit(0 if made.same else 1)


def _said(made: Bundle) -> str:
    """What the archive holds, what was changed, and whether it still gives the same diagnosis."""
    size = sum(int(file["bytes"]) for file in made.files)
    lines = [
        f"wrote {made.path}: {show_count(len(made.files) - 1, 'file')}, {show_bytes(size)}, "
        f"packed {show_bytes(made.path.stat().st_size)}"
    ]
    for kind, count in made.tokens.items():
        lines.append(f"   {count:4} {_KINDS[kind]} have tokens, in {show_count(made.changes.get(kind, 0), 'place')}")
    if made.changes.get("secret"):
        lines.append(f"   {made.changes['secret']:4} keys, tokens or passwords were taken out")
    lines += [f"   cut: {what}" for what in made.cut]
    first = made.after.findings[0].cause if made.after is not None and made.after.findings else ""
    verdict = f"{made.after.verdict}{f' ({first})' if first else ''}" if made.after is not None else ""
    if made.same:
        lines.append(f"it gives the same verdict as its source: {verdict}")
    else:
        lines.append(f"it does NOT give the verdict of its source, but {verdict}: what was cut or replaced was needed")
    return "\n".join([*lines, "look through it before you publish it: no pattern knows every secret"])
