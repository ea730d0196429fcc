"""The notebooks: they run with the public API alone, keep their outputs, and say the same again."""

from __future__ import annotations

import ast
import json
import os
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
BOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def code(book: Path) -> list[dict[str, Any]]:
    return [cell for cell in json.loads(book.read_text())["cells"] if cell["cell_type"] == "code"]


def test_there_are_notebooks() -> None:
    """Read, compare, a fleet, a rule."""
    assert [book.stem.partition("_")[2] for book in BOOKS] == [
        "read_an_incident",
        "before_and_after",
        "a_fleet",
        "write_a_rule",
    ]


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_public_names_only(book: Path) -> None:
    """What a notebook uses of the package is exported by it."""
    import rlhfdoctor

    source = "\n".join("".join(cell["source"]) for cell in code(book))
    used = {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "rlhfdoctor"
    }
    assert used and used <= set(rlhfdoctor.__all__)
    assert "rlhfdoctor." not in "".join(line for line in source.splitlines() if line.startswith(("import ", "from ")))


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_outputs_are_kept(book: Path) -> None:
    """Whoever reads it on the web sees results; none is an error, and none tells of this machine."""
    cells = code(book)
    assert all(output["output_type"] != "error" for cell in cells for output in cell["outputs"])
    assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) - 2
    assert str(ROOT) not in book.read_text() and book.stat().st_size < 400_000


@pytest.mark.sweep
@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.stem)
def test_it_runs(book: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From top to bottom on a fresh kernel, with the tables and texts that are kept."""
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    client = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("LANG", "C.UTF-8")
    notebook = nbformat.read(book, as_version=4)
    kept = [told(cell) for cell in notebook.cells if cell.cell_type == "code"]
    client.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(book.parent)}}
    ).execute()
    assert [told(cell) for cell in notebook.cells if cell.cell_type == "code"] == kept


def told(cell: Any) -> list[Any]:
    """Texts of a cell's outputs, and what kinds of pictures it shows."""
    found: list[Any] = []
    for output in cell["outputs"]:
        data = output.get("data", {})
        found.append(
            output.get("text")
            or data.get("text/markdown")
            or (
                sorted(data)
                if "image/png" in data or "Styler" in str(data.get("text/plain"))
                else data.get("text/plain")
            )
        )
    return found
