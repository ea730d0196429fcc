"""The folders of the frameworks: complete in the wheel, and consistent with each other."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhfdoctor.budget.inputs import Inputs, Machine
from rlhfdoctor.budget.layout import make_plans
from rlhfdoctor.errors import UsageError
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.plugins import folders
from rlhfdoctor.plugins.spec import FrameworkSpec
from rlhfdoctor.settings.framework import find_framework, name_of
from rlhfdoctor.settings.spell import claimants, load_table
from rlhfdoctor.types import Framework
from tests.build import make_event, make_setting

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
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-q",
        "-w",
        str(tmp_path / "out"),
        str(tmp_path),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(next((tmp_path / "out").glob("*.whl"))) as wheel:
        packed = {name for name in wheel.namelist() if name.startswith("rlhfdoctor/frameworks/")}
    here = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "rlhfdoctor/frameworks").rglob("*.*")
        if path.suffix in (".py", ".yaml", ".po")
    }
    assert packed == here


@each_framework
def test_each_class_is_a_sign_of_its_framework(spec: FrameworkSpec) -> None:
    """Lines of its own processes name it, and a role that the folder states is the role that is found."""
    events = [make_event(actor=actor) for actor in spec.actors] * 4
    found = find_framework(events, [], {})
    assert (found.name if found is not None else None) == (spec.framework if events else None)
    assert {actor: find_role(actor) for actor, role in spec.actors.items() if role} == {
        a: r for a, r in spec.actors.items() if r
    }


@each_framework
def test_its_own_spellings_name_it(spec: FrameworkSpec) -> None:
    """A file with the spellings that only it has is its own, and no other framework's."""
    own = [s for s in load_table(spec.framework) if claimants(s.spelled) == (spec.framework,)][:12]
    assert len(own) > 1
    found = find_framework([], [make_setting(s.spelled, framework=spec.framework, form=s.form) for s in own], {})
    assert found is not None and found.name == spec.framework


@each_framework
def test_its_packages_name_it(spec: FrameworkSpec) -> None:
    """A package list names the framework and its release, and so does the user."""
    for package in spec.packages:
        found = find_framework([], [], {package.name: ("0.2.0", "pip.txt:1")})
        assert found is not None and (found.name, found.version) == (spec.framework, package.release("0.2.0"))
        assert name_of(f"{package.name}==0.2.0") == spec.framework


@each_framework
def test_its_estimate_answers(spec: FrameworkSpec) -> None:
    """With settings alone it plans, or refuses with a sentence; it ends in no other error."""
    machine = Machine(gpus_per_node=8, model="Qwen2.5-7B", host_bytes=1 << 40, gpu_bytes=80 << 30)
    framework = Framework(name=spec.framework, version=None)
    try:
        plans = make_plans(Inputs({}, framework, {}, machine))
    except UsageError as error:
        assert "not modelled" in str(error)
    else:
        assert plans and all(plan.framework == spec.framework for plan in plans)


def test_no_framework_is_named_outside_of_its_folder() -> None:
    """Code asks for traits: no string outside of the folders is a framework's name."""
    word = "|".join(re.escape(name) for name in folders.names() if name != "rlhfdoctor")
    named = re.compile(rf"(?i){word}")
    found = []
    for path in sorted((ROOT / "rlhfdoctor").rglob("*.py")):
        if path.parent.parent.name == "frameworks":
            continue
        tree = ast.parse(path.read_text())
        found += [
            f"{path.name}:{n.lineno}: {n.value}"
            for n in ast.walk(tree)
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and named.fullmatch(n.value.strip())
        ]
    assert found == []


def words(node: Any) -> Iterator[str]:
    """Every key and every text of a YAML document, also those of its lists."""
    if isinstance(node, dict):
        yield from (str(key) for key in node)
        yield from (word for value in node.values() for word in words(value))
    elif isinstance(node, list):
        yield from (word for value in node for word in words(value))
    elif isinstance(node, str):
        yield node


@pytest.mark.parametrize("folder", ["rules", "rlhfdoctor/evidence", "rlhfdoctor/budget", "rlhfdoctor/settings"])
def test_no_data_branches_on_a_framework(folder: str) -> None:
    """Rules and tables ask for settings and traits: none of their keys, words or releases is a framework's name."""
    known = {name for name in folders.names() if name != "rlhfdoctor"} | {"frameworks"}
    found = [
        (path.name, word)
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        if not {"fires", "silent"} & set(path.parts)
        for word in words(yaml.safe_load(path.read_text()))
        if word.lower() in known or re.match(rf"(?i)({'|'.join(known)}) *[<>=]=", word)
    ]
    assert found == []
