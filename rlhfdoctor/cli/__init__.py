"""The `doctor` command: flags in, exit code out; everything heavy is imported inside its command.

Exit codes (contract.md): 0 nothing wrong found, 1 an incident, 2 wrong use or unreadable input.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor import __version__
from rlhfdoctor.cli.bundle import bundle
from rlhfdoctor.cli.compare import compare
from rlhfdoctor.cli.console import Progress, language_option, make_page, text_of, write
from rlhfdoctor.cli.estimate import estimate
from rlhfdoctor.cli.report import render_page, report
from rlhfdoctor.cli.rules import rules
from rlhfdoctor.errors import DoctorError, UsageError

if TYPE_CHECKING:
    from rlhfdoctor.core.session import Session
    from rlhfdoctor.types import Incident, Patch

_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Group(click.Group):
    """Prints the errors that users may see without a traceback, and exits with 2."""

    def invoke(self, ctx: click.Context) -> Any:
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):
                stream.reconfigure(errors="backslashreplace")
        try:
            return super().invoke(ctx)
        except DoctorError as error:
            click.echo(f"doctor: {error}", err=True)
            ctx.exit(2)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            ctx.exit(0)
        except (click.ClickException, click.exceptions.Exit, click.Abort, KeyboardInterrupt):
            raise
        except Exception as error:
            if os.environ.get("RLHFDOCTOR_DEBUG"):
                raise
            message = f"{type(error).__name__}: {error}"[:300]
            click.echo(
                f"doctor: internal error in doctor (not in your run): {message}\n"
                "Please report it with the output of the same command under RLHFDOCTOR_DEBUG=1.",
                err=True,
            )
            ctx.exit(2)


@click.group(cls=_Group, context_settings=_SETTINGS)
@click.version_option(__version__, prog_name="doctor")
def main() -> None:
    """The doctor for RLHF training runs: what killed the run, why, and what to change.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs launch.sh
      doctor estimate launch.sh --host-memory 1T --gpu a100-80g
      doctor watch -- python train.py
      dmesg -T | doctor analyze -
      doctor patch ray_logs launch.sh --write
      doctor compare doctor-runs/before doctor-runs/after
      doctor report doctor-runs/20260131T120000Z-train --out report.html
      doctor bundle ray_logs launch.sh --out incident.tar.gz
      doctor rules explain host-pinned-offload
    """


_PATHS = click.argument("paths", nargs=-1, required=True)


def _reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--config",
            "configs",
            multiple=True,
            metavar="FILE",
            help="Configuration file beside the paths; repeatable.",
        ),
        click.option("--framework", metavar="NAME[==VERSION]", help="Training framework, if it cannot be detected."),
        click.option("--since", metavar="TIME", help="Ignore what happened before (2026-01-31 12:00, UTC)."),
        click.option("--until", metavar="TIME", help="Ignore what happened after."),
    ):
        command = option(command)
    return command


@main.command()
@_PATHS
@_reading_options
@click.option("--format", "form", type=click.Choice(["text", "json", "md", "html"]), default="text", show_default=True)
@click.option(
    "--out", type=click.Path(dir_okay=False), metavar="FILE", help="Write the report here instead of standard output."
)
@click.option("--min-confidence", type=click.FloatRange(0, 1), default=0.0, help="Leave out findings below.")
@language_option
@click.option("--all", "all_findings", is_flag=True, help="Show every finding with all of its evidence.")
def analyze(
    paths: tuple[str, ...],
    form: str,
    out: str | None,
    min_confidence: float,
    lang: str,
    all_findings: bool,
    **reading: Any,
) -> None:
    """Say what ended a run, from what it left behind.

    PATHS is any mix of Ray session or log folders, log files, .gz/.zst/.tar.*/.zip archives,
    launch scripts, YAML, DeepSpeed JSON, and - for standard input.

    \b
    Examples:
      doctor analyze /tmp/ray/session_latest/logs train.log launch.sh
      doctor analyze incident.tar.gz --format json --out report.json
      dmesg -T | doctor analyze - --framework openrlhf==0.5.3
    """
    incident, session = _analyze(paths, min_confidence=min_confidence, everything=form == "html", **reading)
    text = (
        render_page(incident, session.whole, lang)
        if form == "html"
        else _render(incident, form, out is not None, all_findings, lang)
    )
    write(text, out)
    sys.exit(1 if incident.verdict != "healthy" else 0)


@main.command()
@_PATHS
@_reading_options
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
      doctor patch launch.sh --revert
    """
    from rlhfdoctor.patch.apply import revert_files, selected

    if revert:
        restored = revert_files([Path(path) for path in paths])
        for path in restored:
            click.echo(f"restored {path}")
        if not restored:
            raise UsageError("nothing to take back: no patched file below " + ", ".join(paths))
        return
    incident, _ = _analyze(paths, **reading)
    known = {finding.cause for finding in incident.findings}
    for rule in consent:
        if rule not in known:
            raise UsageError(f"--consent {rule}: no such finding here. Findings: {', '.join(sorted(known)) or 'none'}")
    chosen = selected(incident.findings, consent)
    if not write:
        for finding in incident.findings:
            for item in finding.patches:
                _show_patch(finding.cause, item, item in chosen)
        sys.exit(1 if incident.verdict != "healthy" else 0)
    _write_patches(incident, paths, consent, reading)


def _show_patch(cause: str, item: Patch, wanted: bool) -> None:
    state = "would be written" if wanted else f"not written: {item.safety}" if item.diff else "no file to change"
    change = "" if item.after in (None, "null") else f" {item.before or '(not set)'} -> {item.after}"
    click.echo(f"# {cause}: {item.spelled}{change} [{item.safety}] {state}")
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
        raise UsageError(f"{inside}: is inside an archive; extract it before patching")
    texts = apply_all(chosen)
    if not texts:
        click.echo("nothing written: no patch of a known cause is safe or has your consent", err=True)
        sys.exit(1)
    for name, (text, count) in texts.items():
        write_file(Path(name), text)
        click.echo(
            f"patched {name} ({count} change{'s' if count > 1 else ''}); take it back with: doctor patch {name} --revert"
        )


def _analyze(
    paths: tuple[str, ...],
    configs: tuple[str, ...],
    framework: str | None,
    since: str | None,
    until: str | None,
    min_confidence: float = 0.0,
    everything: bool = False,
) -> tuple[Incident, Session]:
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.core.session import Session
    from rlhfdoctor.logs.clock import read_time

    if min_confidence != min_confidence:
        raise UsageError("--min-confidence takes a number from 0 to 1")
    if framework is not None and not framework.partition("==")[0].strip():
        raise UsageError(f"--framework '{framework}': write NAME or NAME==VERSION, such as openrlhf==0.5.3")
    bounds = []
    for name, text in (("--since", since), ("--until", until)):
        full = None if text is None else text if ":" in text else f"{text} 00:00"
        value = None if full is None else read_time(full if full.count(":") > 1 else f"{full}:00")
        if full is not None and value is None:
            raise UsageError(f"{name} {text}: write a time such as '2026-01-31 12:00'")
        bounds.append(value)
    with (
        Progress() as progress,
        Session(
            paths,
            configs=configs,
            framework=framework,
            since=bounds[0],
            until=bounds[1],
            everything=everything,
            progress=progress,
        ) as session,
    ):
        return make_incident(session, min_confidence=min_confidence), session


def _render(incident: Incident, form: str, to_file: bool, all_findings: bool, lang: str) -> str:
    if form == "json":
        from rlhfdoctor.report import json as json_report

        return json_report.render(incident)
    from rlhfdoctor.i18n.language import load_language

    words = load_language(lang)
    if form == "md":
        from rlhfdoctor.report import markdown

        return markdown.render(incident, words)
    from rlhfdoctor.report import terminal

    page = make_page(to_file)
    terminal.render(incident, page, all_findings, words)
    return text_of(page)


@main.command(context_settings={"ignore_unknown_options": False})
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--pid", "pids", type=int, multiple=True, metavar="PID", help="Attach to a process and its descendants; repeatable."
)
@click.option("--cgroup", metavar="PATH", help="Attach to all processes of a cgroup; 'auto' is our own.")
@click.option(
    "--ray",
    "ray_address",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Attach to a Ray cluster: one recorder a node.",
)
@click.option("--attach", metavar="DIR", help="Reattach to a running recording.")
@click.option(
    "--interval", default="1s", metavar="TIME", show_default=True, help="Sampling interval; shortened near a limit."
)
@click.option("--out", metavar="DIR", help="Folder of the run.  [default: doctor-runs/<UTC time>-<name>]")
@click.option("--no-view", is_flag=True, help="No live view: the command's output is passed through.")
@click.option(
    "--alert-at",
    default="10m",
    metavar="TIME",
    show_default=True,
    help="Alert when a limit is forecast within this time.",
)
@click.option("--alert-command", metavar="SHELL", help="Run at an alarm; RLHFDOCTOR_ALARM holds the text.")
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics on 127.0.0.1; needs rlhfdoctor[metrics].",
)
@click.option(
    "--engine", "engines", multiple=True, metavar="HOST:PORT", help="vLLM server whose /metrics to read; repeatable."
)
def watch(
    command: tuple[str, ...],
    pids: tuple[int, ...],
    cgroup: str | None,
    ray_address: str | None,
    attach: str | None,
    interval: str,
    out: str | None,
    no_view: bool,
    alert_at: str,
    alert_command: str | None,
    metrics_port: int | None,
    engines: tuple[str, ...],
) -> None:
    """Record a run from outside, and say what ended it.

    The recorder is a process of its own and outlives the terminal, this command and the run.
    Ctrl-C leaves the live view; the run goes on. The exit status is the command's own.

    \b
    Examples:
      doctor watch -- python train.py --config ppo.yaml
      doctor watch --pid 4711 --alert-at 20m --alert-command 'mail -s "$RLHFDOCTOR_ALARM" me'
      doctor watch --ray
      doctor watch --attach doctor-runs/20260131T120000Z-train
    """
    from rlhfdoctor.record.command import WatchOptions
    from rlhfdoctor.record.command import watch as run
    from rlhfdoctor.units import parse_seconds

    times = []
    for name, text in (("--interval", interval), ("--alert-at", alert_at)):
        seconds = parse_seconds(text)
        if seconds is None or not 0 < seconds < 10 * 86400:
            raise UsageError(f"{name} {text}: write a time such as 1s, 500ms, 10m or 2h")
        times.append(seconds)
    options = WatchOptions(
        command=command,
        pids=pids,
        cgroup=cgroup,
        attach=attach,
        out=out,
        interval_s=max(times[0], 0.05),
        alert_at_s=times[1],
        alert_command=alert_command,
        port=metrics_port,
        metrics=engines,
        view=not no_view,
    )
    if ray_address is not None:
        from rlhfdoctor.record.cluster import watch_ray

        sys.exit(watch_ray(options, ray_address, _verdict))
    sys.exit(run(options, _verdict))


def _verdict(folder: Path, command: bool) -> int:
    """Analyzes a recorded run and prints what ended it; to standard error where standard output is the command's."""
    incident, _ = _analyze((str(folder),), (), None, None, None)
    from rlhfdoctor.i18n.language import preferred

    text = _render(incident, "text", False, False, preferred())
    to_stderr = command and not sys.stdout.isatty()
    click.echo(text, nl=False, err=to_stderr)
    click.echo(f"\nagain, or with more files: doctor analyze {folder}", err=True)
    return 1 if incident.verdict != "healthy" else 0


main.add_command(bundle)
main.add_command(compare)
main.add_command(estimate)
main.add_command(report)
main.add_command(rules)
