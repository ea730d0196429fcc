"""The facts fixture of the evidence tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.core.session import Session
from rlhfdoctor.evidence.collect import find_evidence
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.types import Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Name -> value of all evidence of some files."""

    def run(files: Mapping[str, str]) -> dict[str, Value]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        with Session([str(tmp_path)]) as session:
            case = session.case
        found = find_evidence(case, find_death(case), session.gaps)
        assert session.gaps == []
        return {name: evidence.value for name, evidence in found.items()}

    return run
