"""The line that shows how far reading is: in a terminal, from one second on."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlhfdoctor.cli import console
from rlhfdoctor.cli.console import Progress
from rlhfdoctor.core.session import Session
from rlhfdoctor.units import MIB


class Terminal(io.StringIO):
    """Standard error that says it is one."""

    def isatty(self) -> bool:
        """Always."""
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time of the progress; its last element is now."""
    times = [100.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: times[-1])
    return times


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Standard error."""
    screen = Terminal()
    monkeypatch.setattr(console.cache, "has", lambda _: True)
    monkeypatch.setattr(console, "sys", SimpleNamespace(stderr=screen))  # pytest gives sys.stderr anew for each phase
    return screen


def shown(terminal: Terminal) -> list[str]:
    """What was drawn, one by one."""
    return [text for text in re.split(r"\r\x1b\[K", terminal.getvalue()) if text]


def test_rate_and_time_left(clock: list[float], terminal: Terminal) -> None:
    """Half of it after two seconds: as much again will take two more."""
    with Progress() as progress:
        assert progress is not None
        progress.expect(400 * MIB)
        progress("a.log", 10 * MIB)
        clock.append(102.0)
        progress("logs/" + "x" * 40 + "/worker-12.out", 200 * MIB)
    (line,) = shown(terminal)
    assert line.startswith("reading 200 of 400 MiB, 100 MiB/s, 2 s left  ")
    assert line.endswith("/worker-12.out")
    assert len(line) <= 80


def test_without_a_total(clock: list[float], terminal: Terminal) -> None:
    """What is compressed has no size in advance."""
    with Progress() as progress:
        assert progress is not None
        clock.append(104.0)
        progress("a.log.gz", 200 * MIB)
    assert shown(terminal) == ["reading 200 MiB, 50 MiB/s  a.log.gz"]


def test_quick_run_shows_nothing(clock: list[float], terminal: Terminal) -> None:
    """Less than a second is not worth a line."""
    with Progress() as progress:
        assert progress is not None
        clock.append(100.9)
        progress("a.log", 200 * MIB)
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("engine", [True, False], ids=["hyperscan", "re"])
def test_first_start(clock: list[float], terminal: Terminal, monkeypatch: pytest.MonkeyPatch, engine: bool) -> None:
    """Where the patterns are still to be compiled, which takes some seconds, a line says so, and goes at the end."""
    monkeypatch.setattr(console.cache, "has", lambda _: False)
    monkeypatch.setattr(console, "find_spec", lambda _: object() if engine else None)
    with Progress():
        assert shown(terminal) == (["preparing the patterns, once after an install: some seconds"] if engine else [])
    assert terminal.getvalue().endswith("\r\x1b[K") is engine


@pytest.mark.parametrize(("name", "expected"), [("a.log", [26]), ("a.log.gz", [])])
def test_what_a_session_expects(tmp_path: Path, name: str, expected: list[int]) -> None:
    """The bytes of all logs, before the first is read; nothing where one is compressed."""
    (tmp_path / "b.log").write_text("line\n" * 4)
    (tmp_path / name).write_bytes(b"no log")
    totals: list[int] = []
    with Session([str(tmp_path)], expect=totals.append):
        pass
    assert totals == expected
