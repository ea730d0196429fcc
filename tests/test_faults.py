"""A part that takes too long is stopped, in whatever thread it works."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from rlhfdoctor.faults import TooLong, isolated, limited
from rlhfdoctor.i18n.message import quoted


def endless() -> None:
    """Takes processor time until it is stopped."""
    with limited(0.2):
        while True:
            pass


def in_thread(work) -> list[object]:  # type: ignore[no-untyped-def]
    """What a thread's work gives or raises."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # what the thread would print
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found


def test_in_the_main_thread() -> None:
    """By a signal."""
    with pytest.raises(TooLong):
        endless()


def test_in_another_thread() -> None:
    """By the clock of that thread, which stands still while it waits."""
    assert [type(error) for error in in_thread(endless)] == [TooLong]

    def waits() -> str:
        with limited(0.2):
            time.sleep(0.6)
        return "done"

    assert in_thread(waits) == ["done"]


def test_a_limit_within_a_limit() -> None:
    """In a thread each of them counts, the inner one and the outer one."""

    def work(outer_s: float, inner: Callable[[], None]) -> str:
        try:
            with limited(outer_s):
                try:
                    inner()
                except TooLong:
                    return "inner"
                while True:
                    pass
        except TooLong:
            return "outer"

    def short() -> None:
        with limited(60):
            pass

    assert in_thread(lambda: work(60, endless)) == ["inner"]
    assert in_thread(lambda: work(0.3, short)) == ["outer"]


def test_nothing_arrives_late() -> None:
    """Behind a part that ends in time, nothing is raised; a hundred of them leave no thread behind."""

    def work() -> int:
        for _ in range(100):
            with isolated(quoted("x"), [], 5):
                pass
        return sum(thread.name == "time limit" for thread in threading.enumerate())

    assert in_thread(work) == [0]


def test_a_debugger_works_behind_it() -> None:
    """CPython 3.11 spins for ever in a traced function once an exception for a thread was taken back."""
    code = (
        "import sys, threading, rlhfdoctor.faults as faults\n"
        "def work():\n"
        "    with faults.limited(5): pass\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
        "def traced(): return 'done'\n"
        "sys.settrace(lambda *_: None); print(traced())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "done\n", done.stderr
