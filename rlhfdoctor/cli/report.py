"""`doctor report`: the report of a run as a page, as Markdown or as a picture."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlhfdoctor.cli.console import language, language_option, rules_option, write, write_bytes
from rlhfdoctor.cli.incident import EXIT_CODES, given_options, read_session
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlhfdoctor.trace.events import Recorded
    from rlhfdoctor.types import Incident

FORMS = ("html", "md", "png", "svg")


@click.command(cls=ProjectCommand)
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="File to write; its ending selects the format.  [default: doctor-report.html]",
)
@click.option("--format", "form", type=click.Choice(FORMS), help="Format, if the file's ending does not show it.")
@click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, if it cannot be detected.")
@rules_option
@language_option
def report(
    paths: tuple[str, ...],
    out: str | None,
    form: str | None,
    framework: str | None,
    rules: tuple[Path, ...],
    lang: str,
) -> None:
    """Write what ended a run as a page, as Markdown, or as a picture of its memory.

    PATHS is what `doctor analyze` takes; pictures need the folder that `doctor watch` wrote. The page is one file that
    needs no network: verdict, evidence, memory by role over time, patches, ledger. PNG and SVG are drawn by matplotlib
    (pip install 'rlhfdoctor[pictures]'), in English.

    \b
    Examples:
      doctor report doctor-runs/20260131T120000Z-train
      doctor report doctor-runs/20260131T120000Z-train --out timeline.png
      doctor report ray_logs launch.sh --out issue.md
    """
    if out == "-":
        raise UsageError(say("--out -: name a file; `doctor analyze --format html` prints the page"))
    target = Path(out or f"doctor-report.{form or 'html'}")
    ending = target.suffix.lstrip(".").lower()
    chosen = form or {"htm": "html", "markdown": "md"}.get(ending, ending)
    if chosen not in FORMS:
        raise UsageError(say("--out {file}: end it in .html, .md, .png or .svg, or say --format", file=str(target)))
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.engine.catalogue import load_catalogue

    catalogue = load_catalogue(*rules)
    with read_session(paths, framework=framework) as session:
        incident = replace(make_incident(session, catalogue), options=given_options())
        made = _render(incident, session.traces, chosen)
    write_bytes(made, target) if isinstance(made, bytes) else write(made, str(target))
    sys.exit(EXIT_CODES[incident.verdict])


def _render(incident: Incident, traces: Sequence[Recorded], form: str) -> str | bytes:
    if form == "html":
        return render_page(incident, traces)
    if form == "md":
        from rlhfdoctor.report import markdown

        return markdown.render(incident, language())
    from rlhfdoctor.core.timeline import draw_charts
    from rlhfdoctor.report import picture
    from rlhfdoctor.report.phrasing import headline

    charts = draw_charts(traces, incident)
    return picture.render(charts, headline(incident), form, words=language())  # type: ignore[arg-type]


def render_page(incident: Incident, traces: Sequence[Recorded]) -> str:
    """The HTML report with the charts of the traces, whose session has to be open, in the language of the command."""
    import time

    from rlhfdoctor import __version__
    from rlhfdoctor.core.timeline import draw_charts
    from rlhfdoctor.report import html

    charts = draw_charts(traces, incident)
    return html.render(incident, charts, made_s=time.time(), version=__version__, words=language())
