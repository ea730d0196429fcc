"""How a recorded quantity grew: the model that fits, with an uncertainty.

    level      no growth
    slope      steady growth
    staircase  jumps, one a step
    sawtooth   rises and falls; what counts is whether its peaks rise

Slopes are Theil-Sen medians (robust against a third of outliers), their uncertainty the span between
the tenth and ninetieth percentile of the pairwise slopes. Pure functions, standard library only. When a limit will
be reached is forecast in another way (forecast.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_POINTS = 24
"""Theil-Sen is quadratic; this many points give the same result within a few per cent."""
_MOST_FALLS = 0.3
_ALIKE = 2.0
"""A longer window is used as long as its fit is at most this many times worse than the best one."""
_OVERDUE = 2.5
_LEAST_BYTES = 8 << 20
"""Growth below is noise of the allocator and the page cache."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Growth:
    """How a quantity grew."""

    kind: str
    """level, slope, staircase or sawtooth."""
    slope_bytes_per_s: float
    """Of the quantity, or of its peaks for a sawtooth; 0 for a level."""
    jump_bytes: float = 0.0
    """Of a staircase or of one tooth."""
    jump_s: float = 0.0
    """Time between jumps, or of one tooth."""


_LEVEL = Growth(kind="level", slope_bytes_per_s=0.0)


def fit_growth(points: Sequence[tuple[float, int]], limit_bytes: int) -> Growth | None:
    """The model that fits; None for less than five points or three seconds.

    >>> fit_growth([(t, 100 * 2**20 + t * 2**20) for t in range(40)], 2**30).kind
    'slope'
    >>> fit_growth([(t, 2**29 + (t % 10) * 2**25) for t in range(60)], 2**30).kind
    'sawtooth'
    >>> fit_growth([(t, 2**28 + (t // 10) * 2**25) for t in range(60)], 2**30).kind
    'staircase'
    """
    if len(points) < 5 or points[-1][0] - points[0][0] < 3:
        return None
    values = [value for _, value in points]
    spread = max(values) - min(values)
    noise = max(_LEAST_BYTES, limit_bytes // 1000)
    if spread < noise:
        return _LEVEL
    return _sawtooth(points, spread, noise) or _staircase(points, noise) or _slope(points, noise)


def _sawtooth(points: Sequence[tuple[float, int]], spread: int, noise: int) -> Growth | None:
    """Rises and falls of at least a quarter of the spread; needs two peaks with a fall behind each."""
    edge = max(spread * 0.25, noise)
    peaks: list[tuple[float, int]] = []
    top = low = points[0]
    falling = False
    for point in points:
        if not falling:
            if point[1] > top[1]:
                top = point
            elif point[1] < top[1] - edge:
                peaks.append(top)
                falling, low = True, point
        elif point[1] < low[1]:
            low = point
        elif point[1] > low[1] + edge:
            falling, top = False, point
    if len(peaks) < 2:
        return None
    if not falling and top[1] > peaks[-1][1]:
        peaks.append(top)  # the tooth that is rising now is already the highest
    cycle = (peaks[-1][0] - peaks[0][0]) / (len(peaks) - 1)
    slope, _, _ = theil_sen(peaks)
    rises = sum(1 for one, two in pairwise(peaks) if two[1] > one[1])
    grows = slope * cycle > max(0.05 * edge, noise / 8) and rises * 3 >= 2 * (len(peaks) - 1)
    return Growth(
        kind="sawtooth",
        slope_bytes_per_s=slope if grows else 0.0,
        jump_bytes=slope * cycle if grows else 0.0,
        jump_s=cycle,
    )


def _staircase(points: Sequence[tuple[float, int]], noise: int) -> Growth | None:
    """At least three jumps that make up most of the rise, with flat treads between them."""
    rise = points[-1][1] - points[0][1]
    if rise < noise:
        return None
    differences = [(two[1] - one[1], two[0]) for one, two in pairwise(points)]
    edge = max(rise * 0.04, noise / 4)
    jumps: list[list[float]] = []  # [when, bytes, index of the last difference]
    for index, (size, when) in enumerate(differences):
        if size < edge:
            continue
        if jumps and index - jumps[-1][2] <= 1:
            jumps[-1][1] += size
            jumps[-1][2] = index
        else:
            jumps.append([when, size, index])
    wide = sum(1 for size, _ in differences if size >= edge)
    falls = -sum(size for size, _ in differences if size < 0)
    if falls > _MOST_FALLS * rise:
        return None  # the upward half of noise looks like jumps
    if len(jumps) < 3 or wide * 3 > len(differences) or sum(jump[1] for jump in jumps) < 0.7 * rise:
        return None
    between = sorted(two[0] - one[0] for one, two in pairwise(jumps))
    interval = between[len(between) // 2]
    if points[-1][0] - jumps[-1][0] > _OVERDUE * between[-1]:
        return _LEVEL  # the next jump should have come long ago: it was a start-up in steps
    height = sorted(jump[1] for jump in jumps)[len(jumps) // 2]
    return Growth(
        kind="staircase",
        slope_bytes_per_s=height / interval,
        jump_bytes=height,
        jump_s=interval,
    )


def _slope(points: Sequence[tuple[float, int]], noise: int) -> Growth:
    """The longest recent window on which a straight line fits; what came before was another phase."""
    fits: list[tuple[float, float, float]] = []  # deviation, slope, span
    for part in (1, 2, 4, 8, 16):
        window = points[-max(8, len(points) // part) :]
        span = window[-1][0] - window[0][0]
        if fits and (span < 3 or span >= fits[-1][2]):
            break
        slope, _, _ = theil_sen(window)
        middle_t = (window[0][0] + window[-1][0]) / 2
        residues = sorted(value - slope * (t - middle_t) for t, value in window)
        center = residues[len(residues) // 2]
        deviation = sorted(abs(r - center) for r in residues)
        fits.append((deviation[len(deviation) * 9 // 10], slope, span))
    best = max(min(fit[0] for fit in fits) * _ALIKE, noise / 4)
    spread, slope, seen_s = next(fit for fit in fits if fit[0] <= best)
    rise = abs(slope) * seen_s
    if slope <= 0 or rise < max(noise / 2, 2 * spread):
        return _LEVEL
    return Growth(kind="slope", slope_bytes_per_s=slope)


def theil_sen(points: Sequence[tuple[float, int]]) -> tuple[float, float, float]:
    """Median of the pairwise slopes, with their tenth and ninetieth percentile.

    >>> theil_sen([(0, 0), (1, 10), (2, 20), (3, 900), (4, 40)])[0]
    10.0
    """
    if len(points) > _POINTS:
        last = len(points) - 1
        points = [points[round(i * last / (_POINTS - 1))] for i in range(_POINTS)]
    slopes = sorted(
        (two[1] - one[1]) / (two[0] - one[0])
        for i, one in enumerate(points)
        for two in points[i + 1 :]
        if two[0] > one[0]
    )
    if not slopes:
        return 0.0, 0.0, 0.0
    return slopes[len(slopes) // 2], slopes[len(slopes) // 10], slopes[-1 - len(slopes) // 10]
