"""Every surface on its seeds, on what was found before, and on some mutations; the fuzzer finds what is there to find."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.surfaces import SURFACES, Surface

FINDINGS = sorted(path for path in run.FOUND.rglob("*") if path.is_file())


@pytest.mark.parametrize("name", SURFACES)
def test_seeds(name: str) -> None:
    """They are inputs as they come, and their first mutations."""
    one, chance = SURFACES[name], random.Random(1)
    seeds = one.seeds()
    for data in seeds[:12]:
        one.check(data)
    for _ in range(20):
        one.check(run.mutated(chance.choice(seeds), seeds, chance, one.length))


@pytest.mark.parametrize("path", FINDINGS, ids=lambda path: f"{path.parent.name}-{path.name[:6]}")
def test_what_was_found(path: Path) -> None:
    """Inputs that once raised."""
    SURFACES[path.parent.name].check(path.read_bytes())


def test_a_planted_fault_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By mutation, within some thousand inputs."""

    def check(data: bytes) -> None:
        assert b"step\xff" not in data and data.count(b"\n") < 30

    one = Surface(check, lambda: [b"step 1\nstep 2\n"])
    monkeypatch.setattr(run, "OUT", tmp_path)
    for tried, data in enumerate(run.inputs(one.seeds(), random.Random(3), one.length)):
        try:
            run.guarded(check, data)
        except AssertionError:
            break
        assert tried < 50_000
    path = run.keep("planted", data)
    assert path.read_bytes() == data
    with pytest.raises(AssertionError):
        check(path.read_bytes())


def test_an_input_that_takes_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is ended, too."""

    def check(data: bytes) -> None:
        while True:
            pass

    monkeypatch.setattr(run, "INPUT_S", 0.2)
    with pytest.raises(run.TooLong):
        run.guarded(check, b"")


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A table with the inputs of each surface; the seed is printed."""
    assert run.each(["screen", "kernel_files"], 2.0, 5) == 0
    out = capsys.readouterr().out
    assert ("seed 5" in out, out.count("clean"), sys.executable != "") == (True, 2, True)
