"""`doctor config`: the values in force for the options of all commands, each with its origin."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from rlhfdoctor.cli.console import echo, language, language_option, tell
from rlhfdoctor.cli.project import FILE, KEYS, SHARED_FILE, Project, ProjectCommand, project_of
from rlhfdoctor.cli.trust import trust
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import NOTHING, Message, quoted, say
from rlhfdoctor.places import bundled_folder, rules_folder
from rlhfdoctor.report.phrasing import NOT_SET

_DEFAULT = say("default")


@click.command(cls=ProjectCommand)
@click.option("--format", "form", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--trust", "trusts", is_flag=True, help="The rules of the project file count also for runs below it.")
@language_option
@click.pass_context
def config(context: click.Context, form: str, trusts: bool, lang: str) -> None:
    """Show the defaults of a project, and where each of them is from.

    A project file is rlhfdoctor.toml, or the table [tool.rlhfdoctor] of pyproject.toml, in the current folder or the
    nearest one above it. Its values are the defaults of the options of the same names; an option that is given goes
    before them, but words to hide add up. It is read only if nobody but you (and root) can write it and its folder,
    and never in a folder that is analysed. Where what is analysed lies below the file, its rules count only after
    --trust: who sends a folder of logs could have put them there.

    \b
    Example of rlhfdoctor.toml:
      framework = "openrlhf==0.5.3"
      language = "zh"
      rules = ["rules"]
      hide = ["acme"]

    \b
      [machine]
      nodes = 2
      gpus_per_node = 8
      gpu = "h100-80g"
      host_memory = "1T"
      container_memory = "900G"
      shm = "64G"

    \b
    Examples:
      doctor config
      doctor config --trust
    """
    project = project_of(context)
    if trusts:
        if project.path is None:
            raise UsageError(
                say("no {file} and no [tool.rlhfdoctor] in {shared} here or above", file=FILE, shared=SHARED_FILE)
            )
        trust(project.path.parent)
        tell(say("the rules of {file} count from now on, wherever the runs are", file=str(project.path)), err=True)
    rows = {key: (value, origin) for key, value, origin in _rows(project, lang)}
    if form == "json":
        values = {key: {"value": value, "from": str(origin) or None} for key, (value, origin) in rows.items()}
        file = None if project.path is None else str(project.path)
        echo(json.dumps({"file": file, "values": values}, indent=2, ensure_ascii=False))
        return
    words = language()
    cells = {key: words(NOT_SET) if value is None else _shown(value) for key, (value, _) in rows.items()}
    width = max(map(len, cells.values()))
    for key, (_, origin) in rows.items():
        echo(f"{key:25} {cells[key]:{width}}  {words(origin)}".rstrip())
    if project.path is None:
        tell(say("no {file} and no [tool.rlhfdoctor] in {shared} here or above", file=FILE, shared=SHARED_FILE))


def _rows(project: Project, lang: str) -> Iterator[tuple[str, Any, Message]]:
    """Key, value and origin of each."""
    for key in KEYS:
        if key == "language":
            yield key, lang, _origin_of_language(project, lang)
        elif key in project.values:
            yield key, project.values[key], quoted(f"{_near(project.path)}:{project.lines[key]}")
        else:
            yield key, None, NOTHING
    named = rules_folder() != bundled_folder()
    yield "catalogue", str(rules_folder()), quoted("$RLHFDOCTOR_RULES") if named else say("bundled")


def _origin_of_language(project: Project, lang: str) -> Message:
    if project.values.get("language") == lang:
        return quoted(f"{_near(project.path)}:{project.lines['language']}")
    return next((quoted(f"${name}") for name in ("LC_ALL", "LC_MESSAGES", "LANG") if os.environ.get(name)), _DEFAULT)


def _near(path: Path | None) -> str:
    """A path as short as it can be."""
    return os.path.relpath(path or "")


def _shown(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)
