"""Fits how findings compete, then the curve from odds to confidence: `make calibrate` (python -m tests.exam.calibrate --write).

The temperature (rlhfdoctor/engine/rivals.py) is the one under which all findings are most likely as they were. For the curve
each labelled incident gives one point: the odds of its first finding, and whether that is an accepted cause; for incidents that two
readers could not decide, claiming anything is wrong. A knot's height is the share that was right near it (weights fall linearly to the
next knot), with the rules' own logistic counted as `STRENGTH` observations; heights rise, and 0 stays at 0.5, so that the fit changes
how sure the doctor says it is, never what it says. The reliability is given for curves that never saw the incident (ten folds).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.engine.calibrate import FILE, Curve, confidence, load_curve
from rlhfdoctor.engine.rivals import compete
from rlhfdoctor.types import Finding
from tests.exam.cases import ROOT, all_cases

PLACES = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
STRENGTH = 3.0
WRONG_COST = 2.0
"""How much more a wrong cause costs than one that is not said: people change settings for it and lose a day."""
_UNDECIDED = 0.45
"""Highest confidence of what is no verdict."""
FOLDS = 10
Point = tuple[float, bool, str]
"""Odds, whether it was right, and the incident's kind and source."""


@dataclass(frozen=True)
class Incident:
    """What the rules found in a labelled incident."""

    findings: Sequence[Finding]
    accept: tuple[str, ...]
    """Causes that are right; none where two readers could not decide."""
    label: str
    """Kind and source."""

    def points(self, curve: Curve) -> list[Point]:
        """One for each finding that is no echo, the first finding first."""
        rows = compete(self.findings, curve)
        return [(f.odds, f.cause in self.accept, self.label) for f in rows if f.explained_by is None]


def collect() -> list[Incident]:
    """Every labelled incident that is decidable, or that two readers could not decide."""
    return [
        Incident(
            analyze([str(path) for path in case.files]).findings,
            case.accept if case.kind == "decidable" else (),
            f"{case.kind} {case.source}",
        )
        for case in all_cases()
        if case.kind in ("decidable", "undecidable")
    ]


def fit_rivalry(incidents: Sequence[Incident]) -> Curve:
    """Temperature and weight of something else under which all findings are most likely as they were: right or wrong."""
    from scipy.optimize import minimize
    from sklearn.metrics import log_loss

    if not incidents:
        return Curve()

    def loss(logs: Sequence[float]) -> float:
        curve = Curve(temperature=math.exp(logs[0]), something_else=math.exp(logs[1]))
        points = [point for one in incidents for point in one.points(curve)[:3]]
        shares = [min(max(1 / (1 + math.exp(-odds)), 0.01), 0.99) for odds, _, _ in points]
        costs = [1.0 if right else WRONG_COST for _, right, _ in points]
        return float(log_loss([right for _, right, _ in points], shares, labels=[False, True], sample_weight=costs))

    best = minimize(loss, (0.0, 0.0), method="Nelder-Mead", bounds=((-1.2, 1.2), (-1.2, 1.2))).x
    return Curve(temperature=round(math.exp(best[0]), 2), something_else=round(math.exp(best[1]), 2))


def firsts(incidents: Sequence[Incident], curve: Curve) -> list[Point]:
    """The points of the first findings."""
    return [points[0] for one in incidents if (points := one.points(curve))]


def fit(points: Sequence[Point], even: bool = True) -> list[tuple[float, float]]:
    """The knots of the curve; `even` holds it at 0.5 at 0."""
    knots = []
    for place, here in enumerate(PLACES):
        low = PLACES[place - 1] if place else -math.inf
        high = PLACES[place + 1] if place + 1 < len(PLACES) else math.inf
        total, right = STRENGTH, STRENGTH / (1 + math.exp(-here))
        for score, hit, _ in points:
            near = (
                (score - low) / (here - low)
                if low < score <= here
                else (high - score) / (high - here)
                if here < score < high
                else 0.0
            )
            near = 1.0 if math.isnan(near) or math.isinf(near) else near
            total, right = total + near, right + near * hit
        knots.append(0.5 if even and here == 0 else right / total)
    if not even:
        return [(x, round(y, 3)) for x, y in zip(PLACES, _rising(knots, 0.01, 0.99))]
    zero = PLACES.index(0.0)
    below = _rising(knots[:zero], 0.01, _UNDECIDED)
    above = _rising(knots[zero + 1 :], 0.5, 0.99)
    return [(x, round(y, 3)) for x, y in zip(PLACES, [*below, 0.5, *above])]


def _rising(heights: Sequence[float], least: float, most: float) -> list[float]:
    """The nearest rising row, within bounds."""
    from sklearn.isotonic import IsotonicRegression

    return [float(y) for y in IsotonicRegression(y_min=least, y_max=most).fit_transform(range(len(heights)), heights)]


def reliability(said: Sequence[tuple[float, bool]]) -> tuple[float, list[str]]:
    """Expected calibration error over five bins, and a row for each bin."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for share, hit in said:
        bins.setdefault(min(int(share * 5), 4), []).append((share, hit))
    rows, error = [], 0.0
    for index, inside in sorted(bins.items()):
        mean, right = sum(s for s, _ in inside) / len(inside), sum(h for _, h in inside) / len(inside)
        error += abs(mean - right) * len(inside)
        rows.append(f"| {index / 5:.1f} to {index / 5 + 0.2:.1f} | {len(inside)} | {mean:.2f} | {right:.2f} |")
    return error / max(len(said), 1), rows


def held_out(incidents: Sequence[Incident]) -> list[tuple[float, bool, str]]:
    """What curves say of incidents that they were not fitted to."""
    from sklearn.model_selection import KFold

    said = []
    for seen, unseen in KFold(FOLDS, shuffle=True, random_state=7).split(incidents):
        known = [incidents[i] for i in seen]
        rivalry = fit_rivalry(known)
        knots = fit(firsts(known, rivalry))
        said += [
            (confidence(odds, knots), hit, kind) for odds, hit, kind in firsts([incidents[i] for i in unseen], rivalry)
        ]
    return said


def table() -> tuple[str, dict[str, Any], int]:
    """The report, the fitted curve, and the number of shared incidents."""
    incidents = collect()
    rivalry = fit_rivalry(incidents)
    points = firsts(incidents, rivalry)
    behind = [point for one in incidents for point in one.points(rivalry)[1:]]
    knots, later, used = fit(points), fit(behind, even=False), load_curve()
    unseen = held_out(incidents)
    lines = [
        f"{len(points)} incidents, {sum(hit for _, hit, _ in points)} with a right first finding; temperature {rivalry.temperature}, something else {rivalry.something_else}",
        "",
    ]
    for name, said in (
        ("held out, all", unseen),
        (
            "held out, decidable shared incidents (as score.py counts)",
            [p for p in unseen if p[2] == "decidable shared"],
        ),
        ("fitted, all", [(confidence(odds, knots), hit, kind) for odds, hit, kind in points]),
        (
            "findings behind the first, fitted",
            [(min(confidence(odds, knots), confidence(odds, later)), hit, kind) for odds, hit, kind in behind],
        ),
        (
            "the curve in use, all",
            [(confidence(odds, used.knots), hit, kind) for odds, hit, kind in firsts(incidents, used)],
        ),
    ):
        error, rows = reliability([(share, hit) for share, hit, _ in said])
        lines += [
            f"{name}: calibration error {error:.3f}",
            "",
            "| said | incidents | mean said | right |",
            "|---|---:|---:|---:|",
            *rows,
            "",
        ]
    shared = sum(1 for *_, kind in points if not kind.endswith("samples"))
    return (
        "\n".join(lines),
        {
            "temperature": rivalry.temperature,
            "something_else": rivalry.something_else,
            "knots": [list(knot) for knot in knots],
            "behind": [list(knot) for knot in later],
        },
        shared,
    )


def main() -> int:
    text, curve, shared = table()
    sys.stdout.write(text)
    if "--write" in sys.argv:
        if not shared:
            sys.stderr.write("the shared incidents are not beside this checkout: nothing written\n")
            return 1
        note = "# Confidence by odds, fitted to labelled incidents by `make calibrate`; 0.5 at 0 by construction, for first findings.\n"
        (ROOT / "rules" / FILE).write_text(note + yaml.safe_dump(curve, default_flow_style=None, sort_keys=False))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
