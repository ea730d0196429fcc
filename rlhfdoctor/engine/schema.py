"""Rules as data: the YAML of a rule folder -> a checked Rule, with every fault at its file and line.

id: shm-too-small
title: /dev/shm is too small
summary: one sentence, may name evidence as {shm.size_bytes}
detect:
  requires: {any: [{evidence: death.killer, is: sigbus}, {event: ray.shm_exceeded}]}
  prior: -1.5                 # log-odds of the cause before anything speaks for it
  for:     [{when: {event: torch.loader_shm}, weight: 3.0, says: why this speaks for it}]
  against: [{when: ..., weight: 1.0, says: ...}]
  rules_out: [{when: ..., because: ...}]
  missing: [{unless: {event: host.df}, what: the size of /dev/shm, settle: df -h /dev/shm}]
explains: [other-software-error]
docs: {meaning: ..., impact: ..., check: ..., look_alikes: ...}
treat: [{setting: container.shm_size, to: 16g, safety: safe, effect: ..., cost: ...}]
references: [...]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from rlhfdoctor.errors import RuleError

COMPARATORS = ("is", "in", "matches", "at_least", "at_most", "exists", "is_not")
_CONDITION_KEYS = {"event", "evidence", "setting", "with", *COMPARATORS}
_TOP_KEYS = {"id", "kind", "title", "summary", "detect", "explains", "goes_with", "docs", "treat", "references"}
_DETECT_KEYS = {"requires", "prior", "for", "against", "rules_out", "missing"}
_TREAT_KEYS = {
    "setting", "to", "when", "frameworks", "versions", "safety", "effect", "frees", "cost", "side_effects", "note", "add", "instead",
}  # fmt: skip
DOC_HEADINGS = ("meaning", "impact", "check", "look_alikes")


@dataclass(frozen=True, slots=True)
class Condition:
    """One comparison, or a combination of conditions."""

    op: Literal["all", "any", "none", "test"]
    parts: tuple[Condition, ...] = ()
    noun: str = ""
    """event, evidence or setting."""
    name: str = ""
    compare: tuple[tuple[str, Any], ...] = ()
    fields: tuple[tuple[str, tuple[tuple[str, Any], ...]], ...] = ()
    """Comparisons on fields of an event."""


@dataclass(frozen=True, slots=True)
class Weighed:
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
class Wanted:
    """What to ask for unless it is known."""

    unless: Condition | None
    what: str
    settle: str


@dataclass(frozen=True, slots=True)
class Treatment:
    """A setting to change, and to what."""

    setting: str
    to: Any
    """A value; {evidence: name}; {scale: f, from: evidence, least: n, else: v, raise: evidence}; or null to take the setting out.

    `from` names an evidence that holds the new value, where this case gave the figures for it; with `raise` a value is never
    lowered, neither below the user's own nor below what that evidence says (true: the user's own only).
    """
    safety: Literal["safe", "consent", "show"]
    effect: str
    cost: str = ""
    when: Condition | None = None
    frameworks: tuple[str, ...] = ()
    versions: str = ""
    """Releases for which it works, as a specifier: '<0.5.4'."""
    side_effects: tuple[str, ...] = ()
    note: str = ""
    add: bool = False
    """Whether the setting may be added where the user's files lack it."""
    frees: tuple[str, float, float] | None = None
    """Evidence in bytes, and the least and most shares of it that leave the host."""
    instead: str = ""
    """Spelled text to show where only an edit of code can do it."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One cause: how to detect it, what to say of it, how to treat it."""

    id: str
    kind: str
    title: str
    summary: str
    requires: Condition
    prior: float
    speaks_for: tuple[Weighed, ...]
    speaks_against: tuple[Weighed, ...]
    rules_out: tuple[RuledOutBy, ...]
    missing: tuple[Wanted, ...]
    explains: tuple[str, ...]
    goes_with: tuple[str, ...]
    docs: Mapping[str, str]
    treat: tuple[Treatment, ...]
    references: tuple[str, ...]
    path: Path


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Lines(_Loader):  # type: ignore[misc]
    """Mappings remember their line; a key given twice is an error."""


class _Map(dict[str, Any]):
    line = 0


def _construct(loader: yaml.SafeLoader, node: yaml.MappingNode) -> _Map:
    found = _Map()
    found.line = node.start_mark.line + 1
    for key_node, value_node in node.value:
        key = loader.construct_object(key_node, deep=True)
        key = {True: "on", False: "off"}.get(key, key) if isinstance(key, bool) else key
        if key in found:
            raise yaml.constructor.ConstructorError(None, None, f"key '{key}' stands twice", key_node.start_mark)
        found[key] = loader.construct_object(value_node, deep=True)
    return found


_Lines.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _construct)


class _Checker:
    """Collects all faults of one rule file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.faults: list[str] = []

    def fault(self, line: int, what: str) -> None:
        self.faults.append(f"{self.path}:{line}: {what}")

    def known_keys(self, value: _Map, keys: set[str], where: str) -> None:
        for key in value:
            if key not in keys:
                self.fault(value.line, f"unknown key '{key}' in {where}; known: {', '.join(sorted(keys))}")

    def text(self, value: _Map, key: str, where: str) -> str:
        found = value.get(key)
        if not isinstance(found, str) or not found.strip():
            self.fault(value.line, f"{where} needs '{key}' (text)")
            return ""
        return " ".join(found.split())

    def condition(self, value: Any, line: int) -> Condition:
        if not isinstance(value, _Map):
            self.fault(line, "a condition is a mapping such as {evidence: death.killer, is: sigbus}")
            return Condition("all")
        groups = [key for key in ("all", "any", "none") if key in value]
        if groups:
            if len(value) != 1 or not isinstance(value[groups[0]], list):
                self.fault(value.line, "all, any and none stand alone and take a list")
                return Condition("all")
            return Condition(groups[0], tuple(self.condition(part, value.line) for part in value[groups[0]]))  # type: ignore[arg-type]
        self.known_keys(value, _CONDITION_KEYS, "a condition")
        nouns = [key for key in ("event", "evidence", "setting") if key in value]
        if len(nouns) != 1 or not isinstance(value[nouns[0]], str):
            self.fault(value.line, "a condition names exactly one of event, evidence, setting")
            return Condition("all")
        fields = value.get("with", {})
        checked = (
            tuple((name, self.compare(part, value.line)) for name, part in fields.items())
            if isinstance(fields, dict)
            else ()
        )
        return Condition("test", (), nouns[0], value[nouns[0]], self.compare(value, value.line), checked)

    def compare(self, value: Any, line: int) -> tuple[tuple[str, Any], ...]:
        if not isinstance(value, dict):
            return (("is", value),)
        found = tuple((key, value[key]) for key in COMPARATORS if key in value)
        for key, operand in found:
            if key == "matches":
                try:
                    re.compile(str(operand))
                except re.error as error:
                    self.fault(line, f"bad regular expression '{operand}': {error}")
            if key in ("at_least", "at_most") and not isinstance(operand, int | float):
                self.fault(line, f"'{key}' takes a number, not '{operand}'")
            if key == "in" and not isinstance(operand, list):
                self.fault(line, "'in' takes a list")
        return found

    def items(self, value: _Map, key: str) -> list[_Map]:
        found = value.get(key, [])
        if not isinstance(found, list) or not all(isinstance(item, _Map) for item in found):
            self.fault(value.line, f"'{key}' is a list of mappings")
            return []
        return found


def read_rule(folder: Path) -> Rule:
    """The rule of a folder.

    Raises:
        RuleError: all faults of the rule, one per line, each with file and line.
    """
    path = folder / "rule.yaml"
    check = _Checker(path)
    try:
        raw = yaml.load(path.read_text(encoding="utf-8"), Loader=_Lines)
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RuleError(f"{path}:1: is not UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise RuleError(f"{path}:{mark.line + 1 if mark else 1}: {getattr(error, 'problem', error)}") from None
    if not isinstance(raw, _Map):
        raise RuleError(f"{path}:1: a rule is a mapping")
    check.known_keys(raw, _TOP_KEYS, "a rule")
    identity = check.text(raw, "id", "a rule")
    if identity and identity != folder.name:
        check.fault(raw.line, f"id '{identity}' differs from the folder's name '{folder.name}'")
    detect = raw.get("detect")
    if not isinstance(detect, _Map):
        check.fault(raw.line, "a rule needs 'detect'")
        detect = _Map()
    check.known_keys(detect, _DETECT_KEYS, "detect")
    docs = raw.get("docs")
    docs = docs if isinstance(docs, _Map) else _Map()
    for heading in DOC_HEADINGS:
        check.text(docs, heading, "docs")
    for kind in ("fires", "silent"):
        if not any((folder / kind).glob("*/*")):
            check.fault(1, f"the rule has no sample under {kind}/; it needs at least one")
    rule = Rule(
        id=folder.name,
        kind=check.text(raw, "kind", "a rule"),
        title=check.text(raw, "title", "a rule"),
        summary=check.text(raw, "summary", "a rule"),
        requires=check.condition(detect.get("requires"), detect.line),
        prior=_number(check, detect, "prior"),
        speaks_for=_weighed(check, detect, "for"),
        speaks_against=_weighed(check, detect, "against"),
        rules_out=tuple(
            RuledOutBy(check.condition(i.get("when"), i.line), check.text(i, "because", "rules_out"))
            for i in check.items(detect, "rules_out")
        ),
        missing=tuple(
            Wanted(
                check.condition(i["unless"], i.line) if "unless" in i else None,
                check.text(i, "what", "missing"),
                check.text(i, "settle", "missing"),
            )
            for i in check.items(detect, "missing")
        ),
        explains=tuple(str(name) for name in raw.get("explains", [])),
        goes_with=tuple(str(name) for name in raw.get("goes_with", [])),
        docs={heading: " ".join(str(docs.get(heading, "")).split()) for heading in DOC_HEADINGS},
        treat=tuple(_treatment(check, i) for i in check.items(raw, "treat")),
        references=tuple(str(link) for link in raw.get("references", [])),
        path=path,
    )
    if check.faults:
        raise RuleError("\n".join(check.faults))
    return rule


def _number(check: _Checker, value: _Map, key: str) -> float:
    found = value.get(key)
    if not isinstance(found, int | float) or isinstance(found, bool):
        check.fault(value.line, f"'{key}' takes a number")
        return 0.0
    return float(found)


def _weighed(check: _Checker, detect: _Map, key: str) -> tuple[Weighed, ...]:
    return tuple(
        Weighed(check.condition(i.get("when"), i.line), _number(check, i, "weight"), check.text(i, "says", key))
        for i in check.items(detect, key)
    )


def _frees(check: _Checker, item: _Map) -> tuple[str, float, float] | None:
    raw = item.get("frees")
    if raw is None:
        return None
    if not isinstance(raw, dict) or set(raw) != {"evidence", "least", "most"}:
        check.fault(item.line, "frees is {evidence: name, least: share, most: share}")
        return None
    return str(raw["evidence"]), float(raw["least"]), float(raw["most"])


def _treatment(check: _Checker, item: _Map) -> Treatment:
    check.known_keys(item, _TREAT_KEYS, "treat")
    safety = item.get("safety")
    if safety not in ("safe", "consent", "show"):
        check.fault(item.line, "safety is one of safe, consent, show")
        safety = "show"
    allowed = cast(Literal["safe", "consent", "show"], safety)
    return Treatment(
        setting=check.text(item, "setting", "treat"),
        to=item.get("to"),
        safety=allowed,
        effect=check.text(item, "effect", "treat"),
        cost=str(item.get("cost", "")),
        when=check.condition(item["when"], item.line) if "when" in item else None,
        frameworks=tuple(item.get("frameworks", ())),
        versions=str(item.get("versions", "")),
        side_effects=tuple(item.get("side_effects", ())),
        note=str(item.get("note", "")),
        add=bool(item.get("add", False)),
        frees=_frees(check, item),
        instead=str(item.get("instead", "")),
    )
