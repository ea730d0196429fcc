"""What a framework declares in its `framework.yaml`, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rlhfdoctor.types import Value
from rlhfdoctor.vocabulary.names import Fact, Kind, Trait
from rlhfdoctor.vocabulary.run import Phase, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """A package that a framework is installed as."""

    name: str
    """As pip lists it, in lower case with `-`."""
    epoch: int = 0
    """Epoch of PEP 440, for a second package that restarts its release numbers: newer than all of the first."""

    def release(self, version: str) -> str:
        """A version of this package as the settings table writes it: with the epoch, if there is one.

        >>> Package(name="skyrl", epoch=1).release("0.3.0"), Package(name="trl").release("0.3.0")
        ('1!0.3.0', '0.3.0')
        """
        return f"{self.epoch}!{version}" if self.epoch and "!" not in version else version


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPattern:
    """A line of its logs that becomes an event; its groups are the event's fields (`logs/pattern.py`)."""

    event: Kind
    regex: str
    """Without look-around and back-references."""
    sample: str
    """A line as the framework writes it."""
    follow: int = 0
    """How many of the following lines belong to it."""
    when: str = ""
    """Releases or circumstances in which it is written so."""
    source: str = ""
    """Where the framework's own code writes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraitRule:
    """A trait that it has, or has with certain settings."""

    trait: Trait
    setting: str = ""
    """Canonical name; empty: it always has it."""
    values: tuple[Value, ...] = ()
    """Values of the setting with which it has the trait; None: the setting is not set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedFact:
    """A fact that the framework's own code determines, regardless of the run."""

    fact: Fact
    value: Value
    says: str
    """May name the release as `{version}`."""
    versions: str = ""
    """Specifier of the releases for which it holds; empty: all."""
    or_unknown: bool = False
    """Whether it is taken to hold for a run of unknown release."""
    unless: Kind | None = None
    """An event that shows that this run differs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkSpec:
    """A framework as its folder declares it."""

    framework: str
    """Its name, the folder's."""
    title: str
    repository: str = ""
    order: int = 90
    """Who comes first where nothing else decides, in tables and in draws."""
    extends: str | None = None
    """The framework that it is a fork of; signs of that one count for the fork, too."""
    packages: tuple[Package, ...] = ()
    commands: tuple[str, ...] = ()
    """Expressions for command lines and modules that only it has."""
    paths: tuple[str, ...] = ()
    """Parts of a source file's path."""
    actors: Mapping[str, Role | None] = field(default_factory=dict)
    """Its Ray classes and tasks, and the role of each if implied by the name."""
    roles: Mapping[Role, str] = field(default_factory=dict)
    """Role -> expression for names of processes, Ray classes and tasks, in addition to the common ones."""
    functions: Mapping[Phase, str] = field(default_factory=dict)
    """Phase -> expression for names of functions and tasks."""
    marks: Mapping[Kind, str] = field(default_factory=dict)
    """Event of a phase -> expression for words in a log line that show it; for groups there is `logs`."""
    logs: tuple[LogPattern, ...] = ()
    reward_code: tuple[str, ...] = ()
    """Parts of a source file's path that are reward code."""
    traits: tuple[TraitRule, ...] = ()
    facts: tuple[StatedFact, ...] = ()
    models: tuple[str, ...] = ()
    """Settings that name the actor's model."""
    nodes: tuple[str, ...] = ()
    """Settings that say over how many nodes the actor is spread."""
    overrides_without_dot: tuple[str, ...] = ()
    """Words of Hydra overrides that have no dot, and so look like variables of the shell."""
