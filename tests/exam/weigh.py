"""Fits the rules' weights to labelled incidents and scores them on rounds held out: `make weigh` (python -m tests.exam.weigh --write).

A row is a rule whose requirements an incident meets, and whether its cause is right there. A logistic regression (scikit-learn) sees the
score by the weights of the rules' files, which is not pulled, and one column for each part that fired and for each rule's prior, which
are pulled to 0: what it learns is how far a weight should move from the one in the file. The pull is the one under which rounds left
out within the training set are most likely. Each round in turn is left out, and the doctor is asked with the weights of the others.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rlhfdoctor.conditions.match import Facts, ask
from rlhfdoctor.core.diagnose import gather
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.rank import diagnose
from rlhfdoctor.engine.rivals import is_decided
from rlhfdoctor.engine.schema import Rule
from tests.exam.cases import ROOT, Case, all_cases

PAGE = ROOT / "tests" / "exam" / "WEIGHTS.md"
PULLS = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Candidates for the strength of the data against the files' weights (scikit-learn's C)."""
FREE = 100.0
"""The files' score is a column this large, so that its own coefficient is hardly pulled."""
MOVED = 0.25
"""A weight that moves this far (log-odds) is counted as changed; the files' weights are given to a tenth."""
SHOWN = 12
"""Moves that the page lists."""


@dataclass(frozen=True)
class Row:
    """A rule whose requirements an incident meets."""

    cause: str
    score: float
    """Log-odds by the files' weights."""
    parts: tuple[tuple[str, int], ...]
    """Parts that fired, and whether they add (1) or take away (-1)."""
    right: bool


@dataclass(frozen=True)
class Seen:
    """An incident as the rules see it."""

    case: Case
    facts: Facts
    can_decide: bool
    """Whether it has a death that is tied to the run."""
    rows: tuple[Row, ...]


Moves = Mapping[str, float]
"""How far each part's weight and each rule's prior moves, by its name (log-odds)."""


def see(case: Case, rules: Sequence[Rule]) -> Seen:
    """Reads an incident once; weights change nothing of what is read here."""
    with Session([str(path) for path in case.files]) as session:
        death, _, facts, _ = gather(session)
        can_decide = death is not None and not any(event is death.event for event in session.untied)
    accept = case.accept if case.kind == "decidable" else ()
    return Seen(case, facts, can_decide, tuple(_rows(rules, facts, accept)))


def _rows(rules: Sequence[Rule], facts: Facts, accept: Sequence[str]) -> Iterable[Row]:
    for rule in rules:
        if ask(rule.requires, facts).value is not True or any(ask(r.when, facts).value for r in rule.rules_out):
            continue
        parts = [(f"{rule.id}: prior", 1)]
        score = rule.prior
        for sign, group in ((1, rule.speaks_for), (-1, rule.speaks_against)):
            for part in group:
                if ask(part.when, facts).value:
                    parts.append((f"{rule.id}: {part.says}", sign))
                    score += sign * part.weight
        yield Row(rule.id, score, tuple(parts), rule.id in accept)


def fit(incidents: Sequence[Seen]) -> tuple[Moves, float]:
    """The moves, and the pull under which rounds left out within these incidents are most likely."""
    import numpy as np
    from sklearn.feature_extraction import DictVectorizer
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.model_selection import GroupKFold

    rows = [(row, one.case.source) for one in incidents for row in one.rows]
    columns = DictVectorizer()
    table = columns.fit_transform([{"": row.score * FREE, **dict(row.parts)} for row, _ in rows])
    right = np.array([row.right for row, _ in rows])
    groups = [source for _, source in rows]
    folds = list(GroupKFold(min(5, len(set(groups)))).split(table, right, groups))
    model = LogisticRegressionCV(
        Cs=PULLS, cv=folds, scoring="neg_log_loss", max_iter=5000, use_legacy_attributes=False, l1_ratios=(0.0,)
    ).fit(table, right)
    found = dict(zip(columns.get_feature_names_out(), model.coef_[0]))
    per_odds = found.pop("") * FREE
    return {name: float(value / per_odds) for name, value in found.items()}, float(model.C_)


def move(rules: Sequence[Rule], moves: Moves) -> list[Rule]:
    """The rules with other weights; none changes sides."""

    def moved(rule: Rule, group: str) -> tuple[object, ...]:
        return tuple(
            replace(part, weight=max(0.0, part.weight + moves.get(f"{rule.id}: {part.says}", 0.0)))
            for part in getattr(rule, group)
        )

    return [
        replace(
            rule,
            prior=rule.prior + moves.get(f"{rule.id}: prior", 0.0),
            speaks_for=moved(rule, "speaks_for"),
            speaks_against=moved(rule, "speaks_against"),
        )
        for rule in rules
    ]


def score(incidents: Sequence[Seen], rules: Sequence[Rule]) -> Counter[str]:
    """How often the doctor is right (`top1`, `decided`), wrong in a verdict, and silent where two readers could not decide."""
    counts: Counter[str] = Counter()
    for one in incidents:
        findings, _ = diagnose(rules, one.facts, [])
        decided = one.can_decide and is_decided(findings)
        right = bool(findings) and findings[0].cause in one.case.accept
        if one.case.kind == "decidable":
            counts.update({"decidable": 1, "top1": right, "decided": right and decided, "wrong": decided and not right})
        else:
            counts.update({"undecidable": 1, "abstained": not decided})
    return counts


def held_out(incidents: Sequence[Seen], rules: Sequence[Rule]) -> list[tuple[str, float, Counter[str], Counter[str]]]:
    """For each source of incidents the pull, the figures by the files' weights, and by weights fitted to the other sources."""
    found = []
    for source in dict.fromkeys(one.case.source for one in incidents):
        moves, pull = fit([one for one in incidents if one.case.source != source])
        unseen = [one for one in incidents if one.case.source == source]
        found.append((source, pull, score(unseen, rules), score(unseen, move(rules, moves))))
    return found


def collect(cases: Iterable[Case], rules: Sequence[Rule]) -> list[Seen]:
    """Those that can be right or wrong."""
    return [see(case, rules) for case in cases if case.kind in ("decidable", "undecidable")]


def _cells(before: Counter[str], after: Counter[str]) -> str:
    pairs = (("top1", "decidable"), ("decided", "decidable"), ("wrong", "decidable"), ("abstained", "undecidable"))
    return " | ".join(f"{before[name]} → {after[name]} of {before[of]}" for name, of in pairs)


def page(incidents: Sequence[Seen], rules: Sequence[Rule]) -> str:
    """The table of held-out rounds and of the weights that would move farthest."""
    rows = held_out(incidents, rules)
    before, after = (sum((row[index] for row in rows), Counter()) for index in (2, 3))
    moves, pull = fit(incidents)
    far = sorted(moves.items(), key=lambda pair: -abs(pair[1]))
    return "\n".join(
        [
            "# Weights fitted to labelled incidents, on rounds held out",
            "",
            f"`make weigh`; {len(incidents)} incidents, {sum(len(one.rows) for one in incidents)} rules that apply, {len(moves)} weights and priors that can be fitted. In each cell: by the",
            "rules' own weights → by weights fitted to the other rows. The rules had been repaired after each of these rounds; what both say of rounds that no rule had seen is in ROUNDS.md.",
            "",
            "| held out | pull (C) | right first | and decided | a wrong verdict | abstained |",
            "|---|---:|---|---|---|---|",
            *(f"| {source} | {c:g} | {_cells(own, fitted)} |" for source, c, own, fitted in rows),
            f"| **all** | | {_cells(before, after)} |",
            "",
            f"Fitted to all of them (C {pull:g}), {sum(abs(value) >= MOVED for value in moves.values())} of {len(moves)} would move by {MOVED} or more (log-odds), the farthest:",
            "",
            *(f"- {value:+.2f}: {name}" for name, value in far[:SHOWN]),
            "",
        ]
    )


def main() -> int:
    rules, cases = load_rules(), all_cases()
    text = page(collect(cases, rules), rules)
    sys.stdout.write(text)
    if "--write" in sys.argv:
        if not any(case.source == "shared" for case in cases):
            sys.stderr.write("the shared incidents are not beside this checkout: nothing written\n")
            return 1
        PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
