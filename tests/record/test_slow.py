"""The slow lane: due times, failures with growing pauses, gaps told once, results taken once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.record.background import SlowLane
from rlhfdoctor.types import Gap


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Source:
    """A job that gives how often it ran, or raises what it is told to."""

    def __init__(self, *errors: Exception | None) -> None:
        self.errors, self.runs = list(errors), 0

    def __call__(self) -> int:
        self.runs += 1
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.runs


def make_lane(source: Callable[[], object], every_s: float = 10.0) -> tuple[SlowLane, Clock]:
    """A lane with one job."""
    clock = Clock()
    lane = SlowLane(clock)
    lane.add("gpu", every_s, source)
    return lane, clock


def run_at(lane: SlowLane, clock: Clock, source: Source, times: Sequence[float]) -> list[int]:
    """How often the source has run after a step at each of these times."""
    counts = []
    for clock.now in times:
        lane.step()
        counts.append(source.runs)
    return counts


def test_result_is_taken_once() -> None:
    """A result is given once; before the first run there is none, and there is none of an unknown job."""
    lane, _ = make_lane(Source())
    before = lane.take("gpu")
    lane.step()
    assert (before, lane.take("gpu"), lane.take("gpu"), lane.take("other")) == (None, 1, None, None)


def test_newest_result() -> None:
    """Of results that nobody took only the newest is kept."""
    lane, clock = make_lane(Source())
    lane.step()
    clock.now += 10
    lane.step()
    assert (lane.take("gpu"), lane.take("gpu")) == (2, None)


def test_due() -> None:
    """A job runs at once, and then when its time has come."""
    source = Source()
    lane, clock = make_lane(source, 10)
    assert run_at(lane, clock, source, [100, 105, 109.9, 110, 119, 125]) == [1, 1, 1, 2, 2, 3]


@pytest.mark.parametrize(
    ("every_s", "passed_s", "expected"),
    [(10, 0, 1.0), (0.5, 0, 0.5), (0.5, 0.3, 0.2), (0.01, 0, 0.05), (10, 9.25, 0.75)],
    ids=["at most a second", "its time", "what is left of it", "never without a pause", "what is left of much"],
)
def test_sleep(every_s: float, passed_s: float, expected: float) -> None:
    """A step says how long to sleep: until the next job, between 50 ms and a second."""
    lane, clock = make_lane(Source(), every_s)
    first = lane.step()
    clock.now += passed_s
    assert pytest.approx(expected) == (lane.step() if passed_s else first)


def test_no_jobs() -> None:
    """A lane without jobs sleeps for a second."""
    lane = SlowLane(Clock())
    assert (lane.step(), lane.gaps(), lane.take("gpu")) == (1.0, [], None)


def test_growing_pause() -> None:
    """After each failure in a row the pause is twice as long; a success ends it."""
    source = Source(OSError("a"), OSError("a"), OSError("a"), None, OSError("a"))
    lane, clock = make_lane(source, 10)
    times = [100, 109, 110, 129, 130, 169, 170, 179, 180, 189, 190]
    assert run_at(lane, clock, source, times) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6]


def test_longest_pause() -> None:
    """No pause is longer than five minutes."""
    source = Source(*[OSError("a")] * 20)
    lane, clock = make_lane(source, 100)
    assert run_at(lane, clock, source, [1000, 1100, 1300, 1600, 1899, 1900]) == [1, 2, 3, 4, 4, 5]


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError("no driver"), "no driver"),
        (ImportError("no module"), "no module"),
        (ValueError("no number"), "no number"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), "'utf-8' codec can't decode byte 0xff in position 0: bad"),
        (TimeoutError(), "TimeoutError"),
        (OSError(), "OSError"),
        (PermissionError(13, "Permission denied", "/x"), "[Errno 13] Permission denied: '/x'"),
    ],
)
def test_failure_is_a_gap(error: Exception, why: str) -> None:
    """A failure is one gap of the job with its reason, and there is no result."""
    lane, _ = make_lane(Source(error))
    lane.step()
    assert ([Gap(what=quoted("gpu"), why=quoted(why))], [], None) == (lane.gaps(), lane.gaps(), lane.take("gpu"))


def test_same_failure_is_told_once() -> None:
    """A reason is reported once, also when the job worked meanwhile; another reason is reported."""
    source = Source(OSError("a"), OSError("a"), None, OSError("a"), OSError("b"))
    lane, clock = make_lane(source, 10)
    assert run_at(lane, clock, source, [1000, 2000, 3000, 4000, 5000]) == [1, 2, 3, 4, 5]
    assert [Gap(what=quoted("gpu"), why=quoted("a")), Gap(what=quoted("gpu"), why=quoted("b"))] == lane.gaps()


def test_few_reasons() -> None:
    """A source that fails differently each time does not fill the report."""
    source = Source(*[OSError(str(number)) for number in range(20)])
    lane, clock = make_lane(source, 10)
    run_at(lane, clock, source, [1000.0 * number for number in range(1, 21)])
    assert (source.runs, [str(gap.why) for gap in lane.gaps()]) == (20, ["0", "1", "2", "3", "4"])


def test_result_survives_a_failure() -> None:
    """A result that nobody took yet is still there after a failure."""
    source = Source(None, OSError("a"))
    lane, clock = make_lane(source, 10)
    assert (run_at(lane, clock, source, [100, 110]), lane.take("gpu")) == ([1, 2], 1)


def test_jobs_do_not_hinder_each_other() -> None:
    """One job that fails leaves the others as they are."""
    lane = SlowLane(Clock())
    lane.add("bad", 10, Source(OSError("a")))
    lane.add("good", 10, Source())
    lane.step()
    assert (None, 1, [Gap(what=quoted("bad"), why=quoted("a"))]) == (lane.take("bad"), lane.take("good"), lane.gaps())


def test_result_of_none() -> None:
    """A job without a result is no gap."""
    lane, _ = make_lane(lambda: None)
    lane.step()
    assert (lane.take("gpu"), lane.gaps()) == (None, [])


def test_thread() -> None:
    """The lane runs in a thread of its own until it is stopped."""
    ran, before, threads = threading.Event(), threading.stack_size(), list[threading.Thread]()

    def run() -> None:
        threads.append(threading.current_thread())
        ran.set()

    lane = SlowLane()
    lane.add("gpu", 0.05, run)
    lane.start()
    done = ran.wait(10)
    alive = threads[0].is_alive()
    lane.stop()
    threads[0].join(10)
    threading.stack_size(before)
    assert (done, alive, threads[0].is_alive()) == (True, True, False)
    assert threads[0] is not threading.current_thread()


def test_stack_size_of_other_threads() -> None:
    """A small stack is the lane's own; threads that are started later have the usual one."""
    before = threading.stack_size()
    lane = SlowLane(Clock())
    lane.start()
    after = threading.stack_size(before)
    lane.stop()
    assert before == after
