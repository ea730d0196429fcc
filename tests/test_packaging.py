"""What is packed: every module and every file of data of the tree, nothing else, with metadata as indexes want it."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
FOR_EDITORS = (".md", ".json")
"""Of the catalogue's folder: pages and schemas for people who write rules."""


def files_of_the_tree() -> Iterator[str]:
    """The files of the package and of its rules, by their names in a wheel."""
    for path in (ROOT / "rlhfdoctor").rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            yield str(path.relative_to(ROOT))
    for path in (ROOT / "rules").rglob("*"):
        if path.is_file() and not (path.parent == ROOT / "rules" and path.suffix in FOR_EDITORS):
            yield f"rlhfdoctor/{path.relative_to(ROOT)}"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of the tree, built from a copy."""
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("setuptools is older than the build asks for")
    source, out = tmp_path_factory.mktemp("source") / "tree", tmp_path_factory.mktemp("wheel")
    source.mkdir()
    for name in ("rlhfdoctor", "rules"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    code = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    done = subprocess.run([sys.executable, "-c", code, out], cwd=source, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": ""})
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(next(out.glob("*.whl")))


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    """Its METADATA."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_bytes(wheel.read(name))


def test_every_package_is_listed() -> None:
    """A folder with __init__.py is a package; those of frameworks are data, found by their names."""
    found = {".".join(path.parent.relative_to(ROOT).parts) for path in (ROOT / "rlhfdoctor").rglob("__init__.py")}
    frameworks = {name for name in found if name.startswith("rlhfdoctor.frameworks.")}
    listed = PYPROJECT["tool"]["setuptools"]["packages"]
    assert (sorted(listed), len(frameworks) > 5) == (sorted({*found - frameworks, "rlhfdoctor.rules"}), True)


def test_the_wheel_holds_the_tree(wheel: zipfile.ZipFile) -> None:
    """Modules, catalogues, tables, templates, schemas, rules with their samples, py.typed."""
    held = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert held == set(files_of_the_tree())
    assert {"rlhfdoctor/py.typed", "rlhfdoctor/rules/host-leak/rule.yaml", "rlhfdoctor/report/report.schema.json"} <= held


def test_metadata(metadata: Message, wheel: zipfile.ZipFile) -> None:
    """Licence by its expression and its file, the page, both commands, classifiers of the Pythons."""
    assert (metadata["License-Expression"], metadata["License-File"], metadata["Requires-Python"]) == ("Apache-2.0", "LICENSE", ">=3.10")
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(10, 14)} <= set(metadata.get_all("Classifier", []))
    info = metadata["Name"] + "-" + metadata["Version"] + ".dist-info"
    assert wheel.read(f"{info}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert wheel.read(f"{info}/entry_points.txt").decode().split() == ["[console_scripts]", "doctor", "=", "rlhfdoctor.__main__:main", "rlhfdoctor", "=", "rlhfdoctor.__main__:main"]


def test_the_version_is_one() -> None:
    """That of the package is that of the wheel."""
    from rlhfdoctor import __version__

    assert PYPROJECT["project"]["version"] == __version__
