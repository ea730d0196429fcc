"""Conditions of a file -> resolved ones: names are looked up in the vocabulary, thresholds get their units."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from msgspec import UNSET

from rlhfdoctor.conditions.condition import Comparison, Condition
from rlhfdoctor.conditions.files import Faults, Place, convert, read_yaml
from rlhfdoctor.conditions.form import COMPARATORS, When
from rlhfdoctor.conditions.quantity import EXAMPLES, read_quantity
from rlhfdoctor.settings.spell import known_names
from rlhfdoctor.vocabulary.index import FACTS, FIELDS, KINDS, TRAITS
from rlhfdoctor.vocabulary.names import Fact, Unit, did_you_mean

Conditions = Mapping[str, Condition]
"""Named conditions of conditions.yaml."""
_ONE_OF = ("all", "any", "none", "condition", "event", "evidence", "setting", "trait")
_NOTHING = Condition("all")


class Resolver:
    """Looks up what one file names; what is unknown is a fault at its line."""

    def __init__(self, faults: Faults, conditions: Conditions, more_settings: frozenset[str] = frozenset()) -> None:
        """`conditions` are those that a condition may name, `more_settings` settings beside those of the tables."""
        self.faults, self.conditions = faults, conditions
        self.settings = known_names() | more_settings

    def name(self, word: str, known: Collection[str], what: str, place: Place) -> bool:
        """Whether a name is declared; else a fault with the nearest declared one."""
        if word not in known:
            self.faults.add(place, f"unknown {what} '{word}'.{did_you_mean(word, known)}")
        return word in known

    def fact(self, word: Any, place: Place, unit: Unit | None = None) -> Fact | None:
        """The fact of a name, or None if unknown."""
        if not isinstance(word, str) or not self.name(word, FACTS, "fact", place):
            return None
        found = FACTS[word]
        if unit is not None and found.unit != unit:
            self.faults.add(place, f"{word} is in {found.unit}, not in {unit}")
        return found

    def condition(self, when: Any, place: Place) -> Condition:
        """A condition of the file with its names looked up."""
        if not isinstance(when, When):
            return _NOTHING
        given = [key for key in _ONE_OF if getattr(when, key) is not UNSET]
        if len(given) != 1:
            self.faults.add(
                place,
                f"a condition has exactly one of {', '.join(_ONE_OF)}; this one has {' and '.join(given) or 'none'}",
            )
            return _NOTHING
        op, value = given[0], getattr(when, given[0])
        if op in ("all", "any", "none"):
            if any(True for _ in _compared(when)):
                self.faults.add(place, f"'{op}' takes a list of conditions and no comparison")
            parts = tuple(self.condition(part, (*place, op, i)) for i, part in enumerate(value))
            return Condition(op, parts)  # type: ignore[arg-type]
        if op == "condition":
            return self.conditions[value] if self.name(value, self.conditions, "condition", place) else _NOTHING
        if op == "evidence":
            fact = self.fact(value, place)
            return (
                _NOTHING if fact is None else Condition("fact", name=fact, compare=self.compare(when, fact.unit, place))
            )
        if op == "setting":
            self.name(value, self.settings, "setting", place)
            return Condition("setting", name=value, compare=self.compare(when, None, place))
        return self._trait(when, value, place) if op == "trait" else self._event(when, value, place)

    def _trait(self, when: When, word: str, place: Place) -> Condition:
        if any(key != "is" or not isinstance(operand, bool) for key, operand in _compared(when)):
            self.faults.add(place, "'trait' is compared by 'is: true' or 'is: false' only")
        known = self.name(word, TRAITS, "trait", place)
        return Condition("trait", name=TRAITS[word], compare=self.compare(when, None, place)) if known else _NOTHING

    def _event(self, when: When, word: str, place: Place) -> Condition:
        if not self.name(word, KINDS, "event", place):
            return _NOTHING
        kind = KINDS[word]
        fields = []
        for key, wanted in (when.with_ or {}).items() if when.with_ is not UNSET else ():
            inside = (*place, "with", key)
            if self.name(key, kind.fields, f"field of {word}", inside):
                form = convert(wanted if isinstance(wanted, dict) else {"is": wanted}, When, inside, self.faults)
                compare = self.compare(form, FIELDS[key].unit, inside) if form is not None else ()
                fields.append((FIELDS[key], compare))
        return Condition("event", name=kind, compare=self.compare(when, None, place), fields=tuple(fields))

    def compare(self, when: When, unit: Unit | None, place: Place) -> Comparison:
        """The comparisons of a condition, their operands in plain numbers."""
        found = []
        for key, operand in _compared(when):
            if key in ("at_least", "at_most"):
                if not when.reason.strip():
                    self.faults.add((*place, key), f"'{key}' needs 'reason' beside it: why the threshold is there")
                operand = self.threshold(operand, unit, (*place, key))
            elif key == "matches":
                try:
                    re.compile(operand)
                except re.error as error:
                    self.faults.add((*place, key), f"bad regular expression '{operand}': {error}")
            found.append((key, operand))
        return tuple(found)

    def threshold(self, operand: float | str, unit: Unit | None, place: Place) -> float:
        """A threshold in the fact's unit, as a plain number."""
        value = read_quantity(operand, unit)
        if value is None:
            example = EXAMPLES.get(unit or "number", "16")
            self.faults.add(
                place, f"'{place[-1]}: {operand}' is no threshold in {unit or 'plain numbers'}; write it like {example}"
            )
            return 0.0
        return value


def _compared(when: When) -> list[tuple[str, Any]]:
    attributes = ((key, {"is": "is_", "in": "in_"}.get(key, key)) for key in COMPARATORS)
    return [(key, value) for key, name in attributes if (value := getattr(when, name)) is not UNSET]


def read_conditions(folder: Path) -> Conditions:
    """The named conditions of a catalogue: conditions.yaml next to its rules; empty without the file.

    Raises:
        RuleError: a fault, with file and line.
    """
    path = folder / "conditions.yaml"
    if not path.exists():
        return {}
    raw, faults = read_yaml(path)
    found: dict[str, Condition] = {}
    resolver = Resolver(faults, found)
    if raw is not None and not isinstance(raw, dict):
        faults.add((), "takes a mapping: the name of each condition, and the condition")
        faults.check()
    for name, value in (raw or {}).items():
        when = convert(value, When, (name,), faults)
        if isinstance(when, When) and not when.reason:
            faults.add(
                (name,), f"the condition '{name}' needs 'reason': what it means and why it holds in several rules"
            )
        found[name] = resolver.condition(when, (name,))
    faults.check()
    return found
