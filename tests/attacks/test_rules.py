"""A catalogue of `--rules` that another has written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.attacks.conftest import Doctor
from tests.attacks.run import PEAK_MIB

BOMB = "\n".join(f"k{n}: &a{n} [{','.join([f'*a{n - 1}'] * 10) if n else 'x'}]" for n in range(12))


@pytest.mark.parametrize("text", ["", "[" * 100_000, "a" * (60 << 20), BOMB], ids=["pipe", "deep", "large", "aliases"])
def test_a_rule_that_is_none(tmp_path: Path, attack: Doctor, text: str) -> None:
    """A pipe hung for ever, 100,000 brackets were a SIGSEGV, 500 bytes of aliases a gigabyte: one line each."""
    rule = tmp_path / "rules" / "host-x" / "rule.yaml"
    for folder in (rule.parent / "fires" / "a", rule.parent / "silent" / "a"):
        folder.mkdir(parents=True)
    if text:
        rule.write_text(text)
    else:
        os.mkfifo(rule)
    (tmp_path / "run.log").write_text("hello\n")
    done = attack("analyze", tmp_path / "run.log", "--rules", tmp_path / "rules")
    assert done.code == 2 and done.peak_mib < PEAK_MIB
    assert "host-x/rule.yaml" in done.stderr and "Traceback" not in done.stderr
