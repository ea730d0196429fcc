"""Which framework ran, in which version, on what basis: banners, package lists, paths, spellings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.plugins import folders
from rlhfdoctor.plugins.spec import FrameworkSpec
from rlhfdoctor.settings.spell import FRAMEWORKS, claimants, load_table, normal, parse_version
from rlhfdoctor.types import Event, Framework, Setting
from rlhfdoctor.vocabulary import EVENT, FIELD

_PACKAGE, _COMMAND, _PATH, _SPELLING, _ACTOR = 12, 8, 3, 2, 1
"""What a sign weighs: a package that is installed, a command line, a source file in a traceback, a setting, a Ray
class."""
_LEAST = 4


def find_versions(events: Iterable[Event]) -> dict[str, tuple[str, str]]:
    """Package -> (version, basis), from banners and package lists; the first mention wins."""
    versions: dict[str, tuple[str, str]] = {}
    for event in events:
        version = event.fields.get(FIELD.version)
        if not version:
            continue
        package = {
            EVENT.deepspeed.version: "deepspeed",
            EVENT.vllm.version: "vllm",
            EVENT.nccl.version: "nccl",
        }.get(event.kind)
        if event.kind == EVENT.version.package:
            package = str(event.fields.get(FIELD.name, "")).lower().replace("_", "-")
            package = "nccl" if package.startswith("nvidia-nccl") else package
        if package:
            versions.setdefault(package, (str(version), str(event.origin)))
    return versions


def find_framework(
    events: Sequence[Event],
    settings: Sequence[Setting],
    versions: dict[str, tuple[str, str]],
    given: str | None = None,
) -> Framework | None:
    """The training framework of a run.

    Args:
        given: the user's choice, `NAME` or `NAME==VERSION`; it takes precedence.
    """
    if given:
        return _given(given)
    votes: Counter[str] = Counter()
    exclusive: Counter[str] = Counter()
    basis: dict[str, str] = {}
    for names, weight, where in _signs(events, settings, versions):
        for name in names:
            votes[name] += weight
            exclusive[name] += len(names) == 1
            basis.setdefault(name, where)
    for spec in folders.load():
        if spec.extends and exclusive[spec.framework]:
            votes[spec.framework] += votes[spec.extends]  # a fork has the modules and settings of what it was made of
    if not votes or max(votes.values()) < _LEAST:
        return None
    name = max(FRAMEWORKS, key=lambda key: (votes[key], exclusive[key]))  # in a draw the first of them
    own = next(((p, *versions[p.name]) for p in reversed(folders.packages(name)) if p.name in versions), None)
    since, until = _range(name, settings)
    return Framework(
        name=name,
        version=own[0].release(own[1]) if own else None,
        package=own[0].name if own and own[0].name != name else "",
        since=since,
        until=until,
        basis=quoted(own[2] if own else basis[name]),
    )


def _given(text: str) -> Framework:
    """The user's choice: the framework or one of its packages; of several, the framework's name means the newest."""
    word, _, version = text.partition("==")
    name = name_of(word)
    package = next((p for p in folders.packages(name) if p.name == word.lower()), None)
    release = package.release(version) if package is not None else version
    return Framework(
        name=name,
        version=release or None,
        package=package.name if package is not None and package.name != name else "",
        basis=quoted("--framework"),
    )


def name_of(given: str) -> str:
    """The framework that `NAME`, `PACKAGE` or `NAME==VERSION` names."""
    word = given.partition("==")[0].lower()
    owner = next((s.framework for s in folders.load() if any(p.name == word for p in s.packages)), word)
    return word if word in FRAMEWORKS else owner


def _signs(
    events: Sequence[Event], settings: Sequence[Setting], versions: Mapping[str, tuple[str, str]]
) -> Iterator[tuple[tuple[str, ...], int, str]]:
    """(frameworks that have it, weight, where it was read) of each sign of a framework."""
    for spec in folders.load():
        for package in spec.packages:
            if package.name in versions:
                yield (spec.framework,), _PACKAGE, versions[package.name][1]
    actors = {actor: spec.framework for spec in folders.load() for actor in spec.actors}
    for event in events:
        if event.origin.actor in actors:
            yield (actors[event.origin.actor],), _ACTOR, str(event.origin)
        if event.kind == EVENT.framework.module and (name := _of_command(str(event.fields[FIELD.name]))):
            yield (name,), _COMMAND, str(event.origin)
        path = event.fields.get(FIELD.path_text)
        if event.kind == EVENT.python.frame and isinstance(path, str) and (name := _of_path(path)):
            yield (name,), _PATH, str(event.origin)
    for setting in settings:
        if setting.framework in FRAMEWORKS and setting.form != "dump":
            yield claimants(setting.spelled) or (setting.framework,), _SPELLING, str(setting.origin)


def _forks_first() -> list[FrameworkSpec]:
    return sorted(folders.load(), key=lambda spec: not spec.extends)


def _of_command(text: str) -> str | None:
    return next((s.framework for s in _forks_first() if any(re.search(c, text) for c in s.commands)), None)


def _of_path(path: str) -> str | None:
    return next((s.framework for s in _forks_first() if any(part in path for part in s.paths)), None)


def _range(name: str, settings: Sequence[Setting]) -> tuple[str | None, str | None]:
    """Oldest and newest release that accept every spelling seen in the user's own files."""
    since: str | None = None
    until: str | None = None
    if name not in FRAMEWORKS:
        return None, None
    for setting in settings:
        if setting.framework != name or setting.form in ("dump", "argv"):
            continue
        rows = [s for s in load_table(name) if normal(s.spelled) == normal(setting.spelled)]
        if not rows:
            continue
        firsts = [(parse_version(s.since), s.since) for s in rows if parse_version(s.since)]
        lasts = [(parse_version(s.until), s.until) for s in rows]
        if firsts:
            first = min(firsts, key=lambda pair: pair[0] or 0)[1]
            known = parse_version(since)
            if known is None or (parse_version(first) or known) > known:
                since = first
        if all(value is not None for value, _ in lasts):
            last = max(lasts, key=lambda pair: pair[0] or 0)[1]
            known = parse_version(until)
            if known is None or (parse_version(last) or known) < known:
                until = last
    return since, until
