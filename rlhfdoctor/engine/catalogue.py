"""The rules of a folder, cached once loaded; a rule folder is added or removed without touching code."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlhfdoctor.budget.own_hazards import load_hazards
from rlhfdoctor.conditions.files import Place, read_yaml
from rlhfdoctor.conditions.resolve import Conditions, read_conditions
from rlhfdoctor.engine.bundled import bundled_conditions
from rlhfdoctor.engine.resolve import read_rule
from rlhfdoctor.engine.schema import Rule, named_causes
from rlhfdoctor.engine.treatments import check_treatments, join
from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.places import bundled_folder, rules_folder, rules_in
from rlhfdoctor.vocabulary.names import did_you_mean


def load_conditions(folder: Path) -> Conditions:
    """The named conditions that the rules of a folder may use: the bundled ones, and the folder's own.

    Raises:
        RuleError: a fault in one of the files.
    """
    own = {} if folder.resolve() == bundled_folder().resolve() else read_conditions(folder)
    return {**bundled_conditions(), **own}


@functools.cache
def load_rules(folder: Path | None = None) -> tuple[Rule, ...]:
    """All rules of a folder, by name.

    Raises:
        RuleError: the faults of all rules.
    """
    where = folder or rules_folder()
    if not where.is_dir():
        raise RuleError(
            say("{folder}: no folder of rules. Set RLHFDOCTOR_RULES or install rlhfdoctor again.", folder=str(where))
        )
    rules = _read(where)
    _check(rules)
    return tuple(rules)


def load_catalogue(*added: Path) -> tuple[Rule, ...]:
    """The rules in use, and those of further folders, which are read anew each time.

    What a further rule calls safe takes consent: it is not tested here.

    Args:
        added: catalogues, or folders of one rule each.

    Raises:
        RuleError: the faults of all rules, each with file and line; an id that two rules have.
    """
    rules = list(load_rules())
    if not added:
        return tuple(rules)
    faults: list[str] = []
    for folder in added:
        try:
            rules += map(_with_consent, _read(folder))
        except RuleError as error:
            faults.append(str(error))
    first: dict[str, Rule] = {}
    for rule in rules:
        known = first.setdefault(rule.id, rule)
        if known is not rule:
            _, found = read_yaml(rule.path)
            found.add(("id",), f"'{rule.id}' is the id of {known.path} already; give it, and its folder, another one")
            faults += found.found
    if faults:
        raise RuleError("\n".join(faults))
    _check(rules)
    return tuple(rules)


def _with_consent(rule: Rule) -> Rule:
    treatments = (replace(t, safety="consent") if t.safety == "safe" else t for t in rule.remediation)
    return replace(rule, remediation=tuple(treatments))


def _read(folder: Path) -> list[Rule]:
    """The rules of a folder, each by itself.

    Raises:
        RuleError: there is none; the faults of all.
    """
    rules, faults = [], []
    found = rules_in(folder)
    if not found:
        raise RuleError(say("{folder}: holds no rule (a folder with rule.yaml)", folder=str(folder)))
    conditions = load_conditions(found[0].parent)
    for path in found:
        try:
            rules.append(join(read_rule(path, conditions)))
        except RuleError as error:
            faults.append(str(error))
    if faults:
        raise RuleError("\n".join(faults))
    return rules


def _check(rules: Iterable[Rule]) -> None:
    """Whether rules and frameworks name causes that there are.

    Raises:
        RuleError: they do not.
    """
    by_id = {rule.id: rule for rule in rules}
    known = _ids(by_id)
    faults = [*check_causes(by_id), *check_treatments(by_id, known), *_unknown_causes(known)]
    if faults:
        raise RuleError("\n".join(faults))


def load_rule(folder: Path) -> Rule:
    """The rule of one folder, with the conditions next to it and the frameworks' own treatments.

    Raises:
        RuleError: a fault in one of the files.
    """
    return join(read_rule(folder, load_conditions(folder.parent)))


def _ids(rules: Iterable[str]) -> set[str]:
    """These rules and the bundled ones."""
    return {*rules, *(path.parent.name for path in bundled_folder().glob("*/rule.yaml"))}


def check_causes(rules: Mapping[str, Rule]) -> list[str]:
    """Faults of what rules say of causes: ids that neither these rules nor the bundled ones have."""
    found = []
    known = _ids(rules)
    for rule in rules.values():
        unknown = [(key, cause) for key, cause in named_causes(rule) if cause not in known]
        if unknown:
            raw, faults = read_yaml(rule.path)
            for key, cause in unknown:
                where = next((place for place in faults.lines if key in place and _at(raw, place) == cause), ())
                faults.add(where, f"unknown cause '{cause}' in {key}.{did_you_mean(cause, known)}")
            found += faults.found
    return found


def _unknown_causes(known: Collection[str]) -> list[str]:
    """Faults of the traps that folders declare: causes that no rule explains."""
    found = []
    for own in load_hazards():
        if own.hazard.cause not in known:
            faults = own.faults.none_yet()
            what = f"unknown cause '{own.hazard.cause}'.{did_you_mean(own.hazard.cause, known)}"
            faults.add((*own.place, "cause"), what)
            found += faults.found
    return found


def _at(raw: Any, place: Place) -> Any:
    for key in place:
        raw = raw[key]
    return raw
