"""A second analysis of the same run proposes nothing more for what was patched; one of a newer run may."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from rlhfdoctor import analyze

Doctor = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[2]
SCALED = ("gpu-micro-batch/fires/sixteen", "gpu-long-sequences/fires/22k-prompts")
"""Samples whose patch is a share of what was set, so that it could be proposed for ever."""


def settings_patched(folder: Path) -> set[str]:
    incident = analyze([str(folder)])
    assert incident.best is not None
    return {p.setting for p in incident.best.patches if p.diff and p.safety != "show"}  # shown ones are never written


@pytest.mark.parametrize("sample", SCALED)
def test_what_was_scaled_is_not_scaled_again(sample: str, tmp_path: Path, doctor: Doctor) -> None:
    """Written once, the same logs ask for nothing more; taken back, they ask again."""
    run = shutil.copytree(ROOT / "rules" / sample, tmp_path / "run")
    (run / "expected.diff").unlink()
    first = settings_patched(run)
    assert first
    best = analyze([str(run)]).best
    assert best is not None
    assert doctor("patch", run, "--write", "--consent", best.cause).exit_code in (0, 1)
    assert settings_patched(run) & first == set()
    assert doctor("patch", run, "--revert").exit_code == 0
    assert settings_patched(run) == first


def test_a_newer_run_may_ask_again(tmp_path: Path, doctor: Doctor) -> None:
    """A log without stamps that was written after the patch is of a run that had it."""
    run = shutil.copytree(ROOT / "rules" / SCALED[0], tmp_path / "run")
    (run / "expected.diff").unlink()
    for log in run.rglob("*.log"):
        log.write_text(re.sub(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d[.,\d]*", "", log.read_text()))
    first = settings_patched(run)
    best = analyze([str(run)]).best
    assert best is not None and best.cause == "gpu-micro-batch"
    assert doctor("patch", run, "--write", "--consent", best.cause).exit_code in (0, 1)
    assert settings_patched(run) & first == set()
    for log in run.rglob("*.log"):
        os.utime(log, (time.time() + 60, time.time() + 60))
    assert settings_patched(run) & first


def test_an_edit_by_hand_makes_the_file_the_users_again(tmp_path: Path, doctor: Doctor) -> None:
    """Who changes a patched file is taken at their word."""
    run = shutil.copytree(ROOT / "rules" / SCALED[0], tmp_path / "run")
    (run / "expected.diff").unlink()
    first = settings_patched(run)
    best = analyze([str(run)]).best
    assert best is not None
    doctor("patch", run, "--write", "--consent", best.cause)
    for script in run.rglob("*.sh"):
        script.write_text(script.read_text() + "# mine\n")
    assert settings_patched(run) & first
