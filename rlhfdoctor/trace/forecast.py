"""When a limit will be reached, by how much the peaks of memory rose from step to step; nothing where that is unclear.

A peak counts where it is higher than all before: what falls and rises again does not grow. Where no steps are
seen, the peaks of equal spans of time take their place. What comes before the first whole step, or before growth
first slackened, is a start-up and says nothing. The bounds are made so that four of five hold (FORECAST.md).
Pure functions, standard library only: the recorder runs them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

PROMISED_RATIO = 0.8
"""Of the intervals hold."""
_MOST_POINTS = 48
"""Then two become one: a long run is seen in longer spans."""
_LEAST_RISES = 4
_LEAST_SPANS = 10
"""Spans of time are no natural unit, so that more of them are needed."""
_SPAN_S = 2.0
_RAMP_S = 600.0
"""Without steps, growth that never slackened may be a model that is loaded; none was seen that took longer."""
_SLACK_RATIO, _SLACK_SPANS = 0.25, 5
"""It slackens where so many spans rise by less than this, of the fastest as many."""
_LEAST_BYTES = 1 << 20
_LEAST_RATIO = 0.0005
"""Of the limit, a step: smaller growth is noise of the allocator and the page cache."""
_ALIKE_RATIO = 0.6
"""By which the rate of the later half may fall short of the earlier one's; growth that slackens further levels off."""
_LEVELS_OFF, _LEVEL_RATIO, _LEAST_LEVEL = -0.7, 0.9, 8
"""Growth that slackens is even after all where so many rises are as alike as that."""
_PERIODIC_RATIO = 0.6
"""Rises that are so much more alike when several steps are taken together come once in as many steps."""
_REACH = 3.0
"""A forecast looks ahead at most this many times as long as growth was seen."""
_LEAST_SPREAD_RATIO = 0.1
"""Of the rise: few steps that are alike by chance promise too much."""
_WIDEST_RATIO = 0.6
_OVERDUE = 3.0
"""A step that takes so many times its usual time is none of those that were measured."""
_STUDENT = (3.08, 1.89, 1.64, 1.53, 1.48, 1.44, 1.41, 1.40, 1.38, 1.37)
"""Ninetieth percentile of Student's t with 1, 2, ... degrees of freedom."""
_STUDENT_MANY = 1.3
Point = tuple[float, int]
"""When a peak was, and how high."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a limit will be reached if growth goes on as it was seen."""

    left_s: float
    low_s: float
    high_s: float
    slope_bytes_per_s: float
    rise_bytes: float
    """From one step to the next; of spans of time, in one of them."""
    steps_count: int
    """Over which it was seen; 0 for spans of time."""
    seen_s: float


@dataclass(frozen=True, slots=True)
class Trend:
    """Even growth of peaks."""

    points: Sequence[Point]
    rise_bytes: float
    every_s: float
    spread_ratio: float
    """Standard deviation of what a rise takes, over its mean."""
    jump: int
    """Steps in which memory rises once: a save every so many steps holds more each time."""

    def left(self, now_s: float, limit_bytes: int) -> tuple[float, float, float] | None:
        """Seconds until the limit, with their bounds; None where the bounds say nothing, or the time is over."""
        last_bytes, count = self.points[-1][1], len(self.points) - 1
        last_s = next(at_s for at_s, highest in self.points if highest == last_bytes)  # when memory rose last
        rises = max(0.0, limit_bytes - last_bytes) / self.rise_bytes
        ahead_s = rises * self.every_s
        if ahead_s > _REACH * (last_s - self.points[0][0]):
            return None
        freedom = count // self.jump - 1
        factor = _STUDENT[freedom - 1] if freedom <= len(_STUDENT) else _STUDENT_MANY
        wide = factor * self.spread_ratio * math.sqrt(1 / max(rises, 1.0) + 1 / count)
        if wide > _WIDEST_RATIO:
            return None
        since_s = now_s - last_s
        inside_s = self.jump * self.every_s / 2  # somewhere in a step, not at its end
        high_s = ahead_s / (1 - wide) + inside_s - since_s
        if high_s < 0:
            return None
        return max(0.0, ahead_s - since_s), max(0.0, ahead_s / (1 + wide) - inside_s - since_s), high_s


class Peaks:
    """The peaks of one quantity, a step or a span of time each, in bounded memory."""

    def __init__(self) -> None:
        self.points: list[Point] = []
        self._top: Point | None = None
        self._began_s: float | None = None
        self._last_s = 0.0
        self._has_steps = False
        self._skip = 0
        self._per, self._count = 1, 0
        """Steps or spans a point, and those that are over of the next point."""
        self._fit: tuple[int, Trend | None] | None = None
        """For this limit."""

    def add(self, now_s: float, used_bytes: int) -> None:
        """A figure later than all before."""
        self._last_s = now_s
        if self._began_s is None:
            self._began_s = now_s
        if self._top is None or used_bytes > self._top[1]:
            self._top = (now_s, used_bytes)
        if not self._has_steps and now_s - self._began_s >= _SPAN_S:
            self._close(now_s)

    def begin_step(self, now_s: float) -> None:
        """A step is over, and the next one begins; the first whole one warms up and does not count."""
        if not self._has_steps:
            self._has_steps, self._skip = True, 2
            self.points, self._per, self._count, self._fit = [], 1, 0, None
        self._close(now_s)

    def _close(self, now_s: float) -> None:
        self._began_s = now_s
        if self._skip:
            self._skip, self._top = self._skip - 1, None
        if self._top is None:
            return
        self._count += 1
        if self._count < self._per:
            return
        at_s, value = self._top
        highest = self.points[-1][1] if self.points else 0
        self.points.append((at_s, max(value, highest)))
        self._top, self._count, self._fit = None, 0, None
        if len(self.points) > _MOST_POINTS:
            self.points = self.points[1::2]
            self._per *= 2

    def forecast(self, limit_bytes: int) -> Forecast | None:
        """As of the last figure; None where nothing is clear, or nothing grows."""
        if self._fit is None or self._fit[0] != limit_bytes:
            self._fit = limit_bytes, find_trend(self.points, limit_bytes, has_steps=self._has_steps)
        trend = self._fit[1]
        if trend is None or self._last_s - trend.points[-1][0] > _OVERDUE * trend.every_s:
            return None
        left = trend.left(self._last_s, limit_bytes)
        if left is None:
            return None
        count = len(trend.points) - 1
        return Forecast(
            left_s=left[0],
            low_s=left[1],
            high_s=left[2],
            slope_bytes_per_s=trend.rise_bytes / trend.every_s,
            rise_bytes=trend.rise_bytes / self._per,
            steps_count=count * self._per if self._has_steps else 0,
            seen_s=trend.points[-1][0] - trend.points[0][0],
        )


def find_trend(points: Sequence[Point], limit_bytes: int, *, has_steps: bool) -> Trend | None:
    """The longest recent stretch of even growth; None if there is none.

    >>> find_trend([(t, t << 25) for t in range(9)], 1 << 30, has_steps=True).rise_bytes == 1 << 25
    True
    >>> find_trend([(t, (1 << 29) - (1 << 29 >> t)) for t in range(9)], 1 << 30, has_steps=True) is None  # levels off
    True
    """
    least = _LEAST_RISES
    if not has_steps:
        points, least = _after_ramp(points), _LEAST_SPANS
    noise = max(_LEAST_BYTES, _LEAST_RATIO * limit_bytes)
    while len(points) > least:
        rises = [two[1] - one[1] for one, two in pairwise(points)]
        half = len(rises) // 2
        early, late = _mean(rises[:half]), _mean(rises[half:])
        if late < noise:
            return None
        if late < _LEVEL_RATIO * early and _levels_off(rises):
            least = max(least, _LEAST_LEVEL)
        elif late >= _ALIKE_RATIO * early and early >= _ALIKE_RATIO * late:
            return _trend(points)
        points = points[half:]
    return None


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # `statistics` would cost the recorder 2 MiB


def _levels_off(rises: Sequence[int]) -> bool:
    """Whether nearly every rise is smaller than those before it (Kendall's rank correlation)."""
    later = [two - one for index, one in enumerate(rises) for two in rises[index + 1 :]]
    return sum(1 if change > 0 else -1 for change in later if change) < _LEVELS_OFF * len(later)


def _trend(points: Sequence[Point]) -> Trend | None:
    count = len(points) - 1
    rise, every_s = (points[-1][1] - points[0][1]) / count, (points[-1][0] - points[0][0]) / count
    if every_s <= 0:
        return None
    one = spread = _spread(points, 1)
    jump = 1
    for apart in range(2, count // _LEAST_RISES + 1):
        found = _spread(points, apart)
        if found < min(spread, _PERIODIC_RATIO * one):
            spread, jump = found, apart
    return Trend(points, rise, every_s, max(_LEAST_SPREAD_RATIO, spread), jump)


def _spread(points: Sequence[Point], apart: int) -> float:
    """Standard deviation of what a rise takes, in memory and in time, over its mean; from points so many apart."""
    some = points[(len(points) - 1) % apart :: apart]
    parts = []
    for which in (0, 1):
        each = [two[which] - one[which] for one, two in pairwise(some)]
        mean = _mean(each)
        parts.append(math.sqrt(sum((x - mean) ** 2 for x in each) / (len(each) - 1)) / mean)
    return math.hypot(*parts) * math.sqrt(apart)


def _after_ramp(points: Sequence[Point]) -> Sequence[Point]:
    """Points from where growth first slackened: before that a model is loaded, or it looks like that."""
    fastest = 0
    for index in range(len(points) - _SLACK_SPANS):
        rise = points[index + _SLACK_SPANS][1] - points[index][1]
        if rise < _SLACK_RATIO * fastest:
            return points[index + _SLACK_SPANS :]
        fastest = max(fastest, rise)
    return points if points and points[-1][0] - points[0][0] >= _RAMP_S else []
