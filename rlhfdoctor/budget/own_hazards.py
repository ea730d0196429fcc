"""Traps that a framework's folder declares: conditions over its settings, traits, releases."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec import Struct
from packaging.specifiers import SpecifierSet

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.types import Hazard
from rlhfdoctor.conditions.condition import Condition
from rlhfdoctor.conditions.files import Faults, Place, convert, read_yaml
from rlhfdoctor.conditions.form import When
from rlhfdoctor.conditions.match import Facts, ask
from rlhfdoctor.conditions.resolve import Resolver
from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.message import template
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.spell import is_specifier, parse_version
from rlhfdoctor.types import Origin, Setting
from rlhfdoctor.vocabulary.index import TRAITS
from rlhfdoctor.vocabulary.run import Phase
from rlhfdoctor.vocabulary.settings import SPELLED

if TYPE_CHECKING:
    from importlib.abc import Traversable

FILE = "hazards.yaml"
"""In the framework's folder, if it has any."""


class HazardForm(Struct, forbid_unknown_fields=True):
    """A trap: settings that are known to end in a failure, however much memory there is."""

    phase: Phase
    cause: str
    """The rule that explains the failure."""
    when: When
    says: str
    versions: str = ""
    """Releases of the framework, or of another package: `vllm <0.20.1`; an unknown release matches none."""


class HazardsForm(Struct, forbid_unknown_fields=True):
    """The traps of a framework's folder."""

    hazards: list[HazardForm]


@dataclass(frozen=True, slots=True)
class OwnHazard:
    """A trap of a framework's folder."""

    framework: str
    hazard: Hazard
    when: Condition
    versions: str
    faults: Faults
    """Takes what is found later, when the rules are known."""
    place: Place


@functools.cache
def load_hazards() -> tuple[OwnHazard, ...]:
    """The traps of all folders.

    Raises:
        RuleError: the faults of all files, each with file and line.
    """
    found: list[OwnHazard] = []
    faults: list[str] = []
    for framework, path in folders.files(FILE):
        try:
            found += read_hazards(path, framework)
        except RuleError as error:
            faults.append(str(error))
    if faults:
        raise RuleError("\n".join(faults))
    return tuple(found)


def read_hazards(path: Traversable, framework: str) -> Iterator[OwnHazard]:
    """The traps of one file.

    Raises:
        RuleError: all of its faults, each with file and line.
    """
    raw, faults = read_yaml(path)
    form = convert(raw, HazardsForm, (), faults)
    faults.check()
    look = Resolver(faults, {}, SPELLED)
    for index, row in enumerate(form.hazards):
        place: Place = ("hazards", index)
        when = look.condition(row.when, (*place, "when"))
        for op in _ops(when) & {"event", "fact"}:
            faults.add((*place, "when"), f"a trap is known before the run: 'when' takes settings and traits, no {op}")
        if row.versions and not is_specifier(row.versions):
            faults.add((*place, "versions"), f"'{row.versions}' is no specifier; write it like 'vllm <0.20.1'")
        hazard = Hazard(phase=row.phase, cause=row.cause, says=template(row.says))
        yield OwnHazard(framework, hazard, when, row.versions, faults, place)
    faults.check()


def find_own_hazards(inputs: Inputs) -> Iterator[Hazard]:
    """The declared traps of the run's framework that its settings walk into."""
    for own in load_hazards():
        if inputs.framework is not None and own.framework == inputs.framework.name and _at_release(own, inputs):
            facts = Facts(
                events={},
                evidence={},
                settings={**_defaults(own.when, inputs), **inputs.settings},
                traits={trait: inputs.has(trait) for trait in TRAITS.values()},
            )
            if ask(own.when, facts, closed=True).value:
                yield own.hazard


def _at_release(own: OwnHazard, inputs: Inputs) -> bool:
    package, _, specifier = own.versions.partition(" ")
    here = parse_version(inputs.version(package) if specifier else inputs.release)
    return not own.versions or (here is not None and here in SpecifierSet(specifier or package, prereleases=True))


def _defaults(when: Condition, inputs: Inputs) -> dict[str, Setting]:
    """The settings that a condition asks for, with the release's default."""
    found: dict[str, Setting] = {}
    for part in when.parts:
        found |= _defaults(part, inputs)
    if when.op == "setting" and when.name not in inputs.settings:
        value = inputs.value(when.name)
        if value is not None:
            found[when.name] = Setting(
                name=when.name,
                spelled=when.name,
                value=value,
                framework="",
                origin=Origin(file="(default)"),
                form="flag",
            )
    return found


def _ops(when: Condition) -> set[str]:
    return {when.op}.union(*(_ops(part) for part in when.parts))
