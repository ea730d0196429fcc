"""Treatments that hold for one framework only, from its folder, joined to the rules that they are of."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rlhfdoctor.conditions.files import Faults, Place, convert, read_yaml
from rlhfdoctor.conditions.resolve import Conditions
from rlhfdoctor.engine.bundled import bundled_conditions
from rlhfdoctor.engine.resolve import RuleResolver
from rlhfdoctor.engine.rulefile import OwnRemedies, texts_of
from rlhfdoctor.engine.schema import Rule, Treatment
from rlhfdoctor.errors import RuleError
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary.names import did_you_mean

if TYPE_CHECKING:
    from importlib.abc import Traversable

FILE = "treatments.yaml"
"""In the framework's folder, if it has any."""


@dataclass(frozen=True, slots=True)
class OwnTreatment:
    """A treatment of a framework's folder, and where it belongs."""

    treatment: Treatment
    rules: tuple[str, ...]
    before: str
    faults: Faults
    """Takes what is found later, when the rules are known."""
    place: Place


@functools.cache
def load_treatments() -> tuple[OwnTreatment, ...]:
    """The treatments of all folders, in the order of the frameworks and of their files.

    Raises:
        RuleError: the faults of all files, each with file and line.
    """
    conditions = bundled_conditions()
    found: list[OwnTreatment] = []
    faults: list[str] = []
    for framework, path in folders.files(FILE):
        try:
            found += read_treatments(path, framework, conditions)
        except RuleError as error:
            faults.append(str(error))
    if faults:
        raise RuleError("\n".join(faults))
    return tuple(found)


def read_treatments(path: Traversable, framework: str, conditions: Conditions) -> Iterator[OwnTreatment]:
    """The treatments of one file.

    Raises:
        RuleError: all of its faults, each with file and line.
    """
    raw, faults = read_yaml(path)
    form = convert(raw, OwnRemedies, (), faults)
    faults.check()
    look = RuleResolver(faults, conditions)
    look.places(texts_of(form.treatments, "treatments"))
    for index, remedy in enumerate(form.treatments):
        place: Place = ("treatments", index)
        treatment = look.treatment(remedy, place, framework)
        yield OwnTreatment(treatment, tuple(remedy.rules), remedy.before, faults, place)
    faults.check()


def join(rule: Rule) -> Rule:
    """The rule with the treatments that frameworks have of their own for it.

    Each comes before the rule's own treatment that it names, else before that of the same setting, since the first that
    applies is taken; else it comes last.
    """
    joined = list(rule.remediation)
    for own in load_treatments():
        if rule.id in own.rules:
            anchor = own.before or own.treatment.setting
            at = next((i for i, t in enumerate(joined) if not t.framework and t.setting == anchor), len(joined))
            joined.insert(at, own.treatment)
    return replace(rule, remediation=tuple(joined))


def check_treatments(rules: Mapping[str, Rule], known: Collection[str]) -> list[str]:
    """Faults of what folders say of rules: ids that no rule has, and places before what the rule does not have.

    Args:
        known: all ids, also of rules that are not loaded.
    """
    found: list[str] = []
    for own in load_treatments():
        faults = own.faults.none_yet()
        for index, name in enumerate(own.rules):
            if name not in known:
                faults.add((*own.place, "rules", index), f"unknown rule '{name}'.{did_you_mean(name, known)}")
            elif own.before and name in rules:
                there = [t.setting for t in rules[name].remediation if not t.framework]
                if own.before not in there:
                    what = f"{name} has no treatment '{own.before}' of its own.{did_you_mean(own.before, there)}"
                    faults.add((*own.place, "before"), what)
        found += faults.found
    return found
