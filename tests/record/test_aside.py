"""Work that never comes back: who asks goes on, and takes the result when it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from rlhfdoctor.record.aside import Aside

PLENTY_S = 60.0


def test_result() -> None:
    """What comes at once is taken at once."""
    aside: Aside[int] = Aside(PLENTY_S)
    assert ([aside.run(lambda: 7), aside.run(lambda: 8)], aside.waits_s) == ([7, 8], 0.0)


def test_error() -> None:
    """It is the caller's, and the next work is done."""
    aside: Aside[int] = Aside(PLENTY_S)

    def fail() -> int:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        aside.run(fail)
    assert aside.run(lambda: 7) == 7


def test_work_that_hangs() -> None:
    """Nothing else is begun meanwhile; its result is taken late, and the work after it is done."""
    aside, go, begun = Aside[str](0.01), threading.Event(), []

    def slow() -> str:
        go.wait()
        return "late"

    def other() -> str:
        begun.append(1)
        return "other"

    assert (aside.run(slow), aside.run(other), begun, aside.waits_s > 0) == (None, None, [], True)
    go.set()
    assert aside.run(other, PLENTY_S) == "late"
    assert (aside.run(other, PLENTY_S), aside.waits_s) == ("other", 0.0)


def test_thread_is_a_daemon() -> None:
    """A read that never returns does not keep the recorder alive."""
    before = set(threading.enumerate())
    aside: Aside[Callable[[], int]] = Aside(PLENTY_S)
    aside.run(lambda: int)
    assert [thread.daemon for thread in set(threading.enumerate()) - before] == [True]
