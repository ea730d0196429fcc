"""Three-valued matching: a missing input makes a condition unknown, not false."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlhfdoctor.conditions.condition import Condition
from rlhfdoctor.i18n.message import NOTHING, Message, say
from rlhfdoctor.types import Event, Evidence, Quote, Setting, Value
from rlhfdoctor.vocabulary.names import Fact, Kind, Trait


@dataclass(frozen=True, slots=True)
class Facts:
    """What the rules may query, of one host."""

    events: Mapping[Kind, Sequence[Event]]
    evidence: Mapping[Fact, Evidence]
    settings: Mapping[str, Setting]
    traits: Mapping[Trait, bool] = field(default_factory=dict)
    """Of the framework, as far as they are known."""


@dataclass(frozen=True, slots=True)
class Answer:
    """True, false or unknown (None), with the facts that it rests on."""

    value: bool | None
    quotes: tuple[Quote, ...] = ()


def ask(condition: Condition, facts: Facts, closed: bool = False) -> Answer:
    """Whether a condition holds. In a closed world, what is unknown does not hold."""
    if condition.op in _TESTS:
        answer = _TESTS[condition.op](condition, facts)
        return Answer(False) if closed and answer.value is None else answer
    answers = [ask(part, facts, closed) for part in condition.parts]
    quotes = tuple(q for a in answers if a.value for q in a.quotes)
    values = [a.value for a in answers]
    if condition.op == "any":
        return Answer(True if True in values else None if None in values else False, quotes)
    if condition.op == "all":
        return Answer(False if False in values else None if None in values else True, quotes)
    return Answer(False if True in values else None if None in values else True)


def _event(condition: Condition, facts: Facts) -> Answer:
    for event in facts.events.get(condition.kind, ()):
        checks = [compare(event.fields.get(name), tests) for name, tests in condition.fields]
        if all(checks):
            wanted = not any(op == "exists" and operand is False for op, operand in condition.compare)
            return Answer(wanted, (quote_event(event, NOTHING),) if wanted else ())
    return Answer(any(op == "exists" and operand is False for op, operand in condition.compare))


def _evidence(condition: Condition, facts: Facts) -> Answer:
    evidence = facts.evidence.get(condition.fact)
    exists = dict(condition.compare).get("exists")
    if exists is not None:
        return Answer((evidence is not None) == exists, () if evidence is None else (quote_evidence(evidence),))
    if evidence is None or evidence.value is None:
        return Answer(None)
    holds = compare(evidence.value, condition.compare)
    return Answer(holds, (quote_evidence(evidence),) if holds else ())


def _setting(condition: Condition, facts: Facts) -> Answer:
    setting = facts.settings.get(condition.name)
    exists = dict(condition.compare).get("exists")
    if exists is not None:
        return Answer((setting is not None) == exists, () if setting is None else (quote_setting(setting),))
    if setting is None:
        return Answer(None)
    holds = compare(setting.value, condition.compare)
    return Answer(holds, (quote_setting(setting),) if holds else ())


def _trait(condition: Condition, facts: Facts) -> Answer:
    has = facts.traits.get(condition.trait)
    return Answer(None if has is None else compare(has, condition.compare))


_TESTS: Mapping[str, Callable[[Condition, Facts], Answer]] = {
    "event": _event,
    "fact": _evidence,
    "setting": _setting,
    "trait": _trait,
}


def compare(value: Value | Message, tests: Sequence[tuple[str, Any]]) -> bool:
    """Whether a value passes all comparisons; without a comparison the value must be true.

    >>> compare(0.5, [("at_least", 0.4)]), compare("sigbus", [("in", ["sigbus"])]), compare(False, [])
    (True, True, False)
    """
    if not tests:
        return value is not None and value is not False
    value = str(value) if isinstance(value, Message) else value
    return all(_COMPARE[name](value, operand) for name, operand in tests)


def _at_least(value: Value, operand: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= operand


def _at_most(value: Value, operand: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value <= operand


_COMPARE: dict[str, Callable[[Value, Any], bool]] = {
    "is": lambda value, operand: value == operand and isinstance(value, bool) == isinstance(operand, bool),
    "is_not": lambda value, operand: value != operand,
    "in": lambda value, operand: value in operand,
    "matches": lambda value, operand: re.search(str(operand), str(value)) is not None,
    "at_least": _at_least,
    "at_most": _at_most,
    "exists": lambda value, operand: (value is not None) == operand,
}


def quote_event(event: Event, says: Message) -> Quote:
    """A log line as a report quotes it."""
    return Quote(kind="log", says=says, file=event.origin.file, line=event.origin.line, text=event.text)


def quote_evidence(evidence: Evidence) -> Quote:
    """A computed fact as a report quotes it."""
    origin = evidence.origin
    return Quote(
        kind="evidence",
        says=evidence.says,
        file=origin.file if origin else None,
        line=origin.line if origin else None,
        text=evidence.text,
    )


def quote_setting(setting: Setting) -> Quote:
    """A line of the user's configuration as a report quotes it."""
    return Quote(
        kind="setting",
        says=say("{spelled} is {value}", spelled=setting.spelled, value=setting.written),
        file=setting.origin.file,
        line=setting.origin.line,
    )
