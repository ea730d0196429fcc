"""When a limit will be reached: what is foreseen by steps or by time, with which bounds, and when nothing is said."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from rlhfdoctor.trace.forecast import _MOST_POINTS, PROMISED_RATIO, Forecast, Peaks
from rlhfdoctor.units import GIB
from tests.bench.forecast import ROOT, replay
from tests.record.test_growth import LEVELS, SEEDS, Course

LIMIT = 100 * GIB
STEP_S = 10
Each = Callable[[int, random.Random], float]
"""GiB at the peak of a step."""


def by_step(each: Each, steps: int, seed: int = 1) -> Iterator[tuple[float, Peaks]]:
    """After each second of so many steps; memory falls to a third at the end of each."""
    noise, peaks = random.Random(seed), Peaks()
    for number in range(steps):
        peaks.begin_step(float(number * STEP_S))
        top = each(number, noise)
        for second in range(STEP_S):
            peaks.add(float(number * STEP_S + second), int(GIB * top * (1 if second == 7 else 0.3)))
            yield float(number * STEP_S + second), peaks


def by_time(course: Course, seconds: int, seed: int = 1) -> Iterator[tuple[float, Peaks]]:
    """After each second of a program without steps."""
    noise, peaks = random.Random(seed), Peaks()
    for second in range(seconds):
        peaks.add(float(second), int(course(float(second), noise) * GIB))
        yield float(second), peaks


def said(run: Iterable[tuple[float, Peaks]]) -> list[tuple[float, Forecast]]:
    """All forecasts of a run, each with its time."""
    return [(at_s, found) for at_s, peaks in run if (found := peaks.forecast(LIMIT)) is not None]


@SEEDS
def test_even_steps(seed: int) -> None:
    """Two GiB a step are foreseen within a tenth once six whole steps were seen, and the forecast says so."""
    found = said(by_step(lambda n, r: 10 + 2 * n + r.gauss(0, 0.02), 40, seed))
    first_s, first = found[0]
    assert (first_s < 200, first.steps_count > 5, first.rise_bytes / GIB) == (True, True, pytest.approx(2, rel=0.1))
    assert all(at_s + one.left_s == pytest.approx(457, rel=0.1) for at_s, one in found)
    assert all(one.low_s <= one.left_s <= one.high_s for _, one in found)


def test_uneven_steps() -> None:
    """Where the rise varies, bounds hold about as often as they promise, or more often; over 40 runs."""
    held: list[bool] = []
    for seed in range(40):
        used = [10.0]
        peaks = [used.append(used[-1] + step) or used[-1] for step in _draws(seed)]  # type: ignore[func-returns-value]
        end_s = next(n for n, top in enumerate(peaks) if top >= 100) * STEP_S + 7
        run = by_step(lambda n, r, peaks=peaks: peaks[n], end_s // STEP_S, seed)  # type: ignore[misc]
        held += [at_s + one.low_s <= end_s <= at_s + one.high_s for at_s, one in said(run)]
    assert len(held) > 1000
    assert sum(held) / len(held) >= PROMISED_RATIO - 0.05


def _draws(seed: int) -> list[float]:
    noise = random.Random(seed)
    return [noise.uniform(0, 5) for _ in range(90)]


SILENT: dict[str, Each] = {
    "even": lambda n, r: 60,
    "noise": lambda n, r: 60 + r.gauss(0, 5),
    "a cache that fills": lambda n, r: 20 + 60 * (1 - math.exp(-n / 6)),
    "a table that doubles": lambda n, r: 10 + 2 ** int(math.log2(n + 1)),
    "a warm-up of three steps": lambda n, r: 20 * min(n, 3),
    "falling": lambda n, r: 80 - n,
    "one jump": lambda n, r: 30 + 40 * (n > 12),
    "too slow to tell": lambda n, r: 20 + 0.1 * n,
}


@SEEDS
@pytest.mark.parametrize("each", SILENT.values(), ids=SILENT)
def test_nothing_is_said_of_steps(each: Each, seed: int) -> None:
    """What does not grow evenly has no forecast, at any moment."""
    assert said(by_step(each, 30, seed)) == []


TEETH = (lambda t, n: 70 - 30 * (t < 40) + t % 30 - t // 30, 300)
QUIET: dict[str, tuple[Course, int]] = {
    **{name: (course, min(seconds, 600)) for name, (course, seconds) in LEVELS.items() if "falling" not in name},
    "a ramp up to the limit": (lambda t, n: 2 * t, 50),
    "a ramp in steps": (lambda t, n: 5 * (t // 3), 60),
    "teeth that rise once": TEETH,
}


@SEEDS
@pytest.mark.parametrize(("course", "seconds"), QUIET.values(), ids=QUIET)
def test_nothing_is_said_of_time(course: Course, seconds: int, seed: int) -> None:
    """Without steps, neither a start-up ramp nor what comes back has a forecast."""
    assert said(by_time(course, seconds, seed)) == []


@SEEDS
def test_growth_without_steps(seed: int) -> None:
    """A leak behind a start-up is foreseen by time alone."""
    course: Course = lambda t, n: min(30, 3 * t) + 0.5 * max(0, t - 20) + n.gauss(0, 0.1)  # noqa: E731
    found = said(by_time(course, 150, seed))
    assert found[0][0] < 90
    assert all(one.steps_count == 0 for _, one in found)
    assert all(at_s + one.low_s <= 160 <= at_s + one.high_s for at_s, one in found[5:])


def test_step_that_does_not_end() -> None:
    """A step that takes much longer than all before says that the forecast no longer holds."""
    (*_, (at_s, peaks)) = by_step(lambda n, r: 10 + 2 * n, 20)
    assert peaks.forecast(LIMIT) is not None
    peaks.add(at_s + 4 * STEP_S, GIB)
    assert peaks.forecast(LIMIT) is None


def test_memory_of_a_long_run() -> None:
    """What is kept does not grow with the run, and a step's rise stays that of one step."""
    found: dict[str, Any] = {}
    for _, peaks in by_step(lambda n, r: 0.04 * n, 2000):
        found["most"] = max(found.get("most", 0), len(peaks.points))
        found["last"] = peaks.forecast(LIMIT) or found.get("last")
    assert found["most"] <= _MOST_POINTS + 1
    assert found["last"].rise_bytes / GIB == pytest.approx(0.04, rel=0.1)


@pytest.mark.parametrize(
    ("sample", "least", "alarms"),
    [
        ("recorded-leak", 60, 1),
        ("lab-driver-leak", 30, 1),
        ("recorded-hang", 60, 1),
        ("lab-healthy-sawtooth", 0, 0),
        ("recorded-model-load", 0, 1),
    ],
)
def test_recorded_runs(sample: str, least: int, alarms: int) -> None:
    """In recorded runs bounds hold where the limit was reached, and what ended well had no forecast."""
    found = replay(ROOT / "samples" / sample / "run")
    verdicts = [held for _, held in found.verdicts()]
    assert (len(verdicts) >= least, all(verdicts), len(found.alarms)) == (True, True, alarms)
    assert least or not found.said
