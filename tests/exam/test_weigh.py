"""The fit of the rules' weights: it finds a weight that the files have wrong, and leaves one alone that they have right."""

from __future__ import annotations

import pytest

pytest.importorskip("sklearn", reason="needs scikit-learn (make test installs it)")

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.engine.catalogue import load_rules
from tests.exam.cases import Case
from tests.exam.weigh import Row, Seen, fit, move


def incidents(part: str, score: float, share: float) -> list[Seen]:
    """A hundred incidents with one rule, of which one part fired; its cause is right in a share of them."""
    return [
        Seen(
            Case("", f"round {number % 4}", "decidable", "none", (), (), {}),
            Facts(events={}, evidence={}, settings={}),
            True,
            (Row("a", score, ((f"a: {part}", 1),), number * 37 % 100 < 100 * share),),
        )
        for number in range(100)
    ]


def test_finds_what_decides() -> None:
    """By the files' score the cause is right in 12 %, 50 % and 88 %, and so it is where one part fires; the other one is worth 2 more."""
    shares = {-2.0: 0.12, 0.0: 0.50, 2.0: 0.88, 4.0: 0.98}
    idle = [one for score in (-2.0, 0.0, 2.0) for one in incidents("idle", score, shares[score])]
    telling = [one for score in (-2.0, 0.0, 2.0) for one in incidents("telling", score, shares[score + 2])]
    moves, _ = fit([*idle, *telling])
    assert moves["a: telling"] - moves["a: idle"] == pytest.approx(2.0, abs=0.3)


def test_no_part_changes_sides() -> None:
    """A weight ends at 0; a prior moves freely."""
    rule = next(rule for rule in load_rules() if rule.speaks_against)
    part = rule.speaks_against[0]
    moved = move([rule], {f"{rule.id}: {part.says}": -9.0, f"{rule.id}: prior": -9.0})[0]
    assert moved.speaks_against[0].weight == 0.0
    assert moved.prior == rule.prior - 9.0
    assert moved.speaks_for == rule.speaks_for
