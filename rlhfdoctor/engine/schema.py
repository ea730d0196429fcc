"""A rule, resolved: every event, field, fact, setting or framework that its file names is a declared one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rlhfdoctor.conditions.condition import Condition
from rlhfdoctor.types import Safety, Value
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import Axis


@dataclass(frozen=True, slots=True)
class WeightedCondition:
    """A condition that moves the confidence by its weight (log-odds)."""

    when: Condition
    weight: float
    says: str


@dataclass(frozen=True, slots=True)
class RuledOutBy:
    """A condition that excludes the cause."""

    when: Condition
    because: str


@dataclass(frozen=True, slots=True)
class DataRequest:
    """What to ask for unless it is known, and the command that shows it."""

    unless: Condition | None
    what: str
    how_to_check: str


@dataclass(frozen=True, slots=True)
class Target:
    """A value derived from the figures of a case; what is None or `_UNSET` is ignored."""

    fact: Fact | None = None
    """Holds the value itself."""
    sized_by: Fact | None = None
    """Holds the value where this case gave the figures for it; else `scale` or `otherwise`."""
    scale: float | None = None
    """Factor on the user's own value."""
    least: int | float | None = None
    """The result is never below."""
    otherwise: tuple[Value, ...] = ()
    """The plain value, if any, used without figures."""
    never_lowered: bool = False
    """Whether the user's own value is never lowered."""
    never_below: Fact | None = None
    """A fact that the value is never below."""


@dataclass(frozen=True, slots=True)
class Treatment:
    """A setting to change, and to what; or a measure that no setting makes."""

    setting: str
    """Canonical name of the setting, or the id of a measure."""
    to: Value | Target
    """The new value; None removes the setting."""
    safety: Safety
    effect: str
    cost: str = ""
    when: Condition | None = None
    framework: str = ""
    """The framework whose folder it is from; empty: any that has the setting."""
    versions: str = ""
    """Releases for which it works, as a specifier: '<0.5.4'."""
    side_effects: tuple[str, ...] = ()
    note: str = ""
    add: bool = False
    """Whether the setting may be added where the user's files lack it."""
    frees: tuple[Fact, float, float] | None = None
    """Fact in bytes, and the least and most shares of it that leave the host."""
    instead: str = ""
    """Spelled text to show where only an edit of code can do it."""
    is_measure: bool = False
    """Whether no setting makes it: `setting` is then an id of the rule's own."""
    published: bool = False
    """Whether it is an advice in circulation that does not hold here."""


@dataclass(frozen=True, slots=True)
class LookAlike:
    """What may be mistaken for a cause; one of `causes`, `other` and `note` is given."""

    causes: tuple[str, ...] = ()
    differs: str = ""
    """How these causes are distinguished from the rule's own."""
    other: str = ""
    """A look-alike that is no cause of the catalogue."""
    note: str = ""
    """One or more whole sentences."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause: how to detect it, what to say of it, how to treat it."""

    id: str
    kind: str
    axis: Axis
    title: str
    summary: str
    requires: Condition
    prior: float
    speaks_for: tuple[WeightedCondition, ...]
    speaks_against: tuple[WeightedCondition, ...]
    rules_out: tuple[RuledOutBy, ...]
    missing: tuple[DataRequest, ...]
    suppresses: tuple[str, ...]
    """Causes that are secondary failures if this one applies."""
    docs: Mapping[str, str]
    next_step: str
    """What to do now, where no setting cures it; else empty."""
    false_positives: tuple[LookAlike, ...]
    remediation: tuple[Treatment, ...]
    references: tuple[str, ...]
    path: Path
    is_draft: bool = False
    """Whether it still has sentences of the example that it began as: then it says nothing of any incident."""


def named_causes(rule: Rule) -> Iterator[tuple[str, str]]:
    """The keys under which a rule names other causes, and each cause."""
    yield from (("suppresses", cause) for cause in rule.suppresses)
    yield from (("false_positives", cause) for one in rule.false_positives for cause in one.causes)


DOC_HEADINGS = ("meaning", "impact", "check")
PLACE = re.compile(r"\{([a-z_]+\.[a-z_0-9]+)\}")
"""A fact in a sentence, shown by value and unit."""
