"""What tests of hostile input share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.attacks.run import Done, doctor, kill_below, remove

Doctor = Callable[..., Done]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """Folder of the user's that is no part of the attack; what the test has left running ends with it."""
    folder = tmp_path / "home"
    folder.mkdir()
    yield folder
    kill_below(tmp_path)
    remove(tmp_path)


@pytest.fixture
def attack(home: Path) -> Doctor:
    """Runs a command: `attack("analyze", folder, "--format", "json")`."""

    def run(*words: str | Path, **more: str | Path | bool | float | None) -> Done:
        return doctor(*words, home=home, **more)  # type: ignore[arg-type]

    return run


@pytest.fixture
def analyze(attack: Doctor) -> Doctor:
    """Runs `doctor analyze WORDS --format json`."""

    def run(*words: str | Path) -> Done:
        return attack("analyze", *words, "--format", "json")

    return run
