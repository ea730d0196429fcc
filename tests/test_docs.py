"""Documentation that can rot is checked: generated pages are fresh, commands in the README run."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs import PAGES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
COMMANDS = [line.removeprefix("$ ").split("   #")[0] for line in re.findall(r"^\$ doctor .*$", README, re.M)]


@pytest.mark.parametrize("name", PAGES)
def test_generated_page_is_fresh(name: str) -> None:
    """`make docs` would change nothing."""
    assert (ROOT / name).read_text() == PAGES[name]()


def test_readme_shows_commands() -> None:
    """The README has commands to run."""
    assert len(COMMANDS) >= 4


@pytest.mark.sweep
@pytest.mark.parametrize("command", COMMANDS)
def test_readme_command_runs(command: str) -> None:
    """A command of the README ends with 0 or 1 and no traceback."""
    words = shlex.split(command)[1:]
    done = subprocess.run(
        [sys.executable, "-m", "rlhfdoctor", *words], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode in (0, 1), "Traceback" in done.stderr) == (True, False)


@pytest.mark.parametrize("name", ["README.md", "DESIGN.md", "CHANGELOG.md", ".github/CONTRIBUTING.md"])
def test_files_that_documents_name_exist(name: str) -> None:
    """Paths in backticks that look like files of this repository exist."""
    named = re.findall(r"`((?:rlhfdoctor|rules|samples|tests|\.ci)/[\w./-]+)`", (ROOT / name).read_text())
    assert [path for path in named if not (ROOT / path).exists()] == []
