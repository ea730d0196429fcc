"""Documentation that can rot is checked: generated parts are fresh, commands and examples run, links lead somewhere, the site builds."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from click.testing import Result

from rlhfdoctor.cli.help import page_names
from rlhfdoctor.places import pages_folder
from tests.docs import PAGES

ROOT = Path(__file__).resolve().parent.parent
FOLDER = pages_folder()
README = (ROOT / "README.md").read_text()
DOCUMENTS = ("README.md", "DESIGN.md", "CHANGELOG.md", ".github/CONTRIBUTING.md", *(str(page.relative_to(ROOT)) for page in sorted(FOLDER.glob("*.md"))))
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
COMMANDS = [line.removeprefix("$ ").split("   #")[0] for line in re.findall(r"^\$ doctor .*$", README, re.M)]


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_fresh(name: str) -> None:
    """`make docs` would change nothing."""
    assert (ROOT / name).read_text() == PAGES[name]()


def test_readme_shows_commands() -> None:
    """The README has commands to run."""
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("shown", ["pip install rlhfdoctor", "pipx install", "uvx", "![", "doctor analyze", "doctor estimate", "doctor watch"])
def test_readme_begins_with_what_counts(shown: str) -> None:
    """Install line, picture and three commands are in the first 40 lines."""
    assert shown in "\n".join(README.splitlines()[:40])


def test_readme_is_short() -> None:
    """What takes longer is a page."""
    assert len(README.splitlines()) <= 120


@pytest.mark.sweep
@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command_runs(command: str) -> None:
    """A command of the README ends with 0 or 1 and no traceback."""
    words = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode in (0, 1), "Traceback" in done.stderr) == (True, False)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_files_that_documents_name_exist(name: str) -> None:
    """Paths in backticks that look like files of this repository exist."""
    named = re.findall(r"`((?:rlhfdoctor|rules|samples|tests|notebooks|\.ci|\.github)/[\w./-]+)`", (ROOT / name).read_text())
    invented = {"rules/host-my-cause"}
    assert [path for path in named if not (ROOT / path).exists() and path not in invented] == []


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_lead_somewhere(name: str) -> None:
    """Every link to a file leads to one; Sphinx checks the headings behind `#`."""
    targets = LINK.findall(re.sub(r"```.*?```|`[^`]*`", "", (ROOT / name).read_text(), flags=re.DOTALL))
    assert [target for target in targets if not (ROOT / name).parent.joinpath(target).exists()] == []


def test_every_page_is_listed() -> None:
    """The first page links all others: that is the table of contents, and what `doctor help` lists."""
    assert {*page_names(FOLDER), "index"} == {page.stem for page in FOLDER.glob("*.md")}


def test_examples_of_the_python_page_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What docs/python.md shows is what happens."""
    pytest.importorskip("polars")
    monkeypatch.chdir(ROOT)
    done = doctest.testfile(str(FOLDER / "python.md"), module_relative=False, encoding="utf-8")
    assert (done.failed, done.attempted > 20) == (0, True)


def test_picture_fetches_nothing() -> None:
    """The picture is well-formed, and its one address is the name of its format."""
    text = (FOLDER / "verdict.svg").read_text()
    assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    assert re.findall(r"https?://[^\s\"]+", text) == ["http://www.w3.org/2000/svg"]


def test_site_builds(tmp_path: Path) -> None:
    """`make site`: no warning, the version on every page, and nothing that a browser would fetch from elsewhere."""
    pytest.importorskip("sphinx", reason="Sphinx is not installed: make site")
    words = ["-q", "-n", "-W", "--keep-going", "-c", ROOT / ".ci/site", "-d", tmp_path / "cache", FOLDER, tmp_path / "site"]
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", *words], capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    assert (done.returncode, done.stderr) == (0, "")
    pages = {page.stem: page.read_text() for page in (tmp_path / "site").glob("*.html")}
    assert {page.stem for page in FOLDER.glob("*.md")} <= pages.keys()
    assert [name for name, text in pages.items() if re.search(r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//|<link[^>]+href=\"(?:https?:)?//", text)] == []
    version = re.search(r'VERSION = "(.+)"', (ROOT / "rlhfdoctor/version.py").read_text())
    assert version
    assert [name for name, text in pages.items() if f"rlhfdoctor {version[1]}" not in text] == []


def test_help_lists_the_pages(doctor: Callable[..., Result]) -> None:
    """`doctor help` has every page with its title, and says where the files are."""
    done = doctor("help")
    assert (done.exit_code, [name for name in page_names(FOLDER) if f"\n  {name} " not in done.output]) == (0, [])
    assert ("Read a verdict" in done.output, str(FOLDER) in done.output) == (True, True)


def test_help_shows_a_page(doctor: Callable[..., Result]) -> None:
    """`doctor help PAGE` prints it, without the marks of its generated parts."""
    done = doctor("help", "trust")
    assert (done.exit_code, done.output.startswith("# How far to trust it"), "<!--" in done.output) == (0, True, False)


def test_help_of_an_unknown_page(doctor: Callable[..., Result]) -> None:
    """A page that is not there is an error of use with the nearest names; no path reaches a file elsewhere."""
    done = doctor("help", "verdct"), doctor("help", "../version")
    assert [one.exit_code for one in done] == [2, 2]
    assert "Did you mean verdict" in done[0].output


def test_help_is_linked() -> None:
    """`doctor --help` and the page of a rule lead to the documentation."""
    words = [["--help"], ["rules", "explain", "host-leak"]]
    printed = [subprocess.run([sys.executable, "-m", "rlhfdoctor", *one], capture_output=True, text=True, check=False, cwd=ROOT).stdout for one in words]
    assert ["doctor help" in text for text in printed] == [True, True]
