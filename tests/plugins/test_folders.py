"""The folders of the frameworks: complete in the wheel, and consistent with each other."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from rlhfdoctor.plugins import folders

ROOT = Path(__file__).parents[2]
each_framework = pytest.mark.parametrize("spec", folders.load(), ids=lambda spec: spec.framework)


def test_order() -> None:
    """The order is that of the files, not of the file system."""
    assert folders.names()[:6] == ("openrlhf", "verl", "easyr1", "simplerl", "trl", "rlhfdoctor")


def test_unknown_name() -> None:
    """A framework that is not there has no packages."""
    assert folders.get("none") is None and folders.packages("none") == ()


def test_wheel_holds_every_folder(tmp_path: Path) -> None:
    """A wheel holds all files of all frameworks, though the packaging names none of them."""
    pytest.importorskip("setuptools", minversion="77")
    pytest.importorskip("pip")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / name)
    for name in ("rlhfdoctor", "rules"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__", "fires", "silent"))
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(tmp_path / "out"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((tmp_path / "out").glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("rlhfdoctor/frameworks/")}
    here = {str(path.relative_to(ROOT)) for path in (ROOT / "rlhfdoctor/frameworks").rglob("*.*") if path.suffix in (".py", ".yaml")}
    assert packed == here
