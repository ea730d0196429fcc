"""`doctor analyze --each`: many runs, a verdict each, on the command line."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhfdoctor.cli.console import make_page, tell, trimmed, words, write, write_bytes
from rlhfdoctor.cli.incident import check_reading
from rlhfdoctor.errors import UsageError
from rlhfdoctor.fleet import FORMS, UNREADABLE, Fleet, FleetRow, read_fleet
from rlhfdoctor.i18n.message import say

if TYPE_CHECKING:
    from rlhfdoctor.core.fleet import ReadOptions

_BY_ENDING = {".md": "md", ".markdown": "md", ".html": "html", ".htm": "html", ".json": "jsonl", ".ndjson": "jsonl"}


def run_each(
    paths: tuple[str, ...],
    form: str,
    out: str | None,
    before: str | None,
    everything: bool,
    ray_address: str | None,
    *,
    framework: str | None,
    since: str | None,
    until: str | None,
    **options: Any,
) -> int:
    """Reads every run, writes the fleet, and gives the exit code: the worst of the runs' own.

    Args:
        everything: show every run.
        ray_address: of a cluster whose nodes read the runs.
        options: the rest of `ReadOptions`.

    Raises:
        UsageError: an option's value cannot be used.
        SourceError: the fleet of `before` cannot be read.
    """
    if "-" in paths:
        raise UsageError(say("--each takes folders and files, a run each; standard input can be only one run"))
    from rlhfdoctor.core.fleet import ReadOptions

    since_s, until_s = check_reading(framework, since, until)
    reading = ReadOptions(framework=framework, since=since_s, until=until_s, **options)
    chosen = form_of(form, out)
    earlier = read_fleet(before) if before is not None else None
    rows: list[FleetRow] = []
    stopped = False
    try:
        for row in _shown(paths, reading, ray_address):
            rows.append(row)
    except KeyboardInterrupt:
        if not rows:
            raise
        stopped = True
    fleet = Fleet(tuple(rows)).after(earlier.rows if earlier is not None else ())
    _write(fleet, chosen, out, everything, reading.lang)
    if stopped:
        note = say("stopped by Ctrl-C after {read} of {every} runs", read=len(rows), every=len(paths))
        tell(note, err=True)
    return exit_code(fleet)


def form_of(form: str, out: str | None) -> str:
    """The format: as said, else by the ending of the file."""
    ending = Path(out).suffix.lower() if out is not None else ""
    if form == "text" and ending:
        form = _BY_ENDING.get(ending, ending[1:] if ending[1:] in FORMS else form)
    return "jsonl" if form == "json" else form


def exit_code(fleet: Fleet) -> int:
    """1 for an incident, else 3 where a run is inconclusive or unreadable, 2 where all are unreadable, else 0."""
    if fleet.ended_badly:
        return 1
    verdicts = {row.verdict for row in fleet.rows}
    if verdicts == {UNREADABLE}:
        return 2
    return 3 if verdicts & {"inconclusive", UNREADABLE} else 0


def _write(fleet: Fleet, form: str, out: str | None, everything: bool, lang: str) -> None:
    from rlhfdoctor import __version__
    from rlhfdoctor.i18n.language import load_language
    from rlhfdoctor.report import fleet as report

    if form in FORMS:
        if out is None and form != "jsonl":
            raise UsageError(say("--out FILE: {form} is not for a terminal", form=form))
        data = fleet.to_bytes(form)
        write(data.decode(), None) if out is None else write_bytes(data, Path(out))
    elif form == "md":
        write(report.render_markdown(fleet, load_language(lang)), out)
    elif form == "html":
        page = report.render_html(fleet, made_s=time.time(), version=__version__, t=load_language(lang))
        write(page, out)
    else:
        console = make_page(out is not None)
        report.render(fleet, console, everything, load_language(lang))
        write(trimmed(console), out, colours=True)


def _shown(paths: tuple[str, ...], reading: ReadOptions, ray_address: str | None) -> Iterator[FleetRow]:
    """The rows, with a bar on standard error where that is a terminal."""
    from rlhfdoctor.core.fleet import judge_each

    with _bar(len(paths)) as advance:
        for row in judge_each(paths, reading, None, ray_address, lambda message: tell(message, err=True)):
            advance()
            yield row


@contextmanager
def _bar(total: int) -> Iterator[Any]:
    if not sys.stderr.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(words()(say("reading"))), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=total)
        yield lambda: progress.advance(task)
