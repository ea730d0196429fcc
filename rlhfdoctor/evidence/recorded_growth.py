"""How recorded memory grew: the model that fits, the rise of the peaks from step to step."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median

from rlhfdoctor.evidence.window import SIGNIFICANT_RATIO, FailureWindow, find_steps
from rlhfdoctor.i18n.message import Message, plural, say
from rlhfdoctor.trace.growth import fit_growth, theil_sen
from rlhfdoctor.types import Death, Value
from rlhfdoctor.vocabulary import FACT
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Fact

_LEAST_STEPS = 3
_LEAST_POINTS = 20
_LEAST_S = 600.0
"""Without a step that was seen: in less time, whoever loads a model or reads a data set rises to the end, too."""
Rows = Iterator[tuple[Fact, Value, Message]]
"""Facts of a trace, before each gets its origin."""


def find_growth(window: FailureWindow, _death: Death | None) -> Rows:
    """The growth model over the run, and the rise of the peaks from step to step."""
    if len(window.use) < 5 or not window.limit_bytes:
        return
    starts = [at for at in find_steps(window.trace) if at <= window.until_s]
    if starts and len(starts) <= _LEAST_STEPS:
        return  # loading and the first optimizer step rise in every run
    if not starts and window.use[-1][0] - window.use[0][0] < _LEAST_S:
        return
    end_s = window.until_s if window.thrash is None else window.thrash.since_s  # after that, nothing can grow
    settled = [point for point in window.use if point[0] <= end_s and (not starts or point[0] >= starts[1])]
    growth = fit_growth(_thin(settled), window.limit_bytes)
    if growth is not None:
        rate = growth.slope_bytes_per_s * 60
        says = {
            "level": say("memory in use stood still"),
            "slope": say("memory in use rose steadily by {rate:bytes} a minute", rate=rate),
            "staircase": say(
                "memory in use rose in jumps of about {jump_bytes:bytes} every {jump_s:s}",
                jump_bytes=growth.jump_bytes,
                jump_s=round(growth.jump_s),
            ),
            "sawtooth": say(
                "memory in use rose and fell every {jump_s:s}; its peaks {rose}",
                jump_s=round(growth.jump_s),
                rose=say("rose by {rate:bytes} a minute", rate=rate) if rate else say("did not rise"),
            ),
        }[growth.kind]
        yield FACT.trace.growth, growth.kind, says
        yield FACT.trace.is_growing, growth.slope_bytes_per_s > 0, says
    yield from _late_growth(settled, window.limit_bytes)
    yield from _grown_shmem(window, settled[0][0] if settled else window.until_s)
    if not starts:
        return
    peaks: list[tuple[float, int]] = []
    times = [at for at, _ in window.use]
    for begin, end in zip(starts, [*starts[1:], window.until_s]):
        inside = window.use[bisect_left(times, begin) : bisect_right(times, end)]
        if inside:
            peaks.append((float(len(peaks)), max(value for _, value in inside)))
    if len(peaks) < _LEAST_STEPS:
        return
    warm = peaks[1:] if len(peaks) > _LEAST_STEPS else peaks  # the first step loads and warms up
    slope, _, _ = theil_sen(warm)
    rises = [two[1] - one[1] for one, two in pairwise(warm)]
    up = sum(1 for rise in rises if rise > 0.001 * warm[0][1])
    grown = (warm[-1][1] - warm[0][1]) / max(warm[0][1], 1)
    yield (
        FACT.host.slope_bytes_per_step,
        int(slope),
        say(
            "the peak of each step rose by {slope:bytes} a step over {steps}",
            slope=slope,
            steps=plural("{n} step", "{n} steps", len(warm)),
        ),
    )
    yield (
        FACT.host.rising_steps_ratio,
        up / max(1, len(rises)),
        say("it rose in {up} of {steps}", up=up, steps=plural("{n} step", "{n} steps", len(rises))),
    )
    yield FACT.host.growth_ratio, grown, say("the peaks grew by {grown:share}", grown=grown)


def _late_growth(points: Sequence[tuple[float, int]], limit_bytes: int) -> Rows:
    """How much of the limit the last tenth of the time stood above the second quarter: loading is over by then."""
    if len(points) < _LEAST_POINTS:
        return
    first_s, last_s = points[0][0], points[-1][0]
    early = [value for at, value in points if 0.25 <= (at - first_s) / (last_s - first_s) < 0.5]
    late = [value for at, value in points if (at - first_s) / (last_s - first_s) >= 0.9]
    if not early or not late:
        return
    rise = median(late) - median(early)
    yield (
        FACT.trace.late_growth_ratio,
        rise / limit_bytes,
        say("it rose by {rise:bytes} from the second quarter of the time to its end", rise=int(rise)),
    )


def _grown_shmem(window: FailureWindow, since_s: float) -> Rows:
    """How much of what the limit's cgroup grew by is shmem (page-locked or shared) rather than anonymous memory."""
    uid = next((int(u) for u, row in window.trace.known["cgroup"].items() if row.get(R.path) == window.limit), None)
    if uid is None:
        return
    grown = {}
    for kind in ("anon", "shmem"):
        series = [
            value
            for at, value in window.trace.series("cgroup", uid, f"{kind}_bytes")
            if since_s <= at <= window.until_s
        ]
        grown[kind] = max(0, series[-1] - series[0]) if series else 0
    total = sum(grown.values())
    if total >= SIGNIFICANT_RATIO * (window.limit_bytes or 0):
        ratio = grown["shmem"] / total
        yield (
            FACT.trace.grown_shmem_ratio,
            ratio,
            say(
                "{ratio:share} of the growth of {total:bytes} is shmem (page-locked or shared)",
                ratio=ratio,
                total=total,
            ),
        )


def _thin(points: Sequence[tuple[float, int]], count: int = 480) -> list[tuple[float, int]]:
    step = max(1, len(points) // count)
    return (
        list(points[::step])
        if step == 1
        else [max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step)]
    )
