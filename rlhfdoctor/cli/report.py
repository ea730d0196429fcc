"""`doctor report`: the report of a run as a page, as Markdown or as a picture; its curves for other programs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rlhfdoctor.cli.console import (
    language,
    language_option,
    rules_option,
    spare_inputs,
    tell,
    write,
    write_bytes,
)
from rlhfdoctor.cli.incident import EXIT_CODES, given_options, read_session
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rlhfdoctor.curves import Curves
    from rlhfdoctor.trace.events import Recorded
    from rlhfdoctor.types import Incident

FOLDERS = ("tensorboard", "wandb")
"""Forms that are a folder."""
FORMS = ("html", "md", "png", "svg", "openmetrics", *FOLDERS)
_ENDINGS = {"htm": "html", "markdown": "md", "prom": "openmetrics", "om": "openmetrics"}
_DEFAULTS = {"openmetrics": "doctor-report.prom", **{form: f"doctor-report-{form}" for form in FOLDERS}}


@click.command(cls=ProjectCommand)
@click.argument("paths", nargs=-1, required=True)
@click.option(
    "--out",
    type=click.Path(),
    metavar="FILE",
    help="File to write; its ending selects the format. A folder for tensorboard and wandb.  "
    "[default: doctor-report.html]",
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

    The other formats are the curves of a recording: OpenMetrics text, with times, for `promtool tsdb
    create-blocks-from openmetrics`; event files for TensorBoard; an offline run for `wandb sync`. The last two have one
    value a step, the worst in it; one a second where no steps are known.

    \b
    Examples:
      doctor report doctor-runs/20260131T120000Z-train
      doctor report doctor-runs/20260131T120000Z-train --out timeline.png
      doctor report ray_logs launch.sh --out issue.md
      doctor report doctor-runs/20260131T120000Z-train --format tensorboard --out curves
    """
    if out == "-":
        raise UsageError(say("--out -: name a file; `doctor analyze --format html` prints the page"))
    target = Path(out or _DEFAULTS.get(form or "", f"doctor-report.{form or 'html'}"))
    ending = target.suffix.lstrip(".").lower()
    chosen = form or _ENDINGS.get(ending, ending)
    if chosen not in FORMS:
        raise UsageError(
            say("--out {file}: end it in .html, .md, .png, .svg or .prom, or say --format", file=str(target))
        )
    if chosen in FOLDERS and target.exists() and not target.is_dir():
        raise UsageError(say("--out {file}: is a file; --format {form} writes a folder", file=str(target), form=chosen))
    if chosen not in FOLDERS and target.is_dir():
        raise UsageError(say("--out {file}: is a folder; name a file", file=str(target)))
    spare_inputs(str(target), paths)
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.engine.catalogue import load_catalogue

    catalogue = load_catalogue(*rules)
    with read_session(paths, framework=framework) as session:
        incident = replace(make_incident(session, catalogue), options=given_options())
        made = None if chosen in FOLDERS else _render(incident, session.traces, chosen)
        if made is None:
            _write_folder(session.traces, chosen, target)
    if isinstance(made, bytes):
        write_bytes(made, target)
    elif made is not None:
        write(made, str(target))
    sys.exit(EXIT_CODES[incident.verdict])


def _render(incident: Incident, traces: Sequence[Recorded], form: str) -> str | bytes:
    if form == "html":
        return render_page(incident, traces)
    if form == "md":
        from rlhfdoctor.report import markdown

        return markdown.render(incident, language())
    if form == "openmetrics":
        from rlhfdoctor.report import openmetrics

        return openmetrics.render(_curves(traces)).encode()
    from rlhfdoctor.core.timeline import draw_charts
    from rlhfdoctor.report import picture
    from rlhfdoctor.report.phrasing import headline

    charts = draw_charts(traces, incident)
    return picture.render(charts, headline(incident), form, words=language())  # type: ignore[arg-type]


def _write_folder(traces: Sequence[Recorded], form: str, target: Path) -> None:
    """Curves in a form that is a folder, reported on standard error."""
    if form == "tensorboard":
        from rlhfdoctor.report import tensorboard as form_of
    else:
        from rlhfdoctor.report import wandb as form_of  # type: ignore[no-redef]
    try:
        form_of.write(_curves(traces), target)
    except OSError as error:
        raise UsageError(say("--out {file}: {error}", file=str(target), error=str(error.strerror or error))) from None
    tell(say("wrote {file}", file=str(target)), err=True)


def _curves(traces: Sequence[Recorded]) -> list[Curves]:
    from rlhfdoctor.core.curves import read_curves

    found = read_curves(traces)
    if not found:
        raise UsageError(say("curves need a trace: give the folder that `doctor watch` wrote"))
    every = max(curves.every for curves in found)
    if every > 1:
        tell(say("a long recording: one of {every} samples was written", every=every), err=True)
    return found


def render_page(incident: Incident, traces: Sequence[Recorded]) -> str:
    """The HTML report with the charts of the traces, whose session has to be open, in the language of the command."""
    import time

    from rlhfdoctor import __version__
    from rlhfdoctor.core.timeline import draw_charts
    from rlhfdoctor.report import html

    charts = draw_charts(traces, incident)
    return html.render(incident, charts, made_s=time.time(), version=__version__, words=language())
