"""The shape of the code: small modules, small functions, no utils, docstrings, no TODO."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

MODULES = sorted((Path(__file__).parent.parent / "rlhfdoctor").rglob("*.py"))


def functions(path: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_module_is_small(path: Path) -> None:
    """No module has more than 350 lines."""
    assert len(path.read_text().splitlines()) <= 350


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_functions_are_small(path: Path) -> None:
    """No function has more than 80 lines."""
    assert [f.name for f in functions(path) if (f.end_lineno or 0) - f.lineno > 80] == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_module_says_what_it_is(path: Path) -> None:
    """Every module begins with one line that names one thing: it has no "and"."""
    doc = ast.get_docstring(ast.parse(path.read_text()))
    assert doc
    assert "and" not in doc.splitlines()[0].lower().split()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_public_functions_are_documented(path: Path) -> None:
    """Every public function outside a class body has a docstring."""
    public = [
        n for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef) and not n.name.startswith("_")
    ]
    assert [f.name for f in public if not ast.get_docstring(f)] == []


def test_no_utils_and_no_todo() -> None:
    """No module is a drawer, and no work is left in comments."""
    texts = {path: path.read_text() for path in MODULES}
    assert [
        p.name for p, text in texts.items() if p.stem in ("utils", "helpers", "common", "misc") or "TODO" in text
    ] == []


def test_make_check_uses_the_versions_of_make_test() -> None:
    """The small environment is a part of the large one, without what makes that large, and has all of the package's own."""
    folder = Path(__file__).parent.parent / ".ci"
    base, check, dev = (set((folder / f"{name}.lock").read_text().split()) for name in ("base", "check", "dev"))
    assert (sorted(base - check), sorted(check - dev)) == ([], [])
    assert {line.partition("==")[0] for line in check} & {
        "torch",
        "ray",
        "deepspeed",
        "vllm",
        "transformers",
        "matplotlib",
        "pandas",
    } == set()


def test_nothing_heavy_at_import() -> None:
    """torch, ray, deepspeed, vllm, pandas and polars are imported by no module at its top."""
    heavy = {"torch", "ray", "deepspeed", "vllm", "pandas", "polars"}
    found = [
        (path.name, name.name)
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Import)
        for name in node.names
        if name.name.split(".")[0] in heavy
    ]
    assert found == []
