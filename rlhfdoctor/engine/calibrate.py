"""Log-odds of a rule -> the share of such findings that were right, by a curve fitted to labelled incidents.

The curve is `calibration.yaml` in the catalogue's folder: a few knots, straight lines between them, 0.5 at 0.
`make calibrate` fits it again. Without it the confidence is the logistic of the log-odds.
"""

from __future__ import annotations

import functools
import itertools
import math
from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import yaml

from rlhfdoctor.errors import RuleError
from rlhfdoctor.places import rules_folder

FILE = "calibration.yaml"
_SURE = 0.99
"""No finding is more certain, however many weights add up."""

Knots = Sequence[tuple[float, float]]
"""(log-odds, share that was right), both rising."""


@functools.cache
def load_knots(folder: Path | None = None, which: str = "knots") -> Knots:
    """A fitted curve of a catalogue; empty if it has none.

    Args:
        which: `knots` for first findings, `behind` for runners-up: at the same score fewer of them are right.

    Raises:
        RuleError: the file is no rising curve.
    """
    path = (folder or rules_folder()) / FILE
    if not path.exists():
        return ()
    try:
        raw = yaml.safe_load(path.read_text())
        if which != "knots" and which not in raw:
            return ()
        knots = [(float(x), float(y)) for x, y in raw[which]]
    except (OSError, KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        raise RuleError(f"{path}: wants 'knots: [[log-odds, share], ...]' ({error})") from None
    rising = all(one[0] < two[0] and one[1] <= two[1] for one, two in itertools.pairwise(knots))
    even = which != "knots" or (0.0, 0.5) in knots
    if not rising or not even or len(knots) < 2 or knots[0][1] < 0 or knots[-1][1] > 1:
        raise RuleError(f"{path}: '{which}' must rise, stay between 0 and 1, and (for first findings) be 0.5 at 0")
    return tuple(knots)


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
