"""A part of the evidence that fails hides no other, and no bug hides in a test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.evidence import collect
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.i18n.message import NOTHING
from rlhfdoctor.types import Evidence

RUN = str(Path(__file__).resolve().parents[2] / "samples/ray-cgroup-kill/run")


def find_broken(case: Case) -> Iterator[Evidence]:
    """A bug of our own."""
    yield Evidence(name="broken.first", value=1, says=NOTHING)
    yield Evidence(name="broken.second", value=len(case.no_such_field), says=NOTHING)  # type: ignore[attr-defined]


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """One part of the evidence has a bug."""
    monkeypatch.setattr(collect, "FINDERS", (find_broken, *collect.FINDERS))


@pytest.mark.usefixtures("broken")
def test_a_bug_is_an_error_in_tests() -> None:
    """As under RLHFDOCTOR_DEBUG, which the tests set."""
    with pytest.raises(AttributeError, match="no_such_field"):
        analyze([RUN])


@pytest.mark.usefixtures("broken")
def test_a_bug_is_a_gap_for_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The verdict rests on what the other parts found."""
    monkeypatch.delenv("RLHFDOCTOR_DEBUG")
    incident = analyze([RUN])
    assert incident.verdict == "cause" and [str(gap.what) for gap in incident.gaps] == ["evidence find_broken"]
