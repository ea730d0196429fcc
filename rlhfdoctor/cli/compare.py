"""`doctor compare`: two runs side by side on the command line."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from rlhfdoctor.cli.console import language, language_option, make_page, rules_option, spare_inputs, trimmed, write
from rlhfdoctor.cli.incident import EXIT_CODES
from rlhfdoctor.cli.project import ProjectCommand


@click.command(cls=ProjectCommand)
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the result here instead of standard output."
)
@rules_option
@language_option
def compare(before: str, after: str, form: str, out: str | None, rules: tuple[Path, ...], lang: str) -> None:
    """Say whether a change helped: what became of two runs, their peaks, growth and step time, and the settings that
    differ.

    A and B are folders that `doctor watch` wrote, or what runs left behind, each as one path. A difference that steps
    of one run show among themselves is marked as noise. The exit status is 1 when B ended badly.

    \b
    Examples:
      doctor compare doctor-runs/20260131T120000Z-train doctor-runs/20260201T090000Z-train
      doctor compare before/ after/ --format json
    """
    from rlhfdoctor.core.compare import compare as run
    from rlhfdoctor.report import comparison

    spare_inputs(out, (before, after))
    found = run(before, after, rules=rules)
    if form == "json":
        text = comparison.render_json(found)
    else:
        page = make_page(out is not None, width=140)
        comparison.render(found, page, language())
        text = trimmed(page)
    write(text, out, colours=form != "json")
    sys.exit(EXIT_CODES[found.after.verdict])
