"""`framework.yaml` -> FrameworkSpec; every fault names its file with the line."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

import yaml

from rlhfdoctor import documents
from rlhfdoctor.errors import PluginError
from rlhfdoctor.plugins.spec import FrameworkSpec, LogPattern, Package, StatedFact, TraitRule
from rlhfdoctor.vocabulary.index import FACTS, KINDS, TRAITS
from rlhfdoctor.vocabulary.names import did_you_mean
from rlhfdoctor.vocabulary.run import PHASES, ROLES


class _Fault(Exception):
    """What is wrong with a value; the reader adds file and line."""


def read_spec(text: str, file: str, folder: str) -> FrameworkSpec:
    """The checked contents of a `framework.yaml`.

    Args:
        file: its path, for messages.
        folder: name of its folder, which is the framework's.

    Raises:
        PluginError: all of its faults, one a line.
    """
    known = documents.recall(text)
    if isinstance(known, dict):
        try:
            return _spec([(key, value, 1) for key, value in known.items()], file, folder)
        except PluginError:
            pass  # below it is known at which line
    entries = _entries(text, file)
    spec = _spec(entries, file, folder)
    documents.keep(text, {key: value for key, value, _ in entries})
    return spec


def _spec(entries: Sequence[tuple[str, Any, int]], file: str, folder: str) -> FrameworkSpec:
    faults: list[str] = []
    found: dict[str, Any] = {}
    for key, value, line in entries:
        try:
            found[key] = _reader(key)(value)
        except _Fault as fault:
            faults.append(f"{file}:{line}: {fault}")
    wanted = [f.name for f in fields(FrameworkSpec) if f.default is MISSING and f.default_factory is MISSING]
    faults += [f"{file}:1: '{key}' is missing" for key in wanted if key not in found]
    if found.get("framework", folder) != folder:
        faults.append(f"{file}:1: framework is '{found['framework']}', its folder is '{folder}'")
    if faults:
        raise PluginError("\n".join(faults))
    return FrameworkSpec(**found)


def _entries(text: str, file: str) -> list[tuple[str, Any, int]]:
    """Keys, values and lines of a YAML mapping."""
    loader = documents.LOADER(text)
    try:
        node = loader.get_single_node()
        if not isinstance(node, yaml.MappingNode):
            raise PluginError(f"{file}:1: a mapping is wanted")
        return [
            (str(loader.construct_object(key)), loader.construct_object(value, deep=True), key.start_mark.line + 1)
            for key, value in node.value
        ]
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise PluginError(f"{file}:{mark.line + 1 if mark else 1}: {getattr(error, 'problem', error)}") from None
    finally:
        loader.dispose()


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise _Fault(f"text is wanted, not {value!r}")
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Fault(f"a whole number is wanted, not {value!r}")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise _Fault(f"a list is wanted, not {value!r}")
    return tuple(_text(one) for one in value)


def _pattern(value: Any) -> str:
    try:
        re.compile(_text(value))
    except re.error as error:
        raise _Fault(f"{value!r} is no regular expression: {error}") from None
    return str(value)


def _patterns(value: Any) -> tuple[str, ...]:
    return tuple(_pattern(one) for one in _texts(value))


def _mapping(value: Any, keys: Mapping[str, bool], what: str) -> Mapping[str, Any]:
    """A mapping with known keys only; `keys`: whether each must be there."""
    if not isinstance(value, dict):
        raise _Fault(f"{what}: a mapping is wanted, not {value!r}")
    for key in value:
        if key not in keys:
            raise _Fault(f"{what}: unknown key '{key}'.{did_you_mean(str(key), keys)}")
    missing = [key for key, needed in keys.items() if needed and key not in value]
    if missing:
        raise _Fault(f"{what}: '{missing[0]}' is missing")
    return value


def _packages(value: Any) -> tuple[Package, ...]:
    rows = [_mapping(one, {"name": True, "epoch": False}, "a package") for one in _list(value)]
    return tuple(Package(name=_text(row["name"]), epoch=_number(row.get("epoch", 0))) for row in rows)


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise _Fault(f"a list is wanted, not {value!r}")
    return value


def _by_name(known: Mapping[str, Any], what: str) -> Callable[[Any], Mapping[Any, str]]:
    """Reads a mapping of known names to expressions."""

    def read(value: Any) -> Mapping[Any, str]:
        if not isinstance(value, dict):
            raise _Fault(f"a mapping of {what}s to expressions is wanted")
        for name in value:
            if name not in known:
                raise _Fault(f"unknown {what} '{name}'.{did_you_mean(str(name), known)}")
        return {known[name]: _pattern(regex) for name, regex in value.items()}

    return read


_TRAIT_KEYS = {"trait": True, "setting": False, "in": False}
_FACT_KEYS = {"fact": True, "value": True, "says": True, "versions": False, "or_unknown": False, "unless": False}
_SPECIFIER = re.compile(r"(?:(?:[<>]=?|[=!~]=) ?[0-9][\w.!]*(?:, ?|$))*")
"""Of PEP 440; `packaging` costs the recorder 2 MiB, and it needs no more than this."""
_PHASE_MARKS = {kind.partition(".")[2]: kind for kind in KINDS.values() if kind.scope == "phase"}
_LOG_KEYS = {"event": True, "regex": True, "sample": True, "follow": False, "when": False, "source": False}


def _log(value: Any) -> LogPattern:
    row = _mapping(value, _LOG_KEYS, "a line of a log")
    kind = KINDS.get(_text(row["event"]))
    if kind is None:
        raise _Fault(f"unknown event '{row['event']}'.{did_you_mean(row['event'], KINDS)}")
    regex = _pattern(row["regex"])
    if re.search(regex, _text(row["sample"])) is None:
        raise _Fault(f"the sample of '{kind}' does not match: {row['sample']}")
    words = {key: _text(row[key]) for key in ("sample", "when", "source") if key in row}
    return LogPattern(event=kind, regex=regex, follow=_number(row.get("follow", 0)), **words)


def _logs(value: Any) -> tuple[LogPattern, ...]:
    return tuple(_log(row) for row in _list(value))


def _roles_of(value: Any) -> Mapping[str, str | None]:
    if not isinstance(value, dict):
        raise _Fault("a mapping of Ray classes to roles is wanted")
    for role in value.values():
        if role is not None and role not in ROLES:
            raise _Fault(f"unknown role '{role}'.{did_you_mean(str(role), ROLES)}")
    return {_text(name): role for name, role in value.items()}


def _trait(value: Any) -> TraitRule:
    row = {"trait": value} if isinstance(value, str) else _mapping(value, _TRAIT_KEYS, "a trait")
    name = _text(row["trait"])
    if name not in TRAITS:
        raise _Fault(f"unknown trait '{name}'.{did_you_mean(name, TRAITS)}")
    if ("setting" in row) != ("in" in row):
        raise _Fault(f"the trait {name}: 'setting' and 'in' go together")
    return TraitRule(trait=TRAITS[name], setting=row.get("setting", ""), values=tuple(_list(row.get("in", []))))


def _traits(value: Any) -> tuple[TraitRule, ...]:
    return tuple(_trait(one) for one in _list(value))


def _fact(value: Any) -> StatedFact:
    row = dict(_mapping(value, _FACT_KEYS, "a fact"))
    for key, known in (("fact", FACTS), ("unless", KINDS)):
        if key in row and row[key] not in known:
            raise _Fault(f"unknown name '{row[key]}'.{did_you_mean(str(row[key]), known)}")
    if not _SPECIFIER.fullmatch(_text(row.get("versions", ""))):
        raise _Fault(f"'{row['versions']}' is no specifier of releases, such as '>=0.1.5,<0.5.4'")
    unless = KINDS[row.pop("unless")] if "unless" in row else None
    return StatedFact(**row | {"fact": FACTS[row["fact"]], "says": _text(row["says"]), "unless": unless})


def _facts(value: Any) -> tuple[StatedFact, ...]:
    return tuple(_fact(one) for one in _list(value))


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "framework": _text,
    "title": _text,
    "repository": _text,
    "order": _number,
    "extends": _text,
    "packages": _packages,
    "commands": _patterns,
    "paths": _texts,
    "actors": _roles_of,
    "roles": _by_name({role: role for role in ROLES}, "role"),
    "functions": _by_name({phase: phase for phase in PHASES}, "phase"),
    "marks": _by_name(_PHASE_MARKS, "phase"),
    "logs": _logs,
    "reward_code": _patterns,
    "traits": _traits,
    "facts": _facts,
    "models": _texts,
    "nodes": _texts,
    "overrides_without_dot": _patterns,
}


def _reader(key: str) -> Callable[[Any], Any]:
    if key not in _READERS:
        raise _Fault(f"unknown key '{key}'.{did_you_mean(key, _READERS)}")
    return _READERS[key]
