"""The project file: what the runs of one project have in common, as defaults of every command's options.

`rlhfdoctor.toml`, or the table `[tool.rlhfdoctor]` of `pyproject.toml`; `doctor config --help` has an example.

The nearest one counts, from the current folder upwards. Rules can propose changes of files, so it is read only if
only the user and root can have written it, and never in a folder that the command reads: what is analysed may be
another person's. Where what is read lies below the file, the command says which of its values it takes, and its rules
count only if the user trusts its folder (`rlhfdoctor.cli.trust`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from rlhfdoctor.cli.console import choose_language, tell
from rlhfdoctor.cli.trust import is_trusted
from rlhfdoctor.files.bounds import is_below
from rlhfdoctor.files.mounts import is_silent
from rlhfdoctor.i18n.message import Message, say

FILE, SHARED_FILE = "rlhfdoctor.toml", "pyproject.toml"
OPTIONS: Mapping[str, str] = {
    "framework": "framework",
    "language": "lang",
    "rules": "rules",
    "machine.nodes": "nodes",
    "machine.gpus_per_node": "gpus_per_node",
    "machine.gpu": "gpu",
    "machine.host_memory": "host_memory",
    "machine.container_memory": "container_memory",
    "machine.shm": "shm",
}
"""Key -> the parameter of commands whose default it is."""
KEYS = (*list(OPTIONS)[:3], "hide", *list(OPTIONS)[3:])
"""`hide` is added to what `--hide` gives."""
_READ = ("paths", "configs", "before", "after", "attach")
"""Parameters of commands that name what is read."""
_LOCAL = re.compile(r"^(?:file|local):/{1,3}(?=[^/])")
"""What fsspec puts before the path of a file of this machine."""
_DESCRIPTORS = ("/proc/", "/dev/fd/")
_PROJECT = f"{__name__}.project"
"""Where the context of a command keeps it."""


@dataclass(frozen=True, slots=True)
class Project:
    """What a project file says; empty where there is none."""

    path: Path | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    """Key, such as `machine.nodes`, -> value; what the file does not say is left out."""
    lines: Mapping[str, int] = field(default_factory=dict)
    """Key -> its line."""
    notes: tuple[Message, ...] = ()
    """Files that were found and not read, and why; what is taken from a file above what is read."""

    def defaults(self) -> dict[str, Any]:
        """Of the parameters of commands."""
        return {OPTIONS[key]: value for key, value in self.values.items() if key in OPTIONS}


def project_of(context: click.Context) -> Project:
    """The project file of the command that runs."""
    found = context.meta.get(_PROJECT)
    return found if isinstance(found, Project) else Project()


class ProjectCommand(click.Command):
    """A command that takes the defaults of its options from the project file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Before values are looked up, so that an option that is given goes before the file."""
        given, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        help_option = self.get_help_option(ctx)
        asks_help = help_option is not None and bool(given.get(help_option.name or ""))
        if not asks_help and not ctx.resilient_parsing:  # that is a shell, which completes a word
            project = find_project(".", _flat(given.get(name) for name in _READ))
            for message in project.notes:
                tell(message, err=True)
            ctx.meta[_PROJECT], ctx.default_map = project, project.defaults()
            if "language" in project.values:
                choose_language(ctx, project.values["language"])
        return super().parse_args(ctx, args)


def _flat(values: Iterable[Any]) -> list[str]:
    found: list[str] = []
    for value in values:
        found += value if isinstance(value, tuple | list) else [value] if isinstance(value, str) else []
    return found


def find_project(folder: str | Path, analysed: Iterable[str] = ()) -> Project:
    """The nearest project file of a folder or of those above it.

    Args:
        analysed: what is read. In a folder of it, and below it, no file counts. What names no place is taken for
            something in the current folder.

    Raises:
        UsageError: it has faults; each line names file and line.
    """
    from rlhfdoctor.cli.project_file import has_section, read_project

    notes: list[Message] = []
    try:
        top = Path(folder).resolve(strict=True)
    except OSError:  # the current folder was removed
        return Project()
    read = [_place(path) for path in analysed if not is_silent(_LOCAL.sub("/", path))]
    for place in (top, *top.parents):
        for name in (FILE, SHARED_FILE):
            path = place / name
            try:
                mode = path.lstat().st_mode
            except OSError:
                continue
            why = _distrust(place, path, mode, filter(os.path.isdir, read))
            if name == SHARED_FILE and not (stat.S_ISREG(mode) and has_section(path)):
                continue
            if why is None:
                values, lines = read_project(path, is_shared=name == SHARED_FILE)
                if any(is_below(one, str(place)) for one in read):
                    values = _above(path, dict(values), notes)
                return Project(path, values, lines, tuple(notes))
            notes.append(say("{file} is not used: {why}", file=str(path), why=why))
    return Project(notes=tuple(notes))


def _place(path: str) -> str:
    """The real path of what is read; what is no path (standard input, a pipe, a storage) is in the current folder.

    >>> _place("file:///srv/run"), _place("-") == _place("s3://bucket/run") == os.path.realpath("-")
    ('/srv/run', True)
    """
    local = _LOCAL.sub("/", path)
    real = os.path.realpath(local)
    return os.path.realpath("-") if "://" in local or real.startswith(_DESCRIPTORS) else real


def _above(path: Path, values: dict[str, Any], notes: list[Message]) -> dict[str, Any]:
    """Of a file above what is read: it may have come with that."""
    if "rules" in values and not is_trusted(path.parent):
        del values["rules"]
        why = say("what is read lies below it. If they are yours: doctor config --trust")
        notes.append(say("the rules of {file} are not used: {why}", file=str(path), why=why))
    taken = tuple(key for key in values if key not in ("hide", "language"))
    if taken:
        notes.append(say("from {file}: {keys:, }", file=str(path), keys=taken))
    return values


def _distrust(place: Path, path: Path, mode: int, untrusted: Iterable[str]) -> Message | None:
    """Why a file is not believed; None if it is."""
    if any(is_below(str(place), other) for other in untrusted):
        return say("it is in the folder that is read; run the command from another folder, or name files in it")
    if not stat.S_ISREG(mode):
        return say("it is no regular file")
    for one in (place, path):
        info = one.lstat()
        if info.st_uid not in (0, os.geteuid()):
            return say("{path} belongs to another user", path=str(one))
        if info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            return say("others may write {path}; chmod go-w makes it yours alone", path=str(one))
    return None
