"""No regular expression grows faster than linearly with its text."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the parser of expressions has another name there", allow_module_level=True)

from tests.expressions import Text, reached, slow

SLOW = (r"(?:a+)+b", r"x *\d*[ \t]*$", rb"a.*b.*c")
CALM = (r"a{1,40}b", r"x {0,8}\d{0,20}[ \t]{0,40}$", r"key=\w+", rb"a[^\n]{0,80}b")


@pytest.mark.sweep
@pytest.mark.parametrize("text", SLOW, ids=range(len(SLOW)))
def test_slow_ones_are_found(text: str | bytes) -> None:
    """Exponential, and quadratic in several ways."""
    assert slow((text, 0)) is not None


@pytest.mark.parametrize("text", CALM, ids=range(len(CALM)))
def test_bounded_ones_are_not(text: str | bytes) -> None:
    """Repeats with bounds."""
    assert slow((text, 0)) is None


@pytest.mark.sweep
def test_what_the_doctor_reads_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow expression that a text reaches is found, one that it does not is not."""
    text = Text("", "ab", "")
    assert reached(text, tmp_path) == []
    monkeypatch.setattr("rlhfdoctor.privacy.secrets.cut_words", lambda words: re.search(r"a.*b.*c", words[0][:4096]))
    monkeypatch.setattr("tests.expressions.WINDOW", 4096)
    assert reached(text, tmp_path) == ["recorder"]


@pytest.mark.sweep
def test_no_expression_of_the_package_is_slow() -> None:
    """In a fresh process, where all of them are compiled under its eyes."""
    done = subprocess.run([sys.executable, "-m", "tests.expressions"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout.split()[0]) > 700, done.stdout
