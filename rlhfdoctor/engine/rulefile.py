"""The form of a rule's file: typed sections that msgspec converts and describes as a JSON Schema for editors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

import msgspec
import yaml
from msgspec import UNSET, Struct, UnsetType

from rlhfdoctor.errors import RuleError
from rlhfdoctor.types import Safety
from rlhfdoctor.vocabulary.names import did_you_mean

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the top of the file to a value."""
Scalar: TypeAlias = str | int | float | bool | None
COMPARATORS = ("is", "in", "matches", "at_least", "at_most", "exists", "is_not")


class When(Struct, forbid_unknown_fields=True, rename={"is_": "is", "in_": "in", "with_": "with"}):
    """A condition: one comparison, a named condition of conditions.yaml, or a combination.

    A threshold of bytes, shares, factors or seconds has its unit: 16 GiB, 35 %, 2 x, 10 min. Every threshold has a reason.
    """

    all: list[When] | UnsetType = UNSET
    any: list[When] | UnsetType = UNSET
    none: list[When] | UnsetType = UNSET
    condition: str | UnsetType = UNSET
    event: str | UnsetType = UNSET
    evidence: str | UnsetType = UNSET
    setting: str | UnsetType = UNSET
    with_: dict[str, Any] | UnsetType = UNSET
    is_: Scalar | UnsetType = UNSET
    in_: list[Scalar] | UnsetType = UNSET
    matches: str | UnsetType = UNSET
    at_least: float | str | UnsetType = UNSET
    at_most: float | str | UnsetType = UNSET
    exists: bool | UnsetType = UNSET
    is_not: Scalar | UnsetType = UNSET
    reason: str = ""
    """Why the threshold is where it is, or why a named condition is one; required for both."""


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
    """An advice that is in circulation and does not hold here; never shown on a guess of the version."""
    cost: str = ""
    when: When | UnsetType = UNSET
    frameworks: list[str] = []
    versions: str = ""
    side_effects: list[str] = []
    note: str = ""
    add: bool = False
    frees: Frees | UnsetType = UNSET
    instead: str = ""


class RuleForm(Struct, forbid_unknown_fields=True):
    """One cause: how to detect it, what to say of it, what to change."""

    id: str
    kind: Literal["host", "gpu", "shm", "comm", "other"]
    title: str
    summary: str
    detect: Detect
    docs: Docs
    suppresses: list[str] = []
    compatible_with: list[str] = []
    remediation: list[Remedy] = []
    references: list[str] = []


def json_schema() -> dict[str, Any]:
    """The JSON Schema of rule.yaml, for editors."""
    return msgspec.json.schema(RuleForm)


class Faults:
    """The faults of one file, each at its line."""

    def __init__(self, path: Path, lines: Mapping[Place, int]) -> None:
        """`lines` holds the line of every value of the file."""
        self.path, self.lines = path, lines
        self.found: list[str] = []

    def add(self, place: Place, what: str) -> None:
        """Notes a fault at the line of a value, or of the nearest one around it."""
        while place and place not in self.lines:
            place = place[:-1]
        self.found.append(f"{self.path}:{self.lines.get(place, 1)}: {what}")

    def check(self) -> None:
        """Raises what was found.

        Raises:
            RuleError: all faults, one a line.
        """
        if self.found:
            raise RuleError("\n".join(self.found))


_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read_yaml(path: Path) -> tuple[Any, Faults]:
    """The plain values of a file, and where each of them is.

    Raises:
        RuleError: the file is unreadable, or no YAML.
    """
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        node = loader.get_single_node()
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RuleError(f"{path}:1: is not UTF-8") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise RuleError(f"{path}:{mark.line + 1 if mark else 1}: {getattr(error, 'problem', error)}") from None
    lines: dict[Place, int] = {}
    faults = Faults(path, lines)
    return (None if node is None else _build(loader, node, (), lines, faults)), faults


def _build(loader: Any, node: Any, place: Place, lines: dict[Place, int], faults: Faults) -> Any:
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*place, index), lines, faults) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        return loader.construct_object(node)
    found: dict[str, Any] = {}
    for key_node, value_node in node.value:
        key = str(key_node.value)
        inner = (*place, key)
        lines[inner] = key_node.start_mark.line + 1
        if key in found:
            faults.add(inner, f"duplicate key '{key}'")
        found[key] = _build(loader, value_node, inner, lines, faults)
    return found


def convert(value: Any, form: Any, place: Place, faults: Faults) -> Any:
    """A value of the file as its typed form; what does not fit is a fault, and None is returned."""
    if isinstance(form, type) and issubclass(form, Struct):
        return _convert_struct(value, form, place, faults)
    options = get_args(form)
    struct = next((o for o in options if isinstance(o, type) and issubclass(o, Struct)), None)
    if struct is not None and get_origin(form) is not list:
        return _convert_struct(value, struct, place, faults)
    items = form if get_origin(form) is list else next((o for o in options if get_origin(o) is list), None)
    if items is not None and isinstance(value, list):
        return [convert(one, get_args(items)[0], (*place, index), faults) for index, one in enumerate(value)]
    try:
        return msgspec.convert(value, form)
    except msgspec.ValidationError as error:
        faults.add(place, f"'{place[-1] if place else 'file'}': {_plain(str(error))}")
        return None


def _convert_struct(value: Any, form: type[Struct], place: Place, faults: Faults) -> Any:
    where = str(next((part for part in reversed(place) if isinstance(part, str)), "rule"))
    if not isinstance(value, dict):
        faults.add(
            place, f"'{where}' takes a mapping with {', '.join(f.encode_name for f in msgspec.structs.fields(form))}"
        )
        return None
    fields = {field.encode_name: field for field in msgspec.structs.fields(form)}
    before = len(faults.found)
    for key in value:
        if key not in fields:
            faults.add(
                (*place, key),
                f"unknown key '{key}' in {where}.{did_you_mean(key, fields) or f' Known: {chr(44).join(fields)}'}",
            )
    given = {
        field.name: convert(value[name], field.type, (*place, name), faults)
        for name, field in fields.items()
        if name in value
    }
    for name, field in fields.items():
        if name not in value and field.required:
            faults.add(place, f"{where} needs '{name}'")
    return form(**given) if len(faults.found) == before else None


def _plain(text: str) -> str:
    """msgspec's words without its own path.

    >>> _plain("Expected `float`, got `str` - at `$.a`")
    'expected float, got str'
    """
    return re.sub(r" - at `.*", "", text).replace("`", "").replace("Expected", "expected").replace("Invalid", "invalid")


def texts(rule: RuleForm) -> Iterator[tuple[Place, str]]:
    """The sentences of a rule that may hold places such as {host.limit_bytes}."""
    yield ("summary",), rule.summary
    parts: Sequence[tuple[str, Sequence[Weight]]] = (("for", rule.detect.for_), ("against", rule.detect.against))
    for key, weights in parts:
        yield from ((("detect", key, index, "says"), one.says) for index, one in enumerate(weights))
    yield from (
        (("detect", "rules_out", index, "because"), one.because) for index, one in enumerate(rule.detect.rules_out)
    )
    for index, remedy in enumerate(rule.remediation):
        yield from (
            (("remediation", index, key), getattr(remedy, key)) for key in ("effect", "instead", "cost", "note")
        )
