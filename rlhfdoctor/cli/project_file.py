"""The text of a project file -> its values by key; every fault at its line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.places import rules_in

if TYPE_CHECKING:
    from rlhfdoctor.conditions.files import Place

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_SECTION = ("tool", "rlhfdoctor")
"""Of a file that other tools share."""
_MOST_BYTES = 1 << 20
_MOST_WORK = 4_000_000
"""Of the parser, which keeps every start of a dotted key: squares of the dots of each line. 40 kB can cost 2 GiB."""
_LEAST_BYTES = 1 << 30


def has_section(path: Path) -> bool:
    """Whether a file that other tools share has a table for the doctor; not if it is no TOML, which they say."""
    try:
        data = read_bytes(path, _MOST_BYTES)
        return _SECTION[-1].encode() in data and _section(_parsed(data.decode())) is not None
    except (OSError, ValueError, RecursionError):
        return False


def read_project(path: Path, *, is_shared: bool) -> tuple[Mapping[str, Any], Mapping[str, int]]:
    """Values and lines by key, such as `machine.nodes`; what the file does not say is left out.

    Args:
        is_shared: other tools share the file, and the doctor's table of it counts.

    Raises:
        UsageError: the file is unreadable, or has faults; each line names file and line.
    """
    try:
        text = read_bytes(path, _MOST_BYTES, owners=(0, os.geteuid()), follow=False).decode()
        raw = _parsed(text)
    except OSError as error:
        raise UsageError(quoted(f"{path}: {error.strerror}")) from None
    except UnicodeDecodeError:
        raise UsageError(say("{file}: is not UTF-8", file=str(path))) from None
    except (ValueError, RecursionError) as error:
        raise UsageError(quoted(f"{path}: {error}")) from None
    lines = dict(_places(text, _SECTION if is_shared else ()))
    values = _checked(_section(raw) if is_shared else raw, path, lines)
    return values, {key: lines.get(tuple(key.split(".")), 1) for key in values}


def _parsed(text: str) -> dict[str, Any]:
    """
    Raises:
        ValueError: it is no TOML, or would cost too much.
    """
    if sum(line.count(".") ** 2 for line in text.split("\n")) > _MOST_WORK:
        raise ValueError("too many dots in a line; dotted keys are short")
    found: dict[str, Any] = tomllib.loads(text)
    return found


def _section(raw: Any) -> Any:
    for part in _SECTION:
        raw = raw.get(part) if isinstance(raw, dict) else None
    return raw


def _checked(raw: Any, path: Path, lines: Mapping[Place, int]) -> dict[str, Any]:
    import msgspec

    from rlhfdoctor.cli.project_form import ProjectForm
    from rlhfdoctor.conditions.files import Faults, convert

    faults = Faults(path, lambda: lines)
    form = convert(raw, ProjectForm, (), faults)
    values: dict[str, Any] = {}
    if form is not None:
        plain = msgspec.to_builtins(form)
        plain |= {f"machine.{key}": value for key, value in (plain.pop("machine") or {}).items()}
        values = {key: value for key, value in plain.items() if value is not None}
    if "rules" in values:
        values["rules"] = [str(path.parent / os.path.expanduser(folder)) for folder in values["rules"]]  # noqa: PTH111
    for key, value in values.items():
        for what in _faults_of(key, value):
            faults.add(tuple(key.split(".")), what)
    if faults.found:
        raise UsageError(quoted("\n".join(faults.found)))
    return values


def _faults_of(key: str, value: Any) -> Iterator[str]:
    from rlhfdoctor.i18n.language import languages
    from rlhfdoctor.units import parse_bytes

    if key == "framework" and not value.partition("==")[0].strip():
        yield f"'{value}': write NAME or NAME==VERSION, such as openrlhf==0.5.3"
    elif key == "language" and value not in languages():
        yield f"no language '{value}'. Known: {', '.join(languages())}"
    elif key == "rules":
        empty = (folder for folder in value if not rules_in(Path(folder)))
        yield from (f"{folder}: holds no rule (a folder with rule.yaml)" for folder in empty)
    elif key.endswith(("_memory", ".shm")) and (parse_bytes(value) or 0) < _LEAST_BYTES:
        yield f"'{value}': write a size such as 512G, 1.5T or 80GiB"


def _places(text: str, section: tuple[str, ...]) -> Iterator[tuple[Place, int]]:
    """Where the keys of a section are, each by its path below the section."""
    at: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), 1):
        key, equals, _ = line.partition("=")
        if line.lstrip().startswith("["):
            words = at = _words(line.partition("]")[0].lstrip(" \t["))
        else:
            words = (*at, *_words(key)) if equals else ()
        if words[: len(section)] == section:
            yield words[len(section) :], number


def _words(key: str) -> tuple[str, ...]:
    return tuple(word.strip(" \t\"'") for word in key.split("."))
