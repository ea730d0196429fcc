"""Misspells the words of the recorder in the package's own modules, each use once; mypy says which it notices."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "rlhfdoctor"
MODULES = sorted(PACKAGE.rglob("*.py"))
CONSTANTS = {"NODE", "KERNEL_LOG", "PROBE"}
"""Words that have a constant of their own."""


@dataclass(frozen=True)
class Use:
    """One place where a module names something."""

    path: Path
    word: str
    start: int
    end: int
    """Offsets into the module's text, in bytes."""

    def __str__(self) -> str:
        line = self.path.read_bytes()[: self.start].count(b"\n") + 1
        return f"{self.path.relative_to(PACKAGE)}:{line}: {self.word}"


def offsets(text: bytes, node: ast.expr) -> tuple[int, int]:
    """Where an expression is."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    assert node.end_lineno is not None and node.end_col_offset is not None
    return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset


def chain(node: ast.AST) -> list[str]:
    """`RECORD.process.gone` as its names; empty for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        return [*before, node.attr] if (before := chain(node.value)) else []
    return []


def uses(path: Path) -> Iterator[Use]:
    """The recorder's kinds, fields and constants that a module names."""
    text = path.read_bytes()
    if b"RECORD" not in text and not any(name.encode() in text for name in CONSTANTS):
        return
    for node in ast.walk(ast.parse(text)):
        names = chain(node)
        kind = len(names) == 3 and names[0] == "RECORD"
        field = len(names) == 2 and names[0] == "R"
        constant = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in CONSTANTS
        constant |= len(names) == 2 and names == ["marks", "PROBE"]
        if kind or field or constant:
            assert isinstance(node, ast.expr)
            yield Use(path, ".".join(names), *offsets(text, node))


def literals(path: Path, words: Collection[str], near: str = "") -> Iterator[Use]:
    """String literals of a module that are one of these words, on lines that hold `near`; values of dictionaries are text."""
    text = path.read_bytes()
    tree = ast.parse(text)
    shown = {id(value) for node in ast.walk(tree) if isinstance(node, ast.Dict) for value in node.values}
    lines = text.decode().splitlines()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and node.value in words and id(node) not in shown:
            if near in lines[node.lineno - 1]:
                yield Use(path, str(node.value), *offsets(text, node))


def unnoticed(changes: dict[Use, tuple[str, str]], folder: Path, *, prelude: str = "") -> list[Use]:
    """The changes that mypy does not report.

    Args:
        changes: use -> what is written instead, and what an error about it says.
        folder: of the changed modules.
        prelude: for the end of each changed module.
    """
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--no-error-summary",
        "--show-absolute-path",
        f"--cache-dir={folder}/cache",
    ]
    if (ROOT / ".mypy_cache").is_dir():
        shutil.copytree(
            ROOT / ".mypy_cache", folder / "cache"
        )  # of `make lint`: the modules that stay need not be read
    for number, path in enumerate(sorted({use.path for use in changes})):
        text = path.read_bytes()
        for use in sorted((use for use in changes if use.path == path), key=lambda use: -use.start):
            text = text[: use.start] + changes[use][0].encode() + text[use.end :]
        changed = folder / f"{number}.py"
        changed.write_bytes(text + prelude.encode())
        command += ["--shadow-file", str(path), str(changed)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    return [use for use, (_, said) in changes.items() if said not in done.stdout]
