"""Words of the recorder: each is declared, stored and read by its declaration; misspelled in any one place it is an error."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from rlhfdoctor.trace.read import find_nodes, read_node
from rlhfdoctor.trace.record import record_of
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary.index import RECORD_FIELDS, RECORDS, scopes
from rlhfdoctor.vocabulary.limits import LIMITS, BoundName, ProcessLimit
from rlhfdoctor.vocabulary.names import RECORD_UNITS, Name
from rlhfdoctor.vocabulary.recorder_events import COMMON
from tests.vocabulary.misspelled import CONSTANTS, MODULES, PACKAGE, ROOT, Use, chain, literals, unnoticed, uses

SUFFIXES = {"_bytes": "bytes", "_count": "count", "_s": "s", "_ns": "ns"}
USES = [use for path in MODULES for use in uses(path)]
CODE = {path: path.read_text() for path in MODULES if path.parent.name != "vocabulary"}
LIMITED = {
    "record/limits.py": (LIMITS, ""),
    "record/alarm.py": (LIMITS, ""),
    "record/view.py": (LIMITS, ""),
    "record/pace.py": (LIMITS, ""),
    "record/recorder.py": (LIMITS, "limit.name"),
    "core/panels.py": (LIMITS, "_OF_HOST"),  # elsewhere they are names of tables
    "budget/inputs.py": (get_args(BoundName), ""),
    "patch/suggest.py": (get_args(BoundName), ""),
    "evidence/rlimits.py": (get_args(ProcessLimit), ""),
    "vocabulary/limits.py": (LIMITS, '": "'),
}
"""Modules that name limits -> which, on which lines."""
RUNS = sorted(
    {path.parent for path in ROOT.glob("samples/**/*.trace")} | {p.parent for p in ROOT.glob("rules/**/*.trace")}
)


def limit_uses() -> list[Use]:
    return [use for name, (words, near) in LIMITED.items() for use in literals(PACKAGE / name, words, near)]


def test_misspelled(tmp_path: Path) -> None:
    """mypy reports every kind, field, constant and limit whose name has one letter too many, in whichever place."""
    changes = {use: (f"{use.word}_x{n}_", f'_x{n}_"') for n, use in enumerate(USES)}
    changes |= {use: (f'"{use.word}_x{n}_"', f"_x{n}_") for n, use in enumerate(limit_uses(), len(USES))}
    print(f"{len(changes)} mutations")
    assert [str(use) for use in unnoticed(changes, tmp_path)] == []


def test_bare(tmp_path: Path) -> None:
    """mypy reports every kind and field in whose place a string is written."""
    named = [use for use in USES if use.word.rpartition(".")[2] not in CONSTANTS]
    changes = {use: (f"Bare{n}_()", f"Bare{n}_") for n, use in enumerate(named)}  # a string, by a name of its own
    print(f"{len(changes)} mutations")
    prelude = "\n".join(f"class Bare{n}_(str): ..." for n in range(len(named)))
    assert [str(use) for use in unnoticed(changes, tmp_path, prelude=f"\n\n{prelude}\n")] == []


@pytest.mark.parametrize("name", [*RECORDS.values(), *RECORD_FIELDS.values()])
def test_meaning(name: Name) -> None:
    """Each kind and field says what it means; a field's unit fits its suffix."""
    assert name.meaning
    if name in RECORD_FIELDS:
        suffix = re.search(r"_[a-z]+$", name)
        unit = RECORD_FIELDS[name].unit
        assert unit in RECORD_UNITS
        assert unit == SUFFIXES.get(suffix[0] if suffix else "", unit)


def test_scopes_are_documented() -> None:
    """Each scope says what it is about."""
    assert [scope.__name__ for scope in scopes(RECORD) if not scope.__doc__] == []


def stored() -> Iterator[tuple[str, str, set[str]]]:
    """(place, kind, fields) of each call that stores an event."""
    for path, text in CODE.items():
        for node in ast.walk(ast.parse(text)):
            is_call = isinstance(node, ast.Call) and chain(node.func)[-1:] in (["emit"], ["_emit"], ["_store"], ["make_record"])
            if is_call and len(node.args) > 1:
                kinds = [".".join(chain(part)[1:]) for part in ast.walk(node.args[0]) if chain(part)[:1] == ["RECORD"]]
                keys = node.args[1].keys if isinstance(node.args[1], ast.Dict) else []
                fields = {chain(key)[1] for key in keys if key is not None}
                yield from ((f"{path.name}:{node.lineno}", kind, fields) for kind in kinds if kind.count(".") == 1)


def word(kind: str) -> str:
    """`note.mark` is stored as `mark`."""
    return kind.removeprefix("note.")


def test_kinds_are_stored() -> None:
    """Each declared kind is stored by some module."""
    assert set(RECORDS) == {word(kind) for _, kind, _ in stored()}


def test_fields_are_declared() -> None:
    """An event is stored with fields that its kind declares."""
    wrong = [(place, kind, fields - set(RECORDS[word(kind)].fields)) for place, kind, fields in stored()]
    assert [found for found in wrong if found[2]] == []


def test_fields_are_used() -> None:
    """Each declared field belongs to a kind, or to all; a module outside the vocabulary stores or reads it."""
    declared = {field for kind in RECORDS.values() for field in kind.fields} | set(COMMON)
    named = {use.word[2:] for use in USES if use.word.startswith("R.") and use.path in CODE}
    assert declared == set(RECORD_FIELDS) == named


@pytest.mark.parametrize("path", RUNS, ids=lambda path: str(path.relative_to(ROOT)))
def test_recorded_runs(path: Path) -> None:
    """Events of the runs that were recorded so far are of declared kinds, with fields that those declare."""
    found = [event for node in find_nodes(path) for event in read_node(node).events]
    assert found
    for event in found:
        kind = record_of(event)
        assert kind is not None, event
        assert set(event) - set(kind.fields) - set(COMMON) == set(), event


@pytest.mark.parametrize("path", CODE, ids=lambda path: path.stem)
def test_no_bare_kinds(path: Path) -> None:
    """No module writes the name of a kind as a string."""
    words = {kind for kind in RECORDS if "." in kind}
    assert [str(use) for use in literals(path, words)] == []
