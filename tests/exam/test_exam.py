"""The exam on this project's own samples: changes that may not matter, sources that may be missing."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.exam.cases import Case, sample_cases
from tests.exam.changes import TEXT_CHANGES, copy_changed, copy_without, is_recorded
from tests.exam.exam import DROPPED, changed, diagnose, said

CASES = list(sample_cases())
LOGS = [case for case in CASES if not is_recorded(case.files)]


@cache
def answer(case_name: str) -> tuple[str, str | None]:
    """Verdict and cause with everything at hand."""
    return said(diagnose([str(path) for path in next(c for c in CASES if c.name == case_name).files]))


@pytest.mark.sweep
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_changes_that_may_not_matter(case: Case) -> None:
    """Other hosts, ranks, zones and file orders, noise, folded lines, tiny blocks: the same answer."""
    answers = dict(changed(case))
    assert answers == dict.fromkeys(answers, answer(case.name))


@pytest.mark.sweep
@pytest.mark.parametrize("dropped", DROPPED)
def test_less_evidence_never_turns_into_a_wrong_verdict(dropped: str, tmp_path: Path) -> None:
    """Without one kind of source the verdict stays, becomes undecided or healthy, or is another accepted cause."""
    wrong, count = {}, 0
    for case in CASES:
        folder = tmp_path / case.name
        folder.mkdir()
        if not copy_without(case.files, folder, dropped):
            continue
        incident = diagnose([str(folder)])
        count += incident is not None
        after = said(incident)
        if after[1] is not None and after != answer(case.name) and after[1] not in case.accept:
            wrong[case.name] = (answer(case.name), after)
    assert (wrong, count >= 5) == ({}, True)


@pytest.mark.parametrize("name", TEXT_CHANGES)
def test_a_change_changes_something(name: str, tmp_path: Path) -> None:
    """Each change alters the text of some sample; one that never does proves nothing."""
    altered = 0
    for case in LOGS:
        copy_changed(case.files, tmp_path / case.name, TEXT_CHANGES[name])
        for path in case.files:
            for inner in path.rglob("*"):
                if (
                    inner.is_file()
                    and (tmp_path / case.name / inner.relative_to(path)).read_bytes() != inner.read_bytes()
                ):
                    altered += 1
    assert altered > 0
