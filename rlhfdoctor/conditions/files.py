"""YAML files -> typed forms by msgspec; every fault names its file with the line."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, get_origin

import msgspec
import yaml
from msgspec import Struct

from rlhfdoctor import documents
from rlhfdoctor.errors import RuleError
from rlhfdoctor.files.read import Refused, read_bytes
from rlhfdoctor.vocabulary.names import did_you_mean

if TYPE_CHECKING:
    from importlib.abc import Traversable

Place: TypeAlias = tuple[str | int, ...]
"""Keys and indexes from the top of the file to a value."""
_MOST_BYTES = 1 << 20
_DEEPEST = 50


class Faults:
    """The faults of one file, each at its line."""

    def __init__(self, path: Path | Traversable, find_lines: Callable[[], Mapping[Place, int]]) -> None:
        """`find_lines` gives the line of every value of the file; it is called once there is a fault."""
        self.path, self._find_lines = path, find_lines
        self.found: list[str] = []

    @functools.cached_property
    def lines(self) -> Mapping[Place, int]:
        """Where each value is."""
        return self._find_lines()

    def none_yet(self) -> Faults:
        """Of the same file, with nothing found."""
        return Faults(self.path, self._find_lines)

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


def read_yaml(path: Path | Traversable) -> tuple[Any, Faults]:
    """The plain values of a file, and where each of them is.

    Raises:
        RuleError: the file is unreadable, or no YAML.
    """
    try:
        text = _text_of(path)
    except OSError as error:
        raise RuleError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise RuleError(f"{path}:1: is not UTF-8") from None
    known = documents.recall(text)
    if known is not None:
        return known, Faults(path, lambda: _compose(path, text)[1].lines)
    value, faults = _compose(path, text)
    if not faults.found:
        documents.keep(text, value)
    return value, faults


def _text_of(path: Path | Traversable) -> str:
    """
    Raises:
        OSError: it cannot be read, or is a pipe, a device, or larger than any rule.
    """
    if not isinstance(path, Path):
        return path.read_text(encoding="utf-8")
    data = read_bytes(path, _MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise Refused(f"is larger than {_MOST_BYTES >> 20} MiB", path)
    return data.decode()


def _check_nesting(text: str) -> None:
    """Before nodes are made of it: libyaml makes them by recursion, and aliases multiply what they name.

    Raises:
        yaml.YAMLError: it has aliases, or is nested too deeply.
    """
    depth = 0
    for event in yaml.parse(text, Loader=documents.LOADER):
        mark: Any = event.start_mark
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise yaml.MarkedYAMLError(problem="nested too deeply", problem_mark=mark)
        if isinstance(event, yaml.AliasEvent):
            raise yaml.MarkedYAMLError(problem="no aliases here; write it out", problem_mark=mark)


def _compose(path: Path | Traversable, text: str) -> tuple[Any, Faults]:
    """The values of a text, whose faults know their lines."""
    try:
        _check_nesting(text)
        loader = documents.LOADER(text)
        node = loader.get_single_node()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise RuleError(f"{path}:{mark.line + 1 if mark else 1}: {getattr(error, 'problem', error)}") from None
    lines: dict[Place, int] = {}
    faults = Faults(path, lambda: lines)
    return (None if node is None else _build(loader, node, (), lines, faults)), faults


def _build(loader: Any, node: Any, place: Place, lines: dict[Place, int], faults: Faults) -> Any:
    lines[place] = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return [_build(loader, item, (*place, index), lines, faults) for index, item in enumerate(node.value)]
    if not isinstance(node, yaml.MappingNode):
        try:
            return loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            faults.add(place, f"no plain value: {getattr(error, 'problem', None) or error}")
            return None
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
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        faults.add(place, f"'{place[-1] if place else 'file'}': {_plain(str(error))}")
        return None


@functools.cache
def _fields(form: type[Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """The fields of a form by their names in files; their types are evaluated once."""
    return {field.encode_name: field for field in msgspec.structs.fields(form)}


def _convert_struct(value: Any, form: type[Struct], place: Place, faults: Faults) -> Any:
    where = str(next((part for part in reversed(place) if isinstance(part, str)), Path(faults.path.name).stem))
    if not isinstance(value, dict):
        faults.add(place, f"'{where}' takes a mapping with {', '.join(_fields(form))}")
        return None
    fields = _fields(form)
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
