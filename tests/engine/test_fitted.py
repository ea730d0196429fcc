"""Fitted weights: read from the catalogue, pulled to the rules' own, never of another sign."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from rlhfdoctor.engine.catalogue import FITTED, load_rules, read_fitted, rules_folder
from rlhfdoctor.errors import RuleError
from tests.exam.weights import Choice, fit, loss_of, own_weights, score

RULE, RIVAL = "host-leak", "host-pinned-offload"


def catalogue(folder: Path, text: str) -> dict[str, list[float]]:
    for rule in (RULE, RIVAL):
        shutil.copytree(rules_folder() / rule, folder / rule)
    (folder / FITTED).write_text(text)
    return {r.id: [r.prior, *(p.weight for p in r.speaks_for), *(p.weight for p in r.speaks_against)] for r in load_rules(folder)}


def test_a_row_takes_the_place_of_the_rules_own(tmp_path: Path) -> None:
    """Prior, then weights for, then against; a rule without a row keeps its own."""
    own = own_weights()
    row = [round(weight + 0.5, 2) for weight in own[RULE]]
    found = catalogue(tmp_path, f"{RULE}: {row}\n")
    assert (found[RULE], found[RIVAL]) == (row, own[RIVAL])


def test_a_row_for_other_conditions_is_left_out(tmp_path: Path) -> None:
    """A rule whose conditions changed since the fit keeps its own weights until the next one."""
    assert catalogue(tmp_path, f"{RULE}: [1.0, 2.0]\n")[RULE] == own_weights()[RULE]


@pytest.mark.parametrize("text", ["- 1\n- 2\n", "host-leak: much\n", "host-leak: [a, b]\n", "host-leak: [1, 2\n"])
def test_nonsense_is_refused(text: str, tmp_path: Path) -> None:
    """With the file's name and the form that it wants."""
    (tmp_path / FITTED).write_text(text)
    with pytest.raises(RuleError, match=FITTED):
        read_fitted(tmp_path / FITTED)


def choices() -> list[Choice]:
    """Two incidents whose right cause the rules' own weights do not put first."""
    own = own_weights()
    silent = {rule: (0.0,) * (len(own[rule]) - 1) for rule in (RULE, RIVAL)}
    speaking = {**silent, RULE: (1.0, *silent[RULE][1:]), RIVAL: (1.0, *silent[RIVAL][1:])}
    return [Choice("one", speaking, frozenset({RULE})), Choice("two", silent, frozenset())]


def test_a_weaker_pull_fits_better() -> None:
    """Loss falls with the pull; at an endless pull the weights are the rules' own."""
    losses = [sum(loss_of(fit(choices(), strength), choice) for choice in choices()) for strength in (math.inf, 3.0, 0.3)]
    assert losses[0] > losses[1] > losses[2]
    assert fit(choices(), math.inf) == own_weights()


def test_weights_keep_their_sign() -> None:
    """What speaks for a cause never comes to speak against it."""
    fitted = fit(choices() * 20, 0.01)
    assert min(weight for row in fitted.values() for weight in row[1:]) >= 0.0
    assert score(fitted, RULE, choices()[0].features[RULE]) > score(own_weights(), RULE, choices()[0].features[RULE])
