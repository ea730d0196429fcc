"""`doctor compare`: two runs side by side on the command line."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

import click

from rlhfdoctor.errors import UsageError


@click.command()
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the result here instead of standard output."
)
def compare(before: str, after: str, form: str, out: str | None) -> None:
    """Say whether a change helped: what became of two runs, their peaks, growth and step time, and the settings that differ.

    A and B are folders that `doctor watch` wrote, or what runs left behind, each as one path. A difference that steps of
    one run show among themselves is marked as noise. The exit status is 1 when B ended badly.

    \b
    Examples:
      doctor compare doctor-runs/20260131T120000Z-train doctor-runs/20260201T090000Z-train
      doctor compare before/ after/ --format json
    """
    from rich.console import Console

    from rlhfdoctor.compare import compare as run
    from rlhfdoctor.report import comparison

    found = run([before], [after])
    if form == "json":
        text = comparison.render_json(found)
    else:
        plain = out is not None or sys.stdout is None or not sys.stdout.isatty()
        console = Console(
            file=io.StringIO(), force_terminal=not plain, no_color=plain or bool(os.environ.get("NO_COLOR")), highlight=False,
            width=140 if plain else min(max(Console().width, 60), 160), emoji=False, markup=False,
        )  # fmt: skip
        comparison.render(found, console)
        text = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"  # type: ignore[attr-defined]
    if out is None:
        click.echo(text, nl=False)
    else:
        try:
            Path(out).write_text(text, encoding="utf-8", errors="backslashreplace")
        except OSError as error:
            raise UsageError(f"--out {out}: {error.strerror}") from None
        click.echo(f"wrote {out}", err=True)
    sys.exit(1 if found.after.verdict != "healthy" else 0)
