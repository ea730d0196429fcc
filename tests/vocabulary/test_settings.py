"""Names of settings: declared, in a table, and spelled right wherever code asks for them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.settings.spell import TABLES, Spelling, known_names, load_table, normal
from rlhfdoctor.vocabulary.settings import SETTINGS, SPELLED

PACKAGE = Path(__file__).resolve().parents[2] / "rlhfdoctor"
ASKING = [
    path
    for folder in ("budget", "evidence", "patch", "frameworks", "settings")
    for path in sorted((PACKAGE / folder).rglob("*.py"))
]
ACCESS = {
    "setting",
    "value",
    "number",
    "stage",
    "count",
    "flag",
    "shape",
    "shape_or",
    "change",
    "spell",
    "spellings",
    "editable",
    "logged",
}
"""Functions that take names of settings."""
NO_NAMES = {"\n", '"', "'", "{", "}", "torch"}
"""Arguments of str.count and of versions."""


def plain(text: str) -> str:
    return normal(text).lstrip("-").replace("-", "_")


def undeclared(rows: list[Spelling], declared: frozenset[str]) -> set[str]:
    """Names of rows that are neither declared nor one of the setting's own spellings."""
    own = {row.name for row in rows if plain(row.name) == plain(row.spelled)}
    return {row.name for row in rows} - own - declared


def asked_of(path: Path) -> Iterator[tuple[str, int]]:
    """(name, line) of the settings that a module asks for by a literal."""
    for node in ast.walk(ast.parse(path.read_text())):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        of_settings = (
            name == "get"
            and isinstance(called, ast.Attribute)
            and isinstance(called.value, ast.Attribute)
            and called.value.attr == "settings"
        )
        if name in ACCESS or of_settings:
            for argument in node.args:
                parts = argument.elts if isinstance(argument, ast.Tuple | ast.List) else [argument]
                yield from (
                    (part.value, part.lineno)
                    for part in parts
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )


ASKED = {name for path in ASKING for name, _ in asked_of(path)} - NO_NAMES


@pytest.mark.parametrize("table", TABLES)
def test_names_of_a_table_are_declared(table: str) -> None:
    """A row bears a declared name, or its own spelling."""
    assert undeclared(list(load_table(table)), SETTINGS) == set()


@pytest.mark.parametrize("table", TABLES)
def test_what_a_row_needs_is_in_its_table(table: str) -> None:
    """A row that is accepted only with another setting names one of the same table."""
    rows = load_table(table)
    assert {row.needs for row in rows if row.needs} <= {row.name for row in rows}


def test_declared_names_are_in_a_table() -> None:
    """Nothing is declared that no table has."""
    assert SETTINGS - known_names() == set()


@pytest.mark.parametrize("path", ASKING, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_code_asks_for_known_names(path: Path) -> None:
    """A literal in a call that takes a setting's name is a name of a table, or declared as a spelling of its own."""
    assert [
        f"{path.name}:{line}: {name}" for name, line in asked_of(path) if name not in known_names() | SPELLED | NO_NAMES
    ] == []


def test_spellings_are_asked_for() -> None:
    """No spelling is declared that nothing asks for."""
    assert set() == SPELLED - ASKED


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_renamed_setting_is_found(name: str) -> None:
    """Renaming it in the declaration, or in any one table, leaves a row without a declared name."""
    rows = {table: [row for row in load_table(table) if row.name == name] for table in TABLES}
    holding = [found for found in rows.values() if found]
    by_declaration = [undeclared(found, SETTINGS - {name}) for found in holding]
    own_in_all = all(plain(row.name) == plain(row.spelled) for found in holding for row in found[:1])
    assert holding and (any(by_declaration) or own_in_all or name in ASKED)
