"""Odds of a finding -> the share of such findings that were right, by a curve fitted to labelled incidents.

The curve is `calibration.yaml` in the catalogue's folder: the temperature at which findings compete and the
weight of something else (rivals.py), and a
few knots with straight lines between them, 0.5 at 0 for first findings. `make calibrate` fits both again. Without it
the confidence is the logistic of the odds.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from rlhfdoctor.errors import RuleError
from rlhfdoctor.places import rules_folder

FILE = "calibration.yaml"
_SURE = 0.99
"""No finding is more certain, however many weights add up."""

Knots = Sequence[tuple[float, float]]
"""(log-odds, share that was right), both rising."""


@dataclass(frozen=True, slots=True)
class Curve:
    """How odds become confidences."""

    knots: Knots = ()
    behind: Knots = ()
    """The same for findings behind the first: what they say may be true and still not be what has to change."""
    temperature: float = 1.0
    """What scores are divided by before they compete: below 1, a distance between two findings counts for more."""
    something_else: float = 1.0
    """Weight of what no rule knows, against a finding whose evidence speaks as much for as against it (weight 1)."""


@functools.cache
def load_curve(folder: Path | None = None) -> Curve:
    """The fitted curve of a catalogue; without a file the logistic of the rules' own log-odds.

    Raises:
        RuleError: the file is no rising curve.
    """
    path = (folder or rules_folder()) / FILE
    if not path.exists():
        return Curve()
    try:
        raw = yaml.safe_load(path.read_text())
        first, behind = ([(float(x), float(y)) for x, y in raw[name]] for name in ("knots", "behind"))
        weights = (float(raw.get(name, 1.0)) for name in ("temperature", "something_else"))
        curve = Curve(first, behind, *weights)
    except (OSError, KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise RuleError(f"{path}: wants 'knots' and 'behind: [[log-odds, share], ...]' ({error})") from None
    for knots in (curve.knots, curve.behind):
        rising = all(one[0] < two[0] and one[1] <= two[1] for one, two in itertools.pairwise(knots))
        if not rising or len(knots) < 2 or knots[0][1] < 0 or knots[-1][1] > 1:
            raise RuleError(f"{path}: 'knots' and 'behind' must rise and stay between 0 and 1")
    if (0.0, 0.5) not in curve.knots:
        raise RuleError(f"{path}: 'knots' must be 0.5 at 0")
    if not (0.1 <= curve.temperature <= 10 and 0.1 <= curve.something_else <= 10):
        raise RuleError(f"{path}: 'temperature' and 'something_else' must lie between 0.1 and 10")
    return curve


def confidence(score: float, knots: Knots) -> float:
    """The share that was right among findings of this score.

    >>> confidence(0.0, ()), confidence(1.0, [(-1, 0.1), (0, 0.5), (2, 0.9)])
    (0.5, 0.7)
    """
    if not knots:
        return round(min(1 / (1 + math.exp(-score)), _SURE), 2)
    place = bisect_right([x for x, _ in knots], score)
    if place == 0 or place == len(knots):
        return round(min(knots[max(place - 1, 0)][1], _SURE), 2)
    (x0, y0), (x1, y1) = knots[place - 1], knots[place]
    return round(min(y0 + (y1 - y0) * (score - x0) / (x1 - x0), _SURE), 2)
