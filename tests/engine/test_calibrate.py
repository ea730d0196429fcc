"""The curve of confidences: its file, its shape, and the fit."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from rlhfdoctor.engine.calibrate import FILE, Curve, confidence, load_curve
from rlhfdoctor.engine.rivals import compete, is_decided, shares
from rlhfdoctor.errors import RuleError
from rlhfdoctor.i18n.message import NOTHING
from rlhfdoctor.places import rules_folder
from rlhfdoctor.types import Finding
from rlhfdoctor.vocabulary.run import Axis
from tests.exam.calibrate import PLACES, fit, reliability

BEHIND = "\nbehind: [[0, 0.2], [1, 0.5]]"


def finding(cause: str, score: float, explained_by: str | None = None, axis: Axis = "consumer") -> Finding:
    """A finding of a score."""
    return Finding(
        cause=cause,
        title=NOTHING,
        summary=NOTHING,
        confidence=confidence(score, load_curve().knots),
        score=score,
        odds=score,
        explained_by=explained_by,
        axis=axis,
    )


def test_the_curve_in_use() -> None:
    """It rises, stays below certainty, and leaves the rules' own even odds where they are."""
    knots = load_curve().knots
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
        "knots: [[0, 0.5], [1, 0.6]]",
        "knots: [[0, 0.5]]" + BEHIND,
        "knots: [[0, 0.9], [1, 0.2]]" + BEHIND,
        "knots: [[1, 0.5], [0, 0.6]]" + BEHIND,
        "knots: [[0, a]]" + BEHIND,
        "knots: [[-1, 0.1], [0, 0.2], [1, 0.9]]" + BEHIND,
        "knots: [[0, 0.5], [1, 0.6]]" + BEHIND + "\ntemperature: 0",
        "knots: [[0, 0.5], [1, 0.6]]\nbehind: [[0, 0.5], [1, 0.2]]",
        "}",
    ],
)
def test_a_bad_curve_is_named(text: str, tmp_path: Path) -> None:
    """The file and what it wants."""
    (tmp_path / FILE).write_text(text)
    with pytest.raises(RuleError, match=FILE):
        load_curve(tmp_path)


def test_a_catalogue_without_a_curve(tmp_path: Path) -> None:
    """Its confidence is the logistic."""
    assert (load_curve(tmp_path), confidence(2.0, ())) == (Curve(), 0.88)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([finding("host-a", 2.0), finding("host-b", 2.0)], False),
        ([finding("host-a", 2.0), finding("host-b", 0.5)], True),
        ([finding("host-a", 2.0), finding("host-b", 2.0, axis="limit")], True),
        ([finding("host-a", 2.0), finding("gpu-b", 2.0, axis="limit")], False),
        ([finding("host-a", 2.0), finding("host-b", 2.0, explained_by="host-a")], True),
        ([finding("host-a", 1.0), *(finding(f"host-{n}", 0.0) for n in range(9))], False),
        ([finding("host-a", -0.5)], False),
        ([], False),
    ],
)
def test_rivals(rows: list[Finding], expected: bool) -> None:
    """Equal ones of an axis, or of two kinds, leave it undecided; other axes, echoes and a clear distance do not."""
    assert is_decided(compete(rows, Curve())) is expected


def test_shares_of_an_axis_and_something_else_add_up_to_one() -> None:
    """With even odds for each of two, both have a third: the last third is something else."""
    rows = [finding("host-a", 0.0), finding("host-b", 0.0), finding("host-c", 3.0, axis="limit"), finding("gpu-d", 1.0)]
    assert [(one.cause, one.share) for one in shares(rows, "consumer", Curve())] == [("host-a", 0.33), ("host-b", 0.33)]
    assert [one.share for one in shares(rows, "limit", Curve())] == [0.95]


def test_a_lower_temperature_tells_more_apart() -> None:
    """The same distance counts for more."""
    rows = [finding("host-a", 1.0), finding("host-b", 0.7)]
    assert not is_decided(compete(rows, Curve()))
    assert is_decided(compete(rows, Curve(temperature=0.4)))


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
