"""`doctor watch`: a recording on the command line, with its verdict at the end."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import click

from rlhfdoctor.cli.console import echo, language_option, rules_option, tell
from rlhfdoctor.cli.incident import EXIT_CODES, incident_of, render_incident
from rlhfdoctor.cli.project import ProjectCommand
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.report.sanitize import shell_path


@click.command(cls=ProjectCommand)
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
@click.option(
    "--alert-command", metavar="SHELL", help="Run at an alarm, and when the run dies; RLHFDOCTOR_ALARM holds the text."
)
@click.option(
    "--notify",
    multiple=True,
    metavar="URL",
    help="Tell of an alarm or a death: slack://, lark://, dingtalk://, wecombot://, mailto:// and others of "
    "rlhfdoctor[notify], or 'bell'; repeatable. RLHFDOCTOR_NOTIFY keeps the token off the command line.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve Prometheus metrics on 127.0.0.1; needs rlhfdoctor[metrics].",
)
@click.option(
    "--engine", "engines", multiple=True, metavar="HOST:PORT", help="vLLM server whose /metrics to read; repeatable."
)
@rules_option
@language_option
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
    notify: tuple[str, ...],
    metrics_port: int | None,
    engines: tuple[str, ...],
    rules: tuple[Path, ...],
    lang: str,
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
            raise UsageError(say("{option} {text}: write a time such as 1s, 500ms, 10m or 2h", option=name, text=text))
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
        notify=notify,
        port=metrics_port,
        metrics=engines,
        view=not no_view,
        language=lang,
    )
    if rules:
        from rlhfdoctor.engine.catalogue import load_catalogue

        load_catalogue(*rules)  # a fault is better known before the run than after it
    verdict = partial(_verdict, rules)
    if ray_address is not None:
        from rlhfdoctor.record.cluster import watch_ray

        sys.exit(watch_ray(options, ray_address, verdict))
    sys.exit(run(options, verdict))


def _verdict(rules: tuple[Path, ...], folder: Path, command: bool) -> int:
    """Analyzes a recorded run and prints what ended it; to standard error where standard output is the command's."""
    incident = incident_of((str(folder),), rules)
    text = render_incident(incident, "text", False, False)
    to_stderr = command and (sys.stdout is None or not sys.stdout.isatty())
    echo(text, err=to_stderr, end="", colours=True)
    echo("", err=True)
    tell(say("again, or with more files: doctor analyze {folder}", folder=shell_path(str(folder))), err=True)
    return EXIT_CODES[incident.verdict]
