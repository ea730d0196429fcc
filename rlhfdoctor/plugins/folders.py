"""The frameworks that are installed: one folder each in `rlhfdoctor/frameworks`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from importlib import resources
from typing import TYPE_CHECKING

from rlhfdoctor.errors import PluginError
from rlhfdoctor.plugins.read import read_spec
from rlhfdoctor.plugins.spec import FrameworkSpec, Package
from rlhfdoctor.types import Value
from rlhfdoctor.vocabulary.names import Trait

if TYPE_CHECKING:
    from importlib.abc import Traversable

_SPEC, _SETTINGS = "framework.yaml", "settings.yaml"


def _root() -> Traversable:
    return resources.files("rlhfdoctor.frameworks")


@functools.cache
def load() -> tuple[FrameworkSpec, ...]:
    """All frameworks, in their order.

    Raises:
        PluginError: a folder is faulty, or two of them claim the same.
    """
    folders = [folder for folder in _root().iterdir() if (folder / _SPEC).is_file()]
    found = [
        read_spec((folder / _SPEC).read_text("utf-8"), f"frameworks/{folder.name}/{_SPEC}", folder.name)
        for folder in folders
    ]
    faults = _clashes(found)
    if faults:
        raise PluginError("\n".join(faults))
    return tuple(sorted(found, key=lambda spec: (spec.order, spec.framework)))


def _clashes(specs: list[FrameworkSpec]) -> list[str]:
    """What only one framework may claim, and two do; forks of what is not there."""
    names = {spec.framework for spec in specs}
    faults = [
        f"frameworks/{s.framework}: extends '{s.extends}', which is not there"
        for s in specs
        if s.extends and s.extends not in names
    ]
    claimed: dict[tuple[str, str], str] = {}
    for spec in specs:
        for what, words in (("package", [p.name for p in spec.packages]), ("Ray class", list(spec.actors))):
            for word in words:
                other = claimed.setdefault((what, word), spec.framework)
                if other != spec.framework:
                    faults.append(f"frameworks/{spec.framework}: the {what} {word} is {other}'s")
    return faults


def names() -> tuple[str, ...]:
    """The names of all frameworks, in their order."""
    return tuple(spec.framework for spec in load())


def get(name: str | None) -> FrameworkSpec | None:
    """A framework by its name, or None."""
    return next((spec for spec in load() if spec.framework == name), None)


def packages(name: str | None) -> tuple[Package, ...]:
    """The packages of a framework, the newest last; empty for an unknown name."""
    spec = get(name)
    return tuple(sorted(spec.packages, key=lambda package: package.epoch)) if spec is not None else ()


def has(name: str | None, trait: Trait, value: Callable[[str], Value] = lambda setting: None) -> bool:
    """Whether a framework has a trait.

    Args:
        value: the value in force of a setting, for traits that it has with certain settings.
    """
    spec = get(name)
    return spec is not None and any(
        rule.trait == trait and (not rule.setting or value(rule.setting) in rule.values) for rule in spec.traits
    )


def having(trait: Trait) -> tuple[str, ...]:
    """The frameworks that have a trait, regardless of their settings."""
    return tuple(s.framework for s in load() if any(r.trait == trait and not r.setting for r in s.traits))


def every(of: Callable[[FrameworkSpec], Iterable[str]]) -> tuple[str, ...]:
    """The words that any of the frameworks declares, each once."""
    return tuple(dict.fromkeys(word for spec in load() for word in of(spec)))


def words() -> tuple[str, ...]:
    """What names a framework in paths: its name, packages, repository and folders."""
    own = every(
        lambda spec: (spec.framework, spec.repository.rpartition("/")[2], *(p.name for p in spec.packages), *spec.paths)
    )
    return tuple(dict.fromkeys(word.strip("/") for word in own if word and "/" not in word.strip("/")))


def joined(common: str, more: Iterable[str | None]) -> str:
    """One expression of the common one and those of the frameworks."""
    return "|".join(part for part in (common, *more) if part)


def shown(name: str, release: str) -> str:
    """A release for people: without the epoch, and with the package if there are several.

    >>> shown("skyrl", "1!0.2.0"), shown("skyrl", "0.3.0"), shown("verl", "0.5.0")
    ('0.2.0', 'skyrl-train 0.3.0', '0.5.0')
    """
    epoch, _, version = release.rpartition("!")
    package = next((p.name for p in packages(name) if p.epoch == int(epoch or 0)), name)
    return f"{package} {version}" if version and package != name else version


def lineage(name: str | None) -> tuple[str, ...]:
    """A framework and what it is a fork of, itself first; nothing for an unknown name."""
    spec = get(name)
    return () if spec is None else (spec.framework, *lineage(spec.extends))


def settings_file(name: str) -> Traversable:
    """The settings table of a framework."""
    return _root() / name / _SETTINGS


def files(name: str) -> Iterator[tuple[str, Traversable]]:
    """Each framework that has a file of this name in its folder, in their order, and the file."""
    for framework in names():
        path = _root() / framework / name
        if path.is_file():
            yield framework, path
