"""Models of growth: levels, slopes, staircases and sawteeth with noise."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from rlhfdoctor.evidence.recorded_growth import _thin
from rlhfdoctor.trace.growth import Growth, fit_growth, theil_sen
from rlhfdoctor.units import GIB, MIB

LIMIT = 100 * GIB
Course = Callable[[float, random.Random], float]
"""GiB at a time, with noise."""
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3])


def fit(course: Course, seconds: int, seed: int = 1) -> Growth:
    """The model that fits so many seconds, with a point a second, below a limit of 100 GiB."""
    noise = random.Random(seed)
    points = [(float(second), int(course(float(second), noise) * GIB)) for second in range(seconds)]
    found = fit_growth(_thin(points), LIMIT)
    assert found is not None
    return found


def linear(rate: float, start: float = 0.0) -> Course:
    """Steady growth without noise, in GiB a second."""
    return lambda t, noise: start + rate * t


LEVELS: dict[str, tuple[Course, int]] = {
    "constant": (lambda t, n: 50, 100),
    "noise of the allocator": (lambda t, n: 50 + n.gauss(0, 0.02), 300),
    "noise": (lambda t, n: 50 + n.gauss(0, 0.5), 300),
    "much noise": (lambda t, n: 50 + n.gauss(0, 3), 300),
    "much noise for long": (lambda t, n: 50 + n.gauss(0, 3), 3000),
    "page cache that is dropped and filled": (lambda t, n: 90 - abs(n.gauss(0, 4)), 400),
    "page cache in waves": (lambda t, n: 80 + 5 * math.sin(t / 7) + n.gauss(0, 1), 600),
    "load ramp, then plateau": (lambda t, n: min(60, 2 * t) + n.gauss(0, 0.02), 60),
    "plateau for long": (lambda t, n: min(60, 2 * t) + n.gauss(0, 0.02), 1000),
    "shrinking": (lambda t, n: 80 - 0.1 * t, 300),
    "one jump": (lambda t, n: 30 + 20 * (t > 100), 200),
    "flat sawtooth": (lambda t, n: 40 + t % 30 + n.gauss(0, 0.1), 300),
    "flat sawtooth, on a rising flank": (lambda t, n: 40 + t % 30 + n.gauss(0, 0.1), 325),
    "flat sawtooth, slow": (lambda t, n: 40 + 0.1 * (t % 300) + n.gauss(0, 0.1), 3000),
    "flat sawtooth, slow, on a rising flank": (lambda t, n: 40 + 0.1 * (t % 300) + n.gauss(0, 0.1), 3250),
    "falling sawtooth": (lambda t, n: 70 + t % 30 - t // 30 + n.gauss(0, 0.1), 300),
}


@SEEDS
@pytest.mark.parametrize(("course", "seconds"), LEVELS.values(), ids=LEVELS)
def test_no_growth(course: Course, seconds: int, seed: int) -> None:
    """What does not grow, or whose peaks do not, has no slope."""
    assert fit(course, seconds, seed).slope_bytes_per_s == 0


@SEEDS
@pytest.mark.parametrize("seconds", [100, 200])
def test_load_in_steps_then_plateau(seconds: int, seed: int) -> None:
    """A model that was loaded in four steps and then stood still does not grow."""
    assert fit(lambda t, n: min(60, 15 * (t // 10)) + n.gauss(0, 0.02), seconds, seed).slope_bytes_per_s == 0


GROWING: dict[str, tuple[Course, int, str, float]] = {
    "slope": (linear(0.1), 500, "slope", 0.1),
    "slope with little noise": (lambda t, n: 0.1 * t + n.gauss(0, 0.05), 500, "slope", 0.1),
    "slope after a plateau": (lambda t, n: 30 + max(0, t - 200) * 0.2 + n.gauss(0, 0.05), 300, "slope", 0.2),
    "slope after a ramp and a plateau": (
        lambda t, n: min(30, 2 * t) + max(0, t - 200) * 0.2 + n.gauss(0, 0.05),
        400,
        "slope",
        0.2,
    ),
    "slow leak": (lambda t, n: 50 + 0.003 * t, 3600, "slope", 0.003),
    "staircase": (lambda t, n: 10 + 2 * (t // 20) + n.gauss(0, 0.02), 300, "staircase", 0.1),
    "staircase, between two jumps": (lambda t, n: 10 + 2 * (t // 20), 311, "staircase", 0.1),
    "staircase, a jump in two seconds": (lambda t, n: 10 + 2 * (t // 20) + (t % 20 == 19), 240, "staircase", 0.1),
    "staircase, long steps": (lambda t, n: 10 + t // 60, 480, "staircase", 1 / 60),
    "sawtooth with rising peaks": (lambda t, n: 40 + 0.5 * (t % 30) + t // 30 + n.gauss(0, 0.1), 300, "sawtooth", 1 / 30),
    "sawtooth, on a rising flank": (lambda t, n: 40 + 0.5 * (t % 30) + t // 30, 320, "sawtooth", 1 / 30),
    "sawtooth, slow": (lambda t, n: 40 + 0.05 * (t % 300) + t // 300 + n.gauss(0, 0.1), 3000, "sawtooth", 1 / 300),
}


@SEEDS
@pytest.mark.parametrize(("course", "seconds", "kind", "rate"), GROWING.values(), ids=GROWING)
def test_growth(course: Course, seconds: int, kind: str, rate: float, seed: int) -> None:
    """Each model is recognised, and its slope is right within a tenth."""
    found = fit(course, seconds, seed)
    assert found.kind == kind
    assert found.slope_bytes_per_s == pytest.approx(rate * GIB, rel=0.1)


@pytest.mark.parametrize(
    "points",
    [
        [],
        [(0.0, GIB)],
        [(0.0, 1), (1.0, GIB), (2.0, 2 * GIB), (3.0, 3 * GIB)],
        [(0.5 * n, n * GIB) for n in range(6)],
        [(5.0, n * GIB) for n in range(9)],
    ],
    ids=["none", "one", "four", "too short", "no time between"],
)
def test_too_little(points: list[tuple[float, int]]) -> None:
    """Four points, or less than three seconds, say nothing."""
    assert fit_growth(points, LIMIT) is None


@pytest.mark.parametrize(
    ("rise", "limit", "kind"),
    [(7 * MIB, GIB, "level"), (9 * MIB, GIB, "slope"), (90 * MIB, 100 * GIB, "level"), (120 * MIB, 100 * GIB, "slope")],
)
def test_growth_below_noise(rise: int, limit: int, kind: str) -> None:
    """A rise below 8 MiB, or below a thousandth of the limit, is none."""
    growth = fit_growth([(float(t), GIB + rise * t // 40) for t in range(41)], limit)
    assert growth is not None
    assert kind == growth.kind


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([], (0.0, 0.0, 0.0)),
        ([(0.0, 5)], (0.0, 0.0, 0.0)),
        ([(1.0, 5), (1.0, 9)], (0.0, 0.0, 0.0)),
        ([(0.0, 0), (2.0, 10)], (5.0, 5.0, 5.0)),
        ([(float(t), 10 * t) for t in range(1000)], (10.0, 10.0, 10.0)),
        ([(float(t), -3 * t) for t in range(10)], (-3.0, -3.0, -3.0)),
        ([(float(t), 10 * t if t % 4 else 10**9) for t in range(40)], (10.0, None, None)),
    ],
    ids=["none", "one", "no time between", "two", "many", "falling", "outliers"],
)
def test_theil_sen(points: list[tuple[float, int]], expected: tuple[float | None, ...]) -> None:
    """The median of the slopes, which a quarter of outliers does not move."""
    found = theil_sen(points)
    assert expected == tuple(
        value if wanted is not None else None for value, wanted in zip(found, expected, strict=True)
    )
