"""The form of a rule's file: typed sections, converted by msgspec, described to editors by a JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec
from msgspec import UNSET, Struct, UnsetType

from rlhfdoctor.conditions.files import Place
from rlhfdoctor.conditions.form import Scalar, When
from rlhfdoctor.types import Safety
from rlhfdoctor.vocabulary.run import Axis

Kind: TypeAlias = Literal["host", "gpu", "shm", "comm", "other"]
"""What gave out; a rule's id begins with it."""
KINDS: tuple[str, ...] = get_args(Kind)


class Weight(Struct, forbid_unknown_fields=True):
    """A condition that changes the score by a number of log-odds."""

    when: When
    weight: float
    says: str


class Exclusion(Struct, forbid_unknown_fields=True):
    """A condition that excludes the cause."""

    when: When
    because: str


class Request(Struct, forbid_unknown_fields=True):
    """What to ask for unless it is known, and the command that shows it."""

    what: str
    how_to_check: str
    unless: When | UnsetType = UNSET


class Detect(Struct, forbid_unknown_fields=True, rename={"for_": "for"}):
    """When the cause applies, how likely it is, and the evidence for and against it."""

    requires: When
    prior: float
    for_: list[Weight] = []
    against: list[Weight] = []
    rules_out: list[Exclusion] = []
    missing: list[Request] = []


class LookAlikeForm(Struct, forbid_unknown_fields=True):
    """What may be mistaken for the cause: other causes and how they differ, something else, or a free note."""

    causes: list[str] = []
    differs: str = ""
    other: str = ""
    note: str = ""


class Docs(Struct, forbid_unknown_fields=True):
    """The page of the cause."""

    meaning: str
    impact: str
    check: str
    false_positives: list[LookAlikeForm]
    next_step: str = ""
    """What to do now, where no setting cures it; the last line of the report."""


class TargetForm(Struct, forbid_unknown_fields=True, rename={"from_": "from", "else_": "else", "raise_": "raise"}):
    """A value that this case's figures give."""

    evidence: str | UnsetType = UNSET
    from_: str | UnsetType = UNSET
    scale: float | UnsetType = UNSET
    least: int | float | UnsetType = UNSET
    else_: Scalar | UnsetType = UNSET
    raise_: str | bool | UnsetType = UNSET


class Frees(Struct, forbid_unknown_fields=True):
    """Evidence in bytes, and the least and most shares of it that leave the host."""

    evidence: str
    least: float
    most: float


class Remedy(Struct, forbid_unknown_fields=True):
    """A setting to change, or a measure that no setting makes, with its price."""

    to: Any
    safety: Safety
    effect: str
    setting: str | UnsetType = UNSET
    measure: str | UnsetType = UNSET
    published: bool = False
    """An advice that is in circulation and does not hold here; never shown where the version is only assumed."""
    cost: str = ""
    when: When | UnsetType = UNSET
    versions: str = ""
    side_effects: list[str] = []
    note: str = ""
    add: bool = False
    frees: Frees | UnsetType = UNSET
    instead: str = ""


class OwnRemedy(Remedy, forbid_unknown_fields=True, kw_only=True):
    """A remedy that holds for one framework only, in the framework's folder."""

    rules: list[str]
    """The rules that it is a treatment of."""
    before: str = ""
    """The rule's own setting or measure that it comes before; else it is before its own setting's, or last."""


class OwnRemedies(Struct, forbid_unknown_fields=True):
    """The treatments of a framework's folder: for those rules, and for runs of this framework only."""

    treatments: list[OwnRemedy]


class RuleForm(Struct, forbid_unknown_fields=True):
    """One cause: how to detect it, what to say of it, what to change."""

    id: str
    kind: Kind
    title: str
    summary: str
    detect: Detect
    docs: Docs
    axis: Axis = "consumer"
    """What of an incident the cause says; causes of one kind compete within their axis only."""
    suppresses: list[str] = []
    remediation: list[Remedy] = []
    references: list[str] = []


def json_schema(form: type[Struct] = RuleForm) -> dict[str, Any]:
    """The JSON Schema of rule.yaml, or of another form, for editors."""
    return msgspec.json.schema(form)


def texts(rule: RuleForm) -> Iterator[tuple[Place, str]]:
    """The sentences of a rule that may hold places such as {host.limit_bytes}."""
    yield ("summary",), rule.summary
    parts: Sequence[tuple[str, Sequence[Weight]]] = (("for", rule.detect.for_), ("against", rule.detect.against))
    for key, weights in parts:
        yield from ((("detect", key, index, "says"), one.says) for index, one in enumerate(weights))
    yield from (
        (("detect", "rules_out", index, "because"), one.because) for index, one in enumerate(rule.detect.rules_out)
    )
    yield from texts_of(rule.remediation, "remediation")


def texts_of(remedies: Sequence[Remedy], key: str) -> Iterator[tuple[Place, str]]:
    """The same of a list of remedies under a key."""
    for index, remedy in enumerate(remedies):
        yield from (((key, index, part), getattr(remedy, part)) for part in ("effect", "instead", "cost", "note"))
