"""Work by fresh interpreters: order, failures, no workers within workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from rlhfdoctor import interpreters

HERE = f"{__name__}:make"


def make(most: int) -> Callable[[int, Callable[[int], None]], object]:
    """Answers a number with what is asked for; one that is too large ends the worker."""

    def answer(order: int, say: Callable[[int], None]) -> object:
        if order > most:
            os.kill(os.getpid(), signal.SIGKILL)
        say(order)
        return {"order": order, "workers": interpreters.count_workers(9), "pid": os.getpid()}

    return answer


@pytest.mark.parametrize("count", [1, 2, 3])
def test_answers_come_in_order(count: int) -> None:
    """However many workers, with what each reported on the way; none of them starts others."""
    heard: list[tuple[int, int]] = []
    found = list(interpreters.answers(HERE, [9], [3, 1, 2], count, lambda number, size: heard.append((number, size))))
    assert [answer["order"] for answer in found] == [3, 1, 2]
    assert sorted(heard) == [(0, 3), (1, 1), (2, 2)]
    assert {answer["workers"] for answer in found} == {0}
    assert os.getpid() not in {answer["pid"] for answer in found}


def test_another_takes_the_place_of_one_that_ended() -> None:
    """What ends a worker costs its own answer only."""
    found = list(interpreters.answers(HERE, [5], [1, 9, 2, 8, 3], 1))
    assert [answer and answer["order"] for answer in found] == [1, None, 2, None, 3]


def test_workers_that_never_answer_are_not_started_again() -> None:
    """Where even the first order ends a worker, nothing is tried for ever."""
    assert list(interpreters.answers(HERE, [0], [1, 2, 3], 2)) == [None, None, None]
    assert list(interpreters.answers("no.such.module:make", [], [1], 1)) == [None]


def test_left_early() -> None:
    """Who stops listening leaves no process behind."""
    found = interpreters.answers(HERE, [9], list(range(50)), 2)
    pids = {next(found)["pid"] for _ in range(4)}  # type: ignore[index]
    found.close()
    assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
