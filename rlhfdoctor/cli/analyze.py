"""`doctor analyze`: what ended a run, on the command line."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from rlhfdoctor.cli.console import language_option, rules_option, spare_inputs, write
from rlhfdoctor.cli.incident import (
    EXIT_CODES,
    any_paths_argument,
    given_options,
    ray_option,
    read_session,
    reading_options,
    render_incident,
)
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.cli.report import render_page
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say


@click.command(cls=ProjectCommand)
@any_paths_argument
@ray_option
@reading_options
@rules_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "md", "html", "sarif"]),
    default="text",
    show_default=True,
    help="sarif: for code hosts and editors, findings at the lines of configuration that cure them.",
)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report here instead of standard output."
)
@click.option("--min-confidence", type=click.FloatRange(0, 1), default=0.0, help="Leave out findings below.")
@language_option
@click.option("--all", "all_findings", is_flag=True, help="Show every finding with all of its evidence.")
@click.option("--each", is_flag=True, help="Each path is a run of its own: a table of them, or --out runs.parquet.")
@click.option("--before", metavar="FILE", help="An earlier --each (.jsonl, .parquet): which runs ended like one there.")
def analyze(
    paths: tuple[str, ...],
    ray_address: str | None,
    form: str,
    out: str | None,
    min_confidence: float,
    rules: tuple[Path, ...],
    lang: str,
    all_findings: bool,
    each: bool,
    before: str | None,
    **reading: Any,
) -> None:
    """Say what ended a run, from what it left behind.

    PATHS is any mix of Ray session or log folders, log files, .gz/.zst/.tar.*/.zip archives,
    launch scripts, YAML, DeepSpeed JSON, s3:// and other addresses, and - for standard input.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs train.log launch.sh
      doctor analyze incident.tar.gz --format json --out report.json
      dmesg -T | doctor analyze - --framework openrlhf==0.5.3
      doctor analyze --each runs/* --out this-week.jsonl --before last-week.jsonl
      doctor analyze --each /shared/runs/* --ray
      doctor analyze launch.sh --ray
      doctor analyze s3://bucket/runs/41 launch.sh
    """
    if min_confidence != min_confidence:
        raise UsageError(say("--min-confidence takes a number from 0 to 1"))
    spare_inputs(out, (*paths, *reading["configs"]))
    if each or before is not None:
        if not each:
            raise UsageError(say("--before FILE belongs to --each"))
        if not paths:
            raise UsageError(say("--each takes folders, files or archives, a run each"))
        if form == "sarif":
            raise UsageError(say("--format sarif: a log is of one run; leave out --each"))
        from rlhfdoctor.cli.fleet import run_each

        reading |= {"lang": lang, "min_confidence": min_confidence, "rules": tuple(map(os.path.abspath, rules))}
        sys.exit(run_each(paths, form, out, before, all_findings, ray_address, **reading))
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.engine.catalogue import load_catalogue

    catalogue = load_catalogue(*rules)
    with read_session(paths, ray_address=ray_address, **reading) as session:
        incident = replace(make_incident(session, catalogue, min_confidence), options=given_options())
        text = (
            render_page(incident, session.traces)
            if form == "html"
            else render_incident(incident, form, out is not None, all_findings)
        )
    write(text, out, colours=form == "text")
    sys.exit(EXIT_CODES[incident.verdict])
