"""The curve of confidences: its file, its shape, and the fit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rlhfdoctor.engine.calibrate import FILE, confidence, load_knots
from rlhfdoctor.engine.rank import CLOSE_SCORE, is_decided
from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.message import NOTHING
from rlhfdoctor.places import rules_folder
from rlhfdoctor.types import Finding
from tests.exam.calibrate import PLACES, fit, reliability


def finding(cause: str, score: float, explained_by: str | None = None, goes_with: tuple[str, ...] = ()) -> Finding:
    """A finding of a score, with the catalogue's confidence."""
    return Finding(
        cause=cause,
        title=NOTHING,
        summary=NOTHING,
        confidence=confidence(score, load_knots()),
        score=score,
        explained_by=explained_by,
        goes_with=goes_with,
    )


def test_the_curve_in_use() -> None:
    """It rises, stays below certainty, and leaves the rules' own even odds where they are."""
    knots = load_knots()
    heights = [y for _, y in knots]
    assert (heights, dict(knots)[0.0]) == (sorted(heights), 0.5)
    assert heights[0] > 0 and heights[-1] <= 0.99


@pytest.mark.parametrize(
    ("score", "expected"), [(-9.0, 0.1), (-1.0, 0.1), (-0.5, 0.3), (0.0, 0.5), (1.0, 0.75), (9.0, 0.99)]
)
def test_between_the_knots(score: float, expected: float) -> None:
    """Straight lines between, the ends beyond, never above 0.99."""
    assert confidence(score, [(-1.0, 0.1), (0.0, 0.5), (2.0, 1.0)]) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "knots: 3",
        "knots: [[0, 0.5]]",
        "knots: [[0, 0.9], [1, 0.2]]",
        "knots: [[1, 0.5], [0, 0.6]]",
        "knots: [[0, a]]",
        "knots: [[-1, 0.1], [0, 0.2], [1, 0.9]]",
        "}",
    ],
)
def test_a_bad_curve_is_named(text: str, tmp_path: Path) -> None:
    """The file and what it wants."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RuleError, match=FILE):
        load_knots(tmp_path)


def test_a_catalogue_without_a_curve(tmp_path: Path) -> None:
    """Its confidence is the logistic."""
    assert (load_knots(tmp_path), confidence(2.0, ())) == ((), 0.88)


def test_close_roots_are_undecided() -> None:
    """Two sure findings that are equally likely; an echo does not count, a clear distance decides."""
    near = [finding("a", 2.0), finding("b", 2.0 - CLOSE_SCORE / 2)]
    far = [finding("a", 2.0), finding("b", 2.0 - CLOSE_SCORE * 2)]
    echo = [finding("a", 2.0), finding("b", 2.0, explained_by="a")]
    both = [finding("a", 2.0, goes_with=("b",)), finding("b", 2.0)]
    cases = (near, far, echo, both, [finding("a", -0.5)], [], [finding("a", 0.6), finding("b", 0.4)])
    assert [is_decided(rows) for rows in cases] == [False, True, True, True, False, False, True]


def test_fit_follows_the_labels() -> None:
    """Where findings were right the curve rises above the logistic, where they were wrong it falls below; 0 stays."""
    pytest.importorskip("sklearn", reason="needs scikit-learn (make test installs it)")
    right = [(1.0, True, "")] * 20 + [(-1.0, False, "")] * 20
    wrong = [(1.0, False, "")] * 20 + [(-1.0, False, "")] * 20
    for points, compare in ((right, 0.9), (wrong, 0.6)):
        knots = dict(fit(points))
        assert (knots[0.0], knots[1.0] > compare) == (0.5, compare == 0.9)
        assert all(one <= two for one, two in pairwise(knots[place] for place in PLACES))


def test_fit_of_nothing_is_the_logistic() -> None:
    """Without incidents the rules' own odds stand."""
    pytest.importorskip("sklearn", reason="needs scikit-learn (make test installs it)")
    assert dict(fit([]))[1.0] == pytest.approx(0.73, abs=0.01)


def test_reliability() -> None:
    """Inputs 0.9 and right in 8 of 10: an error of 0.1."""
    error, rows = reliability([(0.9, True)] * 8 + [(0.9, False)] * 2)
    assert (round(error, 6), len(rows)) == (0.1, 1)


def test_the_curve_travels_with_the_rules() -> None:
    """It lies beside them, and so in the wheel."""
    assert (rules_folder() / FILE).exists()
