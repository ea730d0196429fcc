"""How long until a limit: levels, slopes, staircases and sawteeth with noise, and what a series keeps."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from rlhfdoctor.trace.growth import Forecast, Growth, Series, find_left, fit_growth, theil_sen
from rlhfdoctor.units import GIB, MIB

LIMIT = 100 * GIB
Course = Callable[[float, random.Random], float]
"""GiB at a time, with noise."""
SEEDS = pytest.mark.parametrize("seed", [1, 2, 3])


def make_series(course: Course, seconds: int, seed: int = 1) -> Series:
    """A series with a point a second."""
    noise, series = random.Random(seed), Series()
    for second in range(seconds):
        series.add(float(second), int(course(float(second), noise) * GIB))
    return series


def forecast(course: Course, seconds: int, seed: int = 1) -> Forecast:
    """What a series of so many seconds says about a limit of 100 GiB."""
    found = make_series(course, seconds, seed).forecast(LIMIT)
    assert found is not None
    return found


def linear(rate: float, start: float = 0.0) -> Course:
    """Steady growth without noise, in GiB a second."""
    return lambda t, noise: start + rate * t


def of_value(share: float) -> Course:
    """From nothing to the limit in 1,000 s; each value is off by up to this share of itself."""
    return lambda t, noise: 0.1 * t * (1 + noise.uniform(-share, share))


def of_rate(share: float) -> Course:
    """From nothing to the limit in 1,000 s; each second's growth is off by this share, and that stays."""
    grown = [0.0]

    def course(t: float, noise: random.Random) -> float:
        grown[0] += 0.1 * (1 + noise.gauss(0, share)) if t else 0
        return grown[0]

    return course


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
def test_no_end_in_sight(course: Course, seconds: int, seed: int) -> None:
    """What does not grow, or whose peaks do not, has no end in sight."""
    found = forecast(course, seconds, seed)
    assert (found.left_s, found.low_s, found.high_s, found.growth.slope_bytes_per_s) == (None, None, None, 0)


@SEEDS
@pytest.mark.parametrize("seconds", [100, 200])
def test_load_in_steps_then_plateau(seconds: int, seed: int) -> None:
    """A model that was loaded in four steps and then stood still has no end in sight."""
    assert forecast(lambda t, n: min(60, 15 * (t // 10)) + n.gauss(0, 0.02), seconds, seed).left_s is None


GROWING: dict[str, tuple[Course, int, str, float]] = {
    "slope": (linear(0.1), 500, "slope", 500),
    "slope with little noise": (lambda t, n: 0.1 * t + n.gauss(0, 0.05), 500, "slope", 500),
    "slope with 1 % of noise": (of_value(0.01), 500, "slope", 500),
    "slope after a plateau": (lambda t, n: 30 + max(0, t - 200) * 0.2 + n.gauss(0, 0.05), 300, "slope", 250),
    "slope after a ramp and a plateau": (
        lambda t, n: min(30, 2 * t) + max(0, t - 200) * 0.2 + n.gauss(0, 0.05),
        400,
        "slope",
        150,
    ),
    "slow leak": (lambda t, n: 50 + 0.003 * t, 3600, "slope", 13067),
    "staircase": (lambda t, n: 10 + 2 * (t // 20) + n.gauss(0, 0.02), 300, "staircase", 601),
    "staircase, between two jumps": (lambda t, n: 10 + 2 * (t // 20), 311, "staircase", 590),
    "staircase, a jump in two seconds": (lambda t, n: 10 + 2 * (t // 20) + (t % 20 == 19), 300, "staircase", 600),
    "staircase, long steps": (lambda t, n: 10 + t // 60, 1800, "staircase", 3601),
    "sawtooth with rising peaks": (lambda t, n: 40 + 0.5 * (t % 30) + t // 30 + n.gauss(0, 0.1), 300, "sawtooth", 1110),
    "sawtooth, on a rising flank": (lambda t, n: 40 + 0.5 * (t % 30) + t // 30, 320, "sawtooth", 1090),
    "sawtooth, slow": (lambda t, n: 40 + 0.05 * (t % 300) + t // 300 + n.gauss(0, 0.1), 3000, "sawtooth", 11100),
}


@SEEDS
@pytest.mark.parametrize(("course", "seconds", "kind", "left_s"), GROWING.values(), ids=GROWING)
def test_end_in_sight(course: Course, seconds: int, kind: str, left_s: float, seed: int) -> None:
    """Each model is recognised, and the time that is left is right within a tenth."""
    found = forecast(course, seconds, seed)
    assert found.growth.kind == kind
    assert found.left_s == pytest.approx(left_s, rel=0.1)


@SEEDS
@pytest.mark.parametrize("share", [0.05, 0.5])
def test_half_way_with_a_rate_that_varies(share: float, seed: int) -> None:
    """Half-way, growth whose rate varies by so much ends within 20 % of what is forecast."""
    assert pytest.approx(500, rel=0.2) == forecast(of_rate(share), 500, seed).left_s


@SEEDS
@pytest.mark.parametrize("seconds", [450, 500])
def test_half_way_with_noise_of_the_value(seconds: int, seed: int) -> None:
    """Half-way, growth with 5 % of noise ends within 20 % of what is forecast."""
    assert pytest.approx(1000 - seconds, rel=0.2) == forecast(of_value(0.05), seconds, seed).left_s


@SEEDS
@pytest.mark.parametrize(
    "name",
    [
        "slope",
        "slope with little noise",
        "slope after a plateau",
        "sawtooth with rising peaks",
        *(
            pytest.param(
                name,
            )
            for name in ("staircase, between two jumps", "staircase, long steps")
        ),
    ],
)
def test_uncertainty(name: str, seed: int) -> None:
    """The forecast lies within its own bounds."""
    course, seconds, _, _ = GROWING[name]
    found = forecast(course, seconds, seed)
    assert (found.low_s or 0) <= (found.left_s or 0) * 1.000001
    assert (found.left_s or 0) <= (found.high_s or math.inf) * 1.000001


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


def test_empty_series() -> None:
    """A series without points has no forecast."""
    assert Series().forecast(LIMIT) is None


@pytest.mark.parametrize(
    ("rise", "limit", "kind"),
    [(7 * MIB, GIB, "level"), (9 * MIB, GIB, "slope"), (90 * MIB, 100 * GIB, "level"), (120 * MIB, 100 * GIB, "slope")],
)
def test_growth_below_noise(rise: int, limit: int, kind: str) -> None:
    """A rise below 8 MiB, or below a thousandth of the limit, is none."""
    growth = fit_growth([(float(t), GIB + rise * t // 40) for t in range(41)], limit)
    assert growth is not None
    assert kind == growth.kind


@pytest.mark.parametrize("used", [LIMIT, LIMIT + GIB])
def test_at_the_limit(used: int) -> None:
    """At the limit and beyond no time is left, however it got there."""
    found = make_series(lambda t, noise: used / GIB, 20).forecast(LIMIT)
    assert found is not None
    assert (found.left_s, found.low_s, found.high_s) == (0.0, 0.0, 0.0)


def make_growth(kind: str = "slope", **given: float) -> Growth:
    """Growth of 10 bytes a second."""
    known = {
        "slope_bytes_per_s": 10.0,
        "low_bytes_per_s": 5.0,
        "high_bytes_per_s": 20.0,
        "from_bytes": 100.0,
        "from_s": 0.0,
    }
    return Growth(kind=kind, **{**known, **given})


@pytest.mark.parametrize(
    ("growth", "now", "expected"),
    [
        (make_growth(), (0.0, 100), (10.0, 5.0, 20.0)),
        (make_growth(), (4.0, 100), (6.0, 1.0, 16.0)),
        (make_growth(), (30.0, 100), (0.0, 0.0, 0.0)),
        (make_growth(low_bytes_per_s=-1.0), (0.0, 100), (10.0, 5.0, None)),
        (make_growth(slope_bytes_per_s=0.0), (0.0, 100), (None, None, None)),
        (make_growth(slope_bytes_per_s=-3.0), (0.0, 100), (None, None, None)),
        (make_growth(from_bytes=250.0), (0.0, 100), (0.0, 0.0, 0.0)),
        (make_growth(), (0.0, 200), (0.0, 0.0, 0.0)),
    ],
    ids=["now", "later", "overdue", "perhaps none", "none", "shrinking", "peaks beyond the limit", "at the limit"],
)
def test_find_left(growth: Growth, now: tuple[float, int], expected: tuple[float | None, ...]) -> None:
    """Room by rate, less what has passed since; never below zero."""
    found = find_left(growth, now, 200)
    assert expected == (found.left_s, found.low_s, found.high_s)


@pytest.mark.parametrize(("limit", "expected"), [(200, 45.0), (110, 5.0), (121, 15.0), (101, 5.0)])
def test_jumps_that_fit(limit: int, expected: float) -> None:
    """On a staircase the limit is met by a whole jump, counted from the last one."""
    growth = make_growth(
        "staircase", slope_bytes_per_s=2.0, jump_bytes=20.0, jump_s=10.0, last_jump_s=95.0, from_s=100.0
    )
    assert expected == find_left(growth, (100.0, 100), limit).left_s


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


def test_points_close_together() -> None:
    """Of points that are closer together than a step the largest is kept, at the time of the first."""
    series = Series(step_s=0.25)
    assert [series.add(t, value) for t, value in ((0.0, 1), (0.1, 5), (0.2, 3), (0.25, 2), (0.2, 9))] == [None] * 5  # type: ignore[func-returns-value]
    assert series.dense == [(0.0, 5), (0.25, 9)]


def held_by(series: Series) -> int:
    """How many points it keeps anywhere."""
    return sum(len(kept) for kept in vars(series).values() if isinstance(kept, list))


def grow_long(seconds: int, value: Callable[[int], int]) -> Iterator[Series]:
    """The series after each point of a long run."""
    series = Series()
    for second in range(seconds):
        series.add(float(second), value(second))
        yield series


def test_points_of_a_long_run() -> None:
    """Dense and coarse points are at most as many as was said, in order of time, and begin with the run."""
    counts = [(len(s.dense), len(s.coarse)) for s in grow_long(50_000, lambda t: GIB + t % 37)]
    (*_, series) = grow_long(50_000, lambda t: GIB + t % 37)
    points = [*series.coarse, *series.dense]
    assert (max(dense for dense, _ in counts), max(coarse for _, coarse in counts) <= 242) == (240, True)
    assert all(one[0] < two[0] for one, two in pairwise(points))
    assert (points[0][0] < 100, points[-1][0]) == (True, 49_999.0)


def test_memory_of_a_long_run() -> None:
    """What is kept does not grow with the run."""
    assert max(held_by(series) for series in grow_long(100_000, lambda t: GIB + t % 37)) <= 2 * (240 + 240)


def highest(series: Series) -> int:
    """The largest value that a forecast can see."""
    return max(value for _, value in [*series.coarse, *series.dense])


@pytest.mark.parametrize("when", [10, 3_000, 7_777, 19_000])
def test_peak_is_kept(when: int) -> None:
    """A peak of one second is still known at the end of a long run."""
    (*_, series) = grow_long(20_000, lambda t: 90 * GIB if t == when else 50 * GIB)
    assert highest(series) == 90 * GIB


def test_peak_is_never_lost() -> None:
    """A peak is known at every moment after it, also while it passes from the dense to the coarse points."""
    runs = enumerate(grow_long(5_000, lambda t: 90 * GIB if t == 3_000 else 50 * GIB))
    assert {90 * GIB} == {highest(series) for second, series in runs if second >= 3_000}


def test_low_is_kept() -> None:
    """A dip is kept as well, so that a sawtooth stays one."""
    (*_, series) = grow_long(20_000, lambda t: 10 * GIB if t == 3_000 else 50 * GIB)
    assert min(value for _, value in series.coarse) == 10 * GIB
