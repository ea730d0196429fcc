"""The steps themselves, where there is a card; each as `make gpu` runs it, its verdict left to TABLE.md."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu.__main__ import has_cuda
from tests.gpu.step import ROOT, Step, steps
from tests.gpu.table import latest, read_lines

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not has_cuda(), reason="no CUDA device")]


@pytest.mark.parametrize("step", steps(), ids=lambda step: step.name)
def test_a_step_ends_with_a_verdict(step: Step, tmp_path: Path) -> None:
    """A fact may differ or be unknown on this machine; a step that dies has a fault."""
    results = tmp_path / "results.jsonl"
    command = [sys.executable, "-m", "tests.gpu", "--only", step.name, "--results", str(results)]
    subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
    assert not latest(read_lines(results))[step.name].get("failed")
