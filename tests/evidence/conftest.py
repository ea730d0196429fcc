"""The facts fixture of the evidence tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.evidence.collect import find_evidence
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.reading import make_case, read_all
from rlhfdoctor.types import Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Name -> value of all evidence of some files."""

    def run(files: Mapping[str, str]) -> dict[str, Value]:
        for name, text in files.items():
            (tmp_path / name).write_text(text)
        reading = read_all([str(tmp_path)])
        case = make_case(reading.events, reading, None)
        found = find_evidence(case, find_death(case), reading.gaps)
        assert reading.gaps == []
        return {name: evidence.value for name, evidence in found.items()}

    return run
