"""A run that hangs at its limit: a recorded one, and what is none."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from rlhfdoctor.record.hang import Hangs
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.schema import TABLES
from rlhfdoctor.trace.segment import SegmentReader
from tests.record.build import make_limit

ROOT = Path(__file__).parents[2]


def hung(course: Mapping[int, tuple[float, Mapping[int, int]]]) -> list[float]:
    """For how long a run has been hanging, at each second: how full its limit is, and its processes' faults."""
    hangs, found = Hangs(), []
    for second, (ratio, faults) in course.items():
        limit = make_limit(ratio)
        hangs.check(float(second), [limit], lambda faults=faults: faults)  # type: ignore[misc]
        found.append(limit.hangs_s)
    return found


@pytest.mark.parametrize(
    ("ratio", "faults", "expected"),
    [
        pytest.param(0.99, lambda t: {1: 5 * t, 2: 3 * t}, 59, id="all read"),
        pytest.param(0.99, lambda t: {1: 5 * t, 2: 0}, 59, id="half of them read"),
        pytest.param(0.99, lambda t: {1: 5 * t, 2: 0, 3: 0}, 0, id="one of three reads"),
        pytest.param(0.99, lambda t: {1: t // 20, 2: t // 20}, 0, id="hardly any faults"),
        pytest.param(0.9, lambda t: {1: 5 * t, 2: 3 * t}, 0, id="not full"),
        pytest.param(0.99, lambda t: {}, 0, id="no process"),
    ],
)
def test_hang(ratio, faults, expected: int) -> None:  # type: ignore[no-untyped-def]
    """It hangs where the limit is full and half of the processes, at least, read their pages back."""
    found = hung({second: (ratio, faults(second)) for second in range(60)})
    assert (found[-1], found[19]) == (expected, 0)


def test_faults_of_before() -> None:
    """A program that always reads mapped data does not hang because its limit is full."""
    found = hung({second: (0.5 if second < 200 else 0.99, {1: 40 * second}) for second in range(300)})
    assert max(found) == 0


def test_recorded_hang() -> None:
    """The recorded hang is seen while it lasts, half a minute before somebody ended it."""
    hangs, said, first_s = Hangs(), [], None
    names = TABLES["process"].index("major_faults_count")
    for path in sorted((ROOT / "samples" / "recorded-hang" / "run").glob("*.trace")):
        for item in SegmentReader(str(path)).read([], final=True):
            if not isinstance(item, Sample) or "process" not in item.tables:
                continue
            at_s = item.mono_ns / 1e9
            first_s = first_s or at_s
            uids, columns = item.tables["process"]
            faults = dict(zip(uids, columns[names]))
            limits, used = item.tables["limit"][1][1], item.tables["limit"][1][0]
            ratio = max(part / whole for part, whole in zip(used, limits))
            limit = make_limit(ratio)
            hangs.check(at_s, [limit], lambda faults=faults: faults)  # type: ignore[misc]
            if limit.hangs_s:
                said.append(at_s - first_s)
    assert len(said) > 100
    assert 40 < said[0] < 66 and said[-1] > 70
