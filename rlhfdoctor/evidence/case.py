"""A case: everything that was read of one run, accessible by kind or by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from packaging.specifiers import SpecifierSet

from rlhfdoctor.evidence.index import Index
from rlhfdoctor.i18n.message import Message, template
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.force import in_force
from rlhfdoctor.settings.spell import parse_version
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.types import Event, Evidence, Framework, Setting, Value
from rlhfdoctor.vocabulary import FIELD, TRAIT
from rlhfdoctor.vocabulary.index import TRAITS
from rlhfdoctor.vocabulary.names import Fact, Field, Kind, Trait

_MODELS = folders.every(lambda spec: spec.models)


@dataclass(frozen=True, slots=True)
class Case:
    """The events in order of time, the settings, and what is known of framework and versions."""

    events: Sequence[Event]
    settings: Sequence[Setting] = ()
    framework: Framework | None = None
    versions: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Package -> (version, where it was read)."""
    traces: Sequence[Recorded] = ()
    """What recorders wrote, one a node."""
    line_counts: Mapping[str, int] = field(default_factory=dict)
    """File -> how many lines it has, read or not."""
    index: Index = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Sorts nothing yet."""
        object.__setattr__(self, "index", Index(self.events))

    def of(self, *kinds: Kind) -> list[Event]:
        """Events of these kinds, in order."""
        return self.index.of(kinds)

    def first(self, *kinds: Kind) -> Event | None:
        """The first event of these kinds, or None."""
        return self.index.first(kinds)

    def last(self, *kinds: Kind) -> Event | None:
        """The last event of these kinds, or None."""
        return self.index.last(kinds)

    def setting(self, name: str) -> Setting | None:
        """The setting in force under a canonical name: what the log of the run shows before what a file says."""
        return in_force(s for s in self.settings if s.name == name).get(name)

    def in_force(self, *, files_first: bool = False) -> dict[str, Setting]:
        """Every setting in force, by canonical name; `files_first` for a run that is planned."""
        return in_force(self.settings, files_first=files_first)

    def value(self, name: str) -> Value:
        """The value in force, or None."""
        setting = self.setting(name)
        return None if setting is None else setting.value

    def models(self) -> list[Setting]:
        """The settings that name a model by its path or public name."""
        return [
            s
            for s in self.settings
            if isinstance(s.value, str) and ("model" in s.name or s.name == "path" or s.name in _MODELS)
        ]

    def has(self, trait: Trait) -> bool:
        """Whether the framework has a trait; no for an unknown framework."""
        return self.framework is not None and folders.has(self.framework.name, trait, self.value)

    def traits(self) -> dict[Trait, bool]:
        """Every trait of the framework; of an unknown one only what the settings show."""
        if self.framework is not None:
            return {trait: self.has(trait) for trait in TRAITS.values()}
        return {TRAIT.trains_with_deepspeed: True} if any(s.framework == "deepspeed" for s in self.settings) else {}

    def stated(self, name: Fact) -> Evidence | None:
        """What the framework's own code settles of a fact in this release, or None."""
        spec = folders.get(self.framework.name) if self.framework is not None else None
        version = self.framework.version if self.framework is not None else None
        here = parse_version(version)
        for row in spec.facts if spec is not None else ():
            holds = row.or_unknown if here is None else here in SpecifierSet(row.versions, prereleases=True)
            if row.fact == name and holds and not (row.unless and self.first(row.unless)):
                return Evidence(name=name, value=row.value, says=template(row.says, version=version or ""))
        return None

    def around(self, event: Event, lines: int = 60) -> Iterator[Event]:
        """Events of the same file within this many lines before or after an event."""
        here = event.origin.line or 0
        return self.index.near(event.origin.file, here - lines, here + lines)

    def version(self, package: str) -> str | None:
        """The version of a package, or None."""
        if package in self.versions:
            return self.versions[package][0]
        if self.framework is not None and self.framework.name == package:
            return self.framework.version
        return None


def number(event: Event | None, name: Field) -> int | float | None:
    """A numeric field of an event, or None."""
    value = event.fields.get(name) if event is not None else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def whole(event: Event | None, name: Field) -> int | None:
    """A whole-number field of an event, or None."""
    value = number(event, name)
    return None if value is None else int(value)


def page_size(rows: Sequence[Event], killed: Event | None) -> int:
    """4 kB, unless the victim's total_vm in pages and in kB say otherwise (16 kB and 64 kB exist)."""
    if killed is not None:
        victim = next((r for r in rows if r.fields.get(FIELD.pid) == killed.fields.get(FIELD.pid)), None)
        pages, size = whole(victim, FIELD.total_vm_pages), whole(killed, FIELD.total_vm_bytes)
        if pages and size and size % pages == 0 and size // pages in (4096, 16384, 65536):
            return size // pages
    return 4096


def fact(name: Fact, value: Value | Message, says: Message, event: Event | None = None) -> Evidence:
    """An evidence that rests on an event (or on several; then on the decisive one)."""
    return Evidence(
        name=name, value=value, says=says, origin=event.origin if event else None, text=event.text if event else None
    )
