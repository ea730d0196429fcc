"""Paths of a run on the command line -> the incident, or its text; what several commands share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rlhfdoctor.cli.console import Progress, language, make_page, tell, text_of
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.logs.remote import is_remote
from rlhfdoctor.report.sanitize import shell_word

if TYPE_CHECKING:
    from rlhfdoctor.core.session import Session
    from rlhfdoctor.types import Incident

EXIT_CODES: Mapping[str, int] = {"healthy": 0, "cause": 1, "undecided": 1, "inconclusive": 3}
"""Of each verdict (contract.md); 2 is wrong use or unreadable input."""
_READING = frozenset({"configs", "framework", "since", "until", "ray_address", "rules"})
"""Names of the options that decide what an incident is made of."""
paths_argument = click.argument("paths", nargs=-1, required=True)
any_paths_argument = click.argument("paths", nargs=-1)
"""Beside `ray_option`."""
ray_option = click.option(
    "--ray",
    "ray_address",
    is_flag=False,
    flag_value="auto",
    metavar="[ADDRESS]",
    help="Read the session logs of every node of a Ray cluster, each where it lies.",
)


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which a command reads a run: configuration, framework, window."""
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


@contextmanager
def read_session(
    paths: tuple[str, ...],
    configs: tuple[str, ...] = (),
    framework: str | None = None,
    since: str | None = None,
    until: str | None = None,
    ray_address: str | None = None,
) -> Iterator[Session]:
    """A session that has read these paths, with its progress on standard error.

    Args:
        ray_address: of a cluster whose nodes read their own logs, and a part each of the paths that are addresses.

    Raises:
        UsageError: an option's value is malformed; there is no such cluster.
        SourceError: nothing could be read.
    """
    from rlhfdoctor.core.session import Session

    bounds = check_reading(framework, since, until)
    if not paths and ray_address is None:
        raise UsageError(say("nothing to read: give the folder that Ray wrote, a log, or --ray for a running cluster"))
    elsewhere = None
    if ray_address is not None:
        from rlhfdoctor.core.cluster import Cluster

        shared = tuple(filter(is_remote, paths))
        paths = tuple(path for path in paths if path not in shared)
        elsewhere = Cluster(ray_address, lambda message: tell(message, err=True), shared=shared)
    with (
        Progress() as progress,
        Session(
            paths,
            configs=configs,
            framework=framework,
            since=bounds[0],
            until=bounds[1],
            progress=progress,
            expect=progress.expect if progress is not None else None,
            interruptible=True,
            elsewhere=elsewhere,
        ) as session,
    ):
        yield session


def check_reading(framework: str | None, since: str | None, until: str | None) -> tuple[float | None, float | None]:
    """The bounds of the window in Unix seconds.

    Raises:
        UsageError: an option's value is malformed.
    """
    from rlhfdoctor.logs.clock import read_time
    from rlhfdoctor.settings.framework import check_given

    check_given(framework)
    bounds = []
    for name, text in (("--since", since), ("--until", until)):
        full = None if text is None else text if ":" in text else f"{text} 00:00"
        value = None if full is None else read_time(full if full.count(":") > 1 else f"{full}:00")
        if full is not None and value is None:
            raise UsageError(say("{option} {text}: write a time such as '2026-01-31 12:00'", option=name, text=text))
        bounds.append(value)
    return bounds[0], bounds[1]


def given_options(names: Collection[str] = _READING) -> tuple[str, ...]:
    """Options that the command line gives, by default those of reading, each with its value, quoted for a shell."""
    context = click.get_current_context()
    options = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name in names and context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            given = context.params[name]
            for value in given if isinstance(given, tuple) else (given,):
                options.append(f"{parameter.opts[0]} {shell_word(str(value))}")
    return tuple(options)


def incident_of(paths: tuple[str, ...], rules: Sequence[Path] = (), **reading: Any) -> Incident:
    """The incident of these paths; `reading` as `read_session` takes it, which also raises.

    Args:
        rules: folders of further rules.

    Raises:
        RuleError: a rule has faults.
    """
    from rlhfdoctor.core.diagnose import make_incident
    from rlhfdoctor.engine.catalogue import load_catalogue

    catalogue = load_catalogue(*rules)
    with read_session(paths, **reading) as session:
        return make_incident(session, catalogue)


def render_incident(incident: Incident, form: str, to_file: bool, all_findings: bool) -> str:
    """The incident as `text`, `md`, `json` or `sarif`, in the language of the command."""
    if form == "json":
        from rlhfdoctor.report import json as json_report

        return json_report.render(incident)
    words = language()
    if form == "sarif":
        from rlhfdoctor.report import sarif

        return sarif.render(incident, words)
    if form == "md":
        from rlhfdoctor.report import markdown

        return markdown.render(incident, words)
    from rlhfdoctor.report import terminal

    page = make_page(to_file)
    terminal.render(incident, page, all_findings, words)
    return text_of(page)
