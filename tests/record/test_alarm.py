"""Alarms: when they fire and when not, and the user's command."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from rlhfdoctor.record.alarm import Alarms
from rlhfdoctor.record.limits import Limit, Limits
from rlhfdoctor.record.notices import Notices
from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary.limits import LIMITS, say_limit
from tests.record.build import make_level, make_limit

SOON, FAR = 300.0, 5000.0


def fired(limits: Sequence[Limit], alarms: Alarms | None = None) -> list[int]:
    """How many alarms each state of the same limit fires, one after the other."""
    alarms = alarms or Alarms(600.0)
    return [len(alarms.check([limit])) for limit in limits]


def at(*left_s: float | None, ratio: float = 0.6) -> list[Limit]:
    """States of one limit with these forecasts."""
    return [make_limit(ratio, left) for left in left_s]


def full(*ratios: float, name: str = "cgroup") -> list[Limit]:
    """States of one limit that is so full, without a forecast."""
    return [make_limit(ratio, name=name) for ratio in ratios]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param(at(SOON, SOON, SOON, SOON, SOON), [0, 0, 1, 0, 0], id="three agree, then once"),
        pytest.param(at(SOON, SOON, None, SOON, SOON, SOON), [0, 0, 0, 0, 0, 1], id="agreement starts anew"),
        pytest.param(at(SOON, FAR, SOON, FAR, SOON, FAR), [0, 0, 0, 0, 0, 0], id="never agree"),
        pytest.param(at(9.0), [1], id="seconds before there is no time to agree"),
        pytest.param(at(601.0, 601.0, 601.0, 601.0), [0, 0, 0, 0], id="later than wished"),
        pytest.param(at(None, None, None, None), [0, 0, 0, 0], id="no growth"),
        pytest.param(at(*[SOON] * 3, FAR, *[SOON] * 3), [0, 0, 1, 0, 0, 0, 1], id="again after it was far"),
        pytest.param(at(*[SOON] * 3, None, *[SOON] * 3), [0, 0, 1, 0, 0, 0, 1], id="again after it stood still"),
        pytest.param(
            at(*[SOON] * 3, 800.0, *[SOON] * 3), [0, 0, 1, 0, 0, 0, 0], id="not again after a moment just above"
        ),
    ],
)
def test_forecast(states: list[Limit], expected: list[int]) -> None:
    """An alarm fires once when forecasts agree, and again only after the limit was well away."""
    assert fired(states) == expected


def hanging(*seconds: float) -> list[Limit]:
    """States of a full limit at which the run has been hanging for so long."""
    states = full(*[0.99] * len(seconds))
    for state, hangs_s in zip(states, seconds, strict=True):
        state.hangs_s = hangs_s
    return states


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param(hanging(0, 0, 20, 21, 22), [1, 0, 1, 0, 0], id="after it was full"),
        pytest.param(hanging(20, 21, 0, 0, 20), [1, 0, 0, 0, 1], id="again after it went on"),
    ],
)
def test_hang(states: list[Limit], expected: list[int]) -> None:
    """A run that hangs at a full limit is an alarm of its own."""
    alarms = Alarms(600.0)
    assert fired(states, alarms) == expected
    assert str(alarms.active[1]).startswith("the run hangs at the container limit, which is full")


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        pytest.param(full(0.94, 0.95, 0.96), [0, 1, 0], id="once"),
        pytest.param(full(0.96, 0.91, 0.96), [1, 0, 0], id="not again while nearly full"),
        pytest.param(full(0.96, 0.85, 0.96), [1, 0, 1], id="again after it was emptied"),
        pytest.param(full(0.99, 0.99, name="node"), [0, 0], id="the node's cache is no matter"),
        pytest.param(full(0.99, name="shm"), [1], id="shm"),
    ],
)
def test_full(states: list[Limit], expected: list[int]) -> None:
    """A limit that is 95 % full raises an alarm without any forecast."""
    assert fired(states) == expected


def fired_by(levels: Iterable[Level]) -> int:
    """How many alarms a cgroup raises, with one state a second."""
    limits, alarms, told = Limits(), Alarms(600.0), 0
    for second, level in enumerate(levels):
        limits.update(float(second), {}, [level], None, [], None)
        told += len(alarms.check(limits.all.values()))
    return told


def test_page_cache() -> None:
    """A cgroup that fills with page cache raises no alarm, however fast the cache grows."""
    assert fired_by(make_level(GIB, 8 * GIB, cache=second * 118 * MIB) for second in range(60)) == 0


def test_growth_of_real_use() -> None:
    """The same growth of memory in use raises one alarm."""
    assert fired_by(make_level(GIB + second * 118 * MIB, 8 * GIB) for second in range(60)) == 1


@pytest.mark.parametrize(
    ("limit", "expected"),
    [
        (make_limit(0.6, 9.0), "container limit will be full in 9 s (6.00 GiB of 10.0 GiB)"),
        (make_limit(0.97), "container limit is 97% full (9.70 GiB of 10.0 GiB)"),
        (make_limit(0.97, name="ray"), "Ray's threshold is 97% full (9.70 GiB of 10.0 GiB)"),
        (make_limit(0.97, name="gpu", level="3"), "GPU 3 is 97% full (9.70 GiB of 10.0 GiB)"),
        (make_limit(0.7, 5.0, name="node"), "node memory will be full in 5 s (7.00 GiB of 10.0 GiB)"),
    ],
)
def test_text(limit: Limit, expected: str) -> None:
    """An alarm says what will be full, when, and how full it is."""
    alarms = Alarms(600.0)
    says = [says for _, says in alarms.check([limit])]
    assert ([str(one) for one in says], alarms.active) == ([expected], {1: says[0]})


def test_names() -> None:
    """All limits have names for people."""
    shown = [str(say_limit(name, "1")) for name in LIMITS]
    assert shown == ["container limit", "node memory", "Ray's threshold", "/dev/shm", "GPU 1"]


def wait_for(path: Path) -> str:
    """The content of a file as soon as it is there."""
    end = time.monotonic() + 20
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.01)
    return path.read_text()


def test_command(tmp_path: Path) -> None:
    """The user's command runs in a shell with the text, the limit and the time left in its environment."""
    values = "|".join(f"$RLHFDOCTOR_{name}" for name in ("ALARM", "LIMIT", "LEVEL", "LEFT_S"))
    script = f'cd {tmp_path} && echo "{values}" > new && mv new told'
    Alarms(600.0, Notices(script)).check([make_limit(0.6, 9.0, level="/a b")])
    assert wait_for(tmp_path / "told") == "container limit will be full in 9 s (6.00 GiB of 10.0 GiB)|cgroup|/a b|9\n"


def test_command_without_a_forecast(tmp_path: Path) -> None:
    """Where no end is in sight the time left is empty, and the command runs once for an alarm that stands."""
    script = f'cd {tmp_path} && echo "left=$RLHFDOCTOR_LEFT_S" >> new && cp new told'
    fired(full(0.96, 0.97, 0.98), Alarms(600.0, Notices(script)))
    assert wait_for(tmp_path / "told") == "left=\n"


@pytest.mark.parametrize("command", ["exit 3", "/nowhere/mail", "kill -9 $$"])
def test_command_that_fails(command: str) -> None:
    """A command that fails changes nothing for the alarm."""
    assert fired(full(0.96, 0.97), Alarms(600.0, Notices(command))) == [1, 0]


def test_a_limit_that_is_gone() -> None:
    """Its alarm is over: nobody shows it any more."""
    alarms = Alarms(600.0)
    assert (fired(at(9.0), alarms), len(alarms.active)) == ([1], 1)
    assert (alarms.check([]), alarms.active, alarms._agreed) == ([], {}, {})
