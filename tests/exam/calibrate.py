"""Fits the curve from log-odds to confidence: `make calibrate` (python -m tests.exam.calibrate --write).

Each labelled incident gives one point: the score of its first finding, and whether that is an accepted cause; for incidents that two
readers could not decide, claiming anything is wrong. A knot's height is the share that was right near it (weights fall linearly to the
next knot), with the rules' own logistic counted as `STRENGTH` observations; heights rise, and 0 stays at 0.5, so that the fit changes
how sure the doctor says it is, never what it says. The reliability is told for curves that never saw the incident (ten folds).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path

import yaml

from rlhfdoctor.core.diagnose import analyze
from rlhfdoctor.engine.calibrate import FILE, confidence, load_knots
from tests.exam.cases import ROOT, all_cases

PLACES = (-4.0, -2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 4.0)
STRENGTH = 3.0
FOLDS = 10
Point = tuple[float, bool, str]
"""Score, whether it was right, and the incident's kind and source."""


def collect() -> tuple[list[Point], list[Point]]:
    """One point an incident for its first finding; and one for each other finding that is no echo."""
    first: list[Point] = []
    behind: list[Point] = []
    for case in all_cases():
        if case.kind not in ("decidable", "undecidable"):
            continue
        roots = [f for f in analyze([str(path) for path in case.files]).findings if f.explained_by is None]
        for place, finding in enumerate(roots):
            right = case.kind == "decidable" and finding.cause in case.accept
            (behind if place else first).append((finding.score, right, f"{case.kind} {case.source}"))
    return first, behind


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
    below = _rising(knots[:zero], 0.01, 0.5)
    above = _rising(knots[zero + 1 :], 0.5, 0.99)
    return [(x, round(y, 3)) for x, y in zip(PLACES, [*below, 0.5, *above])]


def _rising(heights: Sequence[float], least: float, most: float) -> list[float]:
    """The nearest rising row, within bounds."""
    from sklearn.isotonic import IsotonicRegression

    return [float(y) for y in IsotonicRegression(y_min=least, y_max=most).fit_transform(range(len(heights)), heights)]


def reliability(told: Sequence[tuple[float, bool]]) -> tuple[float, list[str]]:
    """Expected calibration error over five bins, and a row for each bin."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for share, hit in told:
        bins.setdefault(min(int(share * 5), 4), []).append((share, hit))
    rows, error = [], 0.0
    for index, inside in sorted(bins.items()):
        mean, right = sum(s for s, _ in inside) / len(inside), sum(h for _, h in inside) / len(inside)
        error += abs(mean - right) * len(inside)
        rows.append(f"| {index / 5:.1f} to {index / 5 + 0.2:.1f} | {len(inside)} | {mean:.2f} | {right:.2f} |")
    return error / max(len(told), 1), rows


def held_out(points: Sequence[Point]) -> list[tuple[float, bool, str]]:
    """What curves say of points that they were not fitted to."""
    from sklearn.model_selection import KFold

    told = []
    for seen, unseen in KFold(FOLDS, shuffle=True, random_state=7).split(points):
        knots = fit([points[i] for i in seen])
        told += [(confidence(points[i][0], knots), points[i][1], points[i][2]) for i in unseen]
    return told


def table() -> tuple[str, dict[str, list[list[float]]], int]:
    """The report, the fitted curves, and the number of shared incidents."""
    points, others = collect()
    knots, behind = fit(points), fit(others, even=False)
    lines = [f"{len(points)} incidents, {sum(hit for _, hit, _ in points)} with a right first finding", ""]
    for name, told in (
        ("held out, all", held_out(points)),
        (
            "held out, decidable shared incidents (as score.py counts)",
            [p for p in held_out(points) if p[2] == "decidable shared"],
        ),
        ("fitted, all", [(confidence(score, knots), hit, kind) for score, hit, kind in points]),
        ("findings behind the first, fitted", [(confidence(score, behind), hit, kind) for score, hit, kind in others]),
        ("the curve in use, all", [(confidence(score, load_knots()), hit, kind) for score, hit, kind in points]),
    ):
        error, rows = reliability([(share, hit) for share, hit, _ in told])
        lines += [
            f"{name}: calibration error {error:.3f}",
            "",
            "| told | incidents | mean told | right |",
            "|---|---:|---:|---:|",
            *rows,
            "",
        ]
    curves = {"knots": [list(knot) for knot in knots], "behind": [list(knot) for knot in behind]}
    return "\n".join(lines), curves, sum(1 for *_, kind in points if kind.endswith("shared"))


def main() -> int:
    text, curves, shared = table()
    sys.stdout.write(text)
    if "--write" in sys.argv:
        if not shared:
            sys.stderr.write("the shared incidents are not beside this checkout: nothing written\n")
            return 1
        note = "# Confidence by log-odds, fitted to labelled incidents by `make calibrate`; 0.5 at 0 by construction, for first findings.\n"
        (ROOT / "rules" / FILE).write_text(note + yaml.safe_dump(curves, default_flow_style=None, sort_keys=False))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    sys.exit(main())
