"""How long until a limit: the growth model that fits, with an uncertainty.

    level      no growth                          no end in sight
    slope      steady growth                      (limit - used) / slope
    staircase  jumps, one a step                  jumps that still fit x time between them
    sawtooth   rises and falls; what counts is whether its peaks rise

Slopes are Theil-Sen medians (robust against a third of outliers), their uncertainty the span between
the tenth and ninetieth percentile of the pairwise slopes. Pure functions, standard library only: the
recorder runs them, and the evidence of a recorded run rests on them.
"""

from __future__ import annotations

import math
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
    low_bytes_per_s: float
    high_bytes_per_s: float
    from_bytes: float
    """Where the growth continues from: the value now, or a sawtooth's last peak."""
    from_s: float
    """When that was."""
    jump_bytes: float = 0.0
    """Of a staircase or of one tooth."""
    jump_s: float = 0.0
    """Time between jumps, or of one tooth."""
    last_jump_s: float = 0.0
    seen_s: float = 0.0
    """Over which span it was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a limit will be reached if growth continues. None: not in sight."""

    left_s: float | None
    low_s: float | None
    high_s: float | None
    growth: Growth


class Series:
    """Points of one quantity: the last minutes densely, and everything before thinned out, in bounded memory."""

    def __init__(self, dense_count: int = 240, coarse_count: int = 240, step_s: float = 0.25) -> None:
        """Keeps at most a number of points, at least `step_s` apart."""
        self._dense_count, self._coarse_count, self._step_s = dense_count, coarse_count, step_s
        self.dense: list[tuple[float, int]] = []
        self.coarse: list[tuple[float, int]] = []
        self._open = 0
        self._group_s = 0.0

    def add(self, time_s: float, value: int) -> None:
        """A point later than all before."""
        if self.dense and time_s - self.dense[-1][0] < self._step_s:
            self.dense[-1] = (self.dense[-1][0], max(value, self.dense[-1][1]))
            return
        self.dense.append((time_s, value))
        if len(self.dense) > self._dense_count:
            self._thin(self.dense.pop(0))

    def _thin(self, point: tuple[float, int]) -> None:
        """Old points are kept as the least and the largest of a group, so that peaks survive.

        The last group, from `_open` on, still takes points.
        """
        group = [*self.coarse[self._open :], point]
        if len(group) > 1 and point[0] - group[0][0] >= self._group_s:
            self._open, group = len(self.coarse), [point]
        self.coarse[self._open :] = _extremes(group)
        if len(self.coarse) > self._coarse_count:
            self._group_s = max(1.0, self._group_s * 2)
            self.coarse = [p for i in range(0, len(self.coarse), 4) for p in _extremes(self.coarse[i : i + 4])]
            self._open = len(self.coarse)

    def forecast(self, limit_bytes: int) -> Forecast | None:
        """The forecast from the dense points, or from all of them where those show the larger pattern."""
        near = fit_growth(self.dense, limit_bytes)
        if near is None:
            return None
        if self.coarse:
            far = fit_growth([*self.coarse, *self.dense], limit_bytes)
            if far is not None and _prefer_far(near, far, self.dense[-1][1]):
                near = far
        return find_left(near, self.dense[-1], limit_bytes)


def _extremes(points: Sequence[tuple[float, int]]) -> list[tuple[float, int]]:
    """The least and the largest, in order of time."""
    return sorted({min(points, key=lambda p: p[1]), max(points, key=lambda p: p[1])})


def _prefer_far(near: Growth, far: Growth, used: int) -> bool:
    """A known cycle explains a rising flank; slow growth shows only from afar."""
    if far.kind == "sawtooth":
        return used <= far.from_bytes * 1.02
    return near.kind == "level" and far.kind != "level"


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
        return _level(points[-1])
    return _sawtooth(points, spread, noise) or _staircase(points, noise) or _slope(points, noise)


def _level(point: tuple[float, int]) -> Growth:
    return Growth(
        kind="level",
        slope_bytes_per_s=0.0,
        low_bytes_per_s=0.0,
        high_bytes_per_s=0.0,
        from_bytes=point[1],
        from_s=point[0],
    )


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
    slope, lower, upper = theil_sen(peaks)
    rises = sum(1 for one, two in pairwise(peaks) if two[1] > one[1])
    grows = slope * cycle > max(0.05 * edge, noise / 8) and rises * 3 >= 2 * (len(peaks) - 1)
    return Growth(
        kind="sawtooth",
        slope_bytes_per_s=slope if grows else 0.0,
        low_bytes_per_s=lower if grows else 0.0,
        high_bytes_per_s=upper if grows else 0.0,
        from_bytes=peaks[-1][1] if grows else max(value for _, value in peaks),
        from_s=peaks[-1][0],
        jump_bytes=slope * cycle if grows else 0.0,
        jump_s=cycle,
        last_jump_s=peaks[-1][0],
        seen_s=peaks[-1][0] - peaks[0][0],
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
        return _level(points[-1])  # the next jump should have come long ago: it was a start-up in steps
    height = sorted(jump[1] for jump in jumps)[len(jumps) // 2]
    rates = sorted(jump[1] / interval for jump in jumps)
    return Growth(
        kind="staircase",
        slope_bytes_per_s=height / interval,
        low_bytes_per_s=rates[len(rates) // 10],
        high_bytes_per_s=rates[-1 - len(rates) // 10],
        from_bytes=points[-1][1],
        from_s=points[-1][0],
        jump_bytes=height,
        jump_s=interval,
        last_jump_s=jumps[-1][0],
        seen_s=points[-1][0] - points[0][0],
    )


def _slope(points: Sequence[tuple[float, int]], noise: int) -> Growth:
    """The longest recent window on which a straight line fits; what came before was another phase."""
    fits: list[tuple[float, tuple[float, float, float], float]] = []  # deviation, slopes, span
    for part in (1, 2, 4, 8, 16):
        window = points[-max(8, len(points) // part) :]
        span = window[-1][0] - window[0][0]
        if fits and (span < 3 or span >= fits[-1][2]):
            break
        slopes = theil_sen(window)
        middle_t = (window[0][0] + window[-1][0]) / 2
        residues = sorted(value - slopes[0] * (t - middle_t) for t, value in window)
        center = residues[len(residues) // 2]
        deviation = sorted(abs(r - center) for r in residues)
        fits.append((deviation[len(deviation) * 9 // 10], slopes, span))
    best = max(min(fit[0] for fit in fits) * _ALIKE, noise / 4)
    spread, (slope, lower, upper), seen_s = next(fit for fit in fits if fit[0] <= best)
    rise = abs(slope) * seen_s
    if slope <= 0 or rise < max(noise / 2, 2 * spread):
        return _level(points[-1])
    return Growth(
        kind="slope",
        slope_bytes_per_s=slope,
        low_bytes_per_s=lower,
        high_bytes_per_s=upper,
        from_bytes=points[-1][1],
        from_s=points[-1][0],
        seen_s=seen_s,
    )


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


def find_left(growth: Growth, now: tuple[float, int], limit_bytes: int) -> Forecast:
    """Seconds from now until the limit.

    >>> g = Growth(kind="slope", slope_bytes_per_s=10, low_bytes_per_s=5, high_bytes_per_s=20, from_bytes=100, from_s=0)
    >>> f = find_left(g, (0, 100), 200)
    >>> f.left_s, f.low_s, f.high_s
    (10.0, 5.0, 20.0)
    """
    if now[1] >= limit_bytes:
        return Forecast(left_s=0.0, low_s=0.0, high_s=0.0, growth=growth)
    if growth.slope_bytes_per_s <= 0:
        return Forecast(left_s=None, low_s=None, high_s=None, growth=growth)
    room = max(0.0, limit_bytes - growth.from_bytes)
    gone = now[0] - growth.from_s

    def left(rate: float) -> float | None:
        return None if rate <= 0 else max(0.0, room / rate - gone)

    most_likely = left(growth.slope_bytes_per_s)
    if growth.kind == "staircase" and growth.jump_bytes > 0:
        jumps = max(1, math.ceil(room / growth.jump_bytes))
        most_likely = max(0.0, growth.last_jump_s + jumps * growth.jump_s - now[0])
    low, high = left(growth.high_bytes_per_s), left(growth.low_bytes_per_s)
    if most_likely is not None:  # a staircase counts whole jumps, its bounds the rate
        low = most_likely if low is None else min(low, most_likely)
        high = None if high is None else max(high, most_likely)
    return Forecast(left_s=most_likely, low_s=low, high_s=high, growth=growth)
