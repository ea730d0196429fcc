"""Are the rules' weights right? A fit of all of them to labelled incidents, with held-out folds: part of `make calibrate`.

Each incident is a choice between its findings and "nothing is certain" (log-odds 0); the accepted causes should win where readers
could decide, nothing where they could not. Some 240 weights and 48 priors against a hundred-odd incidents can be fitted only near
values that are known otherwise: the fit is pulled to the rules' own weights (a ridge of strength L), and L is chosen by the loss on
folds that it has not seen. What wins must be better than the rules' own by more than the standard error, lose no right verdict,
claim nothing undecidable, and leave every rule its own samples; or the rules' own weights stay.
"""

from __future__ import annotations

import functools
import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rlhfdoctor.diagnose import analyze, gather
from rlhfdoctor.engine.catalogue import FITTED, load_rules, rules_folder
from rlhfdoctor.engine.rank import holding
from rlhfdoctor.engine.schema import Rule, read_rule
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.selftest import check_rules
from rlhfdoctor.session import Session
from tests.exam.cases import Case, all_cases
from tests.exam.changes import copy_without

STRENGTHS = (0.3, 1.0, 3.0, 10.0, 30.0, math.inf)
SOURCES = ("kernel log", "trace", "configuration")
FOLDS = 10
_ROUNDS, _STEP = 60, 0.1


@dataclass(frozen=True)
class Choice:
    """One incident: the conditions that hold for each rule that applies, and which rules are right (none: undecidable)."""

    name: str
    features: dict[str, tuple[float, ...]]
    right: frozenset[str]


def collect() -> list[Choice]:
    """All labelled incidents that are there."""
    found = []
    for case in all_cases():
        if case.kind not in ("decidable", "undecidable"):
            continue
        with Session([str(path) for path in case.files]) as session:
            _, _, facts = gather(session)
        features = {rule.id: signs for rule in _rules() if (signs := holding(rule, facts)) is not None}
        right = frozenset(case.accept) & set(features) if case.kind == "decidable" else frozenset()
        if case.kind == "undecidable" or right:
            found.append(Choice(case.name, features, right))
    return found


Weights = dict[str, list[float]]
"""Rule -> prior, then the weights of its conditions."""


@functools.cache
def _rules() -> tuple[Rule, ...]:
    """The rules with the weights that stand in their own files."""
    return tuple(read_rule(path.parent) for path in sorted(rules_folder().glob("*/rule.yaml")))


def own_weights() -> Weights:
    """As the rules' own files have them."""
    return {r.id: [r.prior, *(p.weight for p in r.speaks_for), *(p.weight for p in r.speaks_against)] for r in _rules()}


def score(weights: Weights, rule: str, signs: Sequence[float]) -> float:
    """Log-odds of a rule."""
    row = weights[rule]
    return row[0] + sum(w * sign for w, sign in zip(row[1:], signs, strict=True))


def loss_of(weights: Weights, choice: Choice) -> float:
    """Negative log-likelihood of what the readers said."""
    scores = {rule: score(weights, rule, signs) for rule, signs in choice.features.items()}
    top = max(0.0, *scores.values()) if scores else 0.0
    whole = math.exp(-top) + sum(math.exp(s - top) for s in scores.values())
    right = sum(math.exp(scores[rule] - top) for rule in choice.right) if choice.right else math.exp(-top)
    return -math.log(max(right / whole, 1e-12))


def fit(choices: Sequence[Choice], strength: float) -> Weights:
    """Gradient descent from the rules' own weights, pulled back to them; weights keep their sign."""
    own = own_weights()
    if math.isinf(strength):
        return own
    now = {rule: list(row) for rule, row in own.items()}
    for _ in range(_ROUNDS):
        slope = {rule: [strength * (w - o) for w, o in zip(row, own[rule], strict=True)] for rule, row in now.items()}
        for choice in choices:
            scores = {rule: score(now, rule, signs) for rule, signs in choice.features.items()}
            top = max(0.0, *scores.values()) if scores else 0.0
            shares = {rule: math.exp(s - top) for rule, s in scores.items()}
            whole = math.exp(-top) + sum(shares.values())
            right = sum(shares[rule] for rule in choice.right)
            for rule, signs in choice.features.items():
                push = shares[rule] / whole - (shares[rule] / right if rule in choice.right else 0.0)
                slope[rule][0] += push
                for place, sign in enumerate(signs, 1):
                    slope[rule][place] += push * sign
        for rule, row in now.items():
            for place, push in enumerate(slope[rule]):
                row[place] -= _STEP / (1 + 0.1 * strength) * push
                if place:
                    row[place] = max(row[place], 0.0)
    return now


def held_out(choices: Sequence[Choice], strength: float) -> tuple[list[float], int, int]:
    """Loss of each incident under weights that were fitted without it; right verdicts; verdicts on what nobody could decide."""
    order = list(range(len(choices)))
    random.Random(7).shuffle(order)
    losses = [0.0] * len(choices)
    right = claimed = 0
    for fold in range(FOLDS):
        unseen = set(order[fold::FOLDS])
        weights = fit([c for i, c in enumerate(choices) if i not in unseen], strength)
        for i in unseen:
            losses[i] = loss_of(weights, choices[i])
            best, rule = max((score(weights, rule, signs), rule) for rule, signs in choices[i].features.items()) if choices[i].features else (-1.0, "")
            right += best >= 0 and rule in choices[i].right
            claimed += best >= 0 and not choices[i].right
    return losses, right, claimed


def report() -> tuple[str, list[float], list[Choice]]:
    """A table of held-out losses by strength, the strengths that earn their place (best first), and the incidents.

    They do if they lower the loss by more than its standard error, lose no right verdict and claim nothing undecidable.
    """
    choices = collect()
    base, base_right, base_claimed = held_out(choices, math.inf)
    lines = [
        f"weights: {len(choices)} incidents, {sum(len(row) for row in own_weights().values())} weights and priors", "",
        "| pull to the rules' own | held-out loss | gain | standard error | right verdicts | undecidable claimed |", "|---:|---:|---:|---:|---:|---:|",
    ]  # fmt: skip
    good: list[tuple[float, float]] = []
    for strength in STRENGTHS:
        losses, right, claimed = held_out(choices, strength)
        gains = [b - one for b, one in zip(base, losses, strict=True)]
        mean = sum(gains) / len(gains)
        error = math.sqrt(sum((g - mean) ** 2 for g in gains) / len(gains) / max(len(gains) - 1, 1))
        lines.append(f"| {strength:g} | {sum(losses) / len(losses):.3f} | {mean:+.3f} | {error:.3f} | {right} | {claimed} |")
        if mean > error and right >= base_right and claimed <= base_claimed:
            good.append((-mean, strength))
    return "\n".join([*lines, ""]), [strength for _, strength in sorted(good)], choices


def adopt(strengths: Sequence[float], choices: Sequence[Choice]) -> float:
    """Writes the first of these fits that takes nothing away: every rule passes its own samples, every incident keeps its verdict.

    Without one the rules' own weights stay.
    """
    (rules_folder() / FITTED).unlink(missing_ok=True)
    load_rules.cache_clear()
    before = _verdicts()
    for strength in strengths:
        write(fit(choices, strength))
        load_rules.cache_clear()
        if not check_rules(None)[0] and not before - _verdicts():
            return strength
    (rules_folder() / FITTED).unlink(missing_ok=True)
    load_rules.cache_clear()
    return math.inf


def _verdicts() -> set[str]:
    """Labelled incidents whose verdict is right, whole and with one kind of source left out.

    Right is an accepted cause first, or `undecided` where nobody could decide; with a source left out `undecided` is right, too.
    """
    found = set()
    for case in all_cases():
        if case.kind not in ("decidable", "undecidable"):
            continue
        if _is_right(case, [str(path) for path in case.files], case.kind == "undecidable"):
            found.add(case.name)
        for dropped in SOURCES:
            with tempfile.TemporaryDirectory() as folder:
                if copy_without(case.files, Path(folder), dropped) and _is_right(case, [folder], True):
                    found.add(f"{case.name} without {dropped}")
    return found


def _is_right(case: Case, paths: list[str], undecided_is: bool) -> bool:
    try:
        incident = analyze(paths)
    except DoctorError:
        return False
    best = incident.best
    return best is not None and best.cause in case.accept if incident.verdict == "cause" else undecided_is


def write(weights: Weights) -> None:
    """rules/weights.yaml; a rule that no incident touched keeps its own and has no row."""
    own = own_weights()
    rows = {rule: [round(w, 2) for w in row] for rule, row in weights.items() if [round(w, 2) for w in row] != [round(w, 2) for w in own[rule]]}
    note = "# Prior and weights (for, then against) of each rule as `make calibrate` fitted them, pulled to those of rule.yaml; see tests/exam/weights.py.\n"
    text = "".join(f"{rule}: [{', '.join(f'{w:g}' for w in row)}]\n" for rule, row in sorted(rows.items()))
    (rules_folder() / FITTED).write_text(note + text)
