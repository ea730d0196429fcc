"""A fault of the doctor's own in one part of the work is a gap of that part; the others still answer.

With RLHFDOCTOR_DEBUG=1, as in the tests, it is raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.message import Message, quoted, say
from rlhfdoctor.privacy.secrets import shortened
from rlhfdoctor.types import Gap

Answer = TypeVar("Answer")
PATIENCE_S = 10.0
"""Of processor time for one rule or one finder, which need milliseconds."""
_LOOK_S = 0.1
"""How often another thread's clock is looked at."""


class TooLong(Exception):
    """A part has used up its time."""


@contextlib.contextmanager
def isolated(what: Message, gaps: list[Gap], most_s: float | None = None) -> Iterator[None]:
    """Runs one part: an unexpected exception, or more than so many seconds of processor time, is a gap."""
    try:
        with limited(most_s) if most_s is not None else contextlib.nullcontext():
            yield
    except DoctorError:
        raise
    except Exception as error:  # any fault of this part; the others still answer
        if os.environ.get("RLHFDOCTOR_DEBUG"):
            raise
        if isinstance(error, TooLong):
            why = say("took more than {most_s} s and was left out; please report it", most_s=round(most_s or 0.0, 1))
        else:
            why = say("an error of the doctor itself ({fault}); please report it", fault=quoted(described(error)))
        gaps.append(Gap(what=what, why=why))


def attempt(run: Callable[[], Answer]) -> Answer | Exception:
    """What a part gives, or what it raised: for a caller that goes on whatever that is, in tests, too."""
    try:
        return run()
    except Exception as error:  # its caller goes on: a tick, a source, a storage
        return error


def described(error: Exception) -> str:
    """An exception's class and words, without secrets, at most 300 letters.

    >>> described(ValueError("no access for hf_abcdefghijklmnop"))
    'ValueError: no access for [secret]'
    """
    return shortened(f"{type(error).__name__}: {error}", 300)


@contextlib.contextmanager
def limited(most_s: float) -> Iterator[None]:
    """Raises `TooLong` after so many seconds of processor time: of this process in the main thread, else of the thread.

    A limit within a limit of the main thread has no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        with _watched(most_s):
            yield
        return
    if signal.getitimer(signal.ITIMER_VIRTUAL)[0]:
        yield
        return

    def stop(_signal: int, _frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    try:
        signal.setitimer(signal.ITIMER_VIRTUAL, most_s)
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


@contextlib.contextmanager
def _watched(most_s: float) -> Iterator[None]:
    """A second thread looks at the clock of this one, as signals reach the main thread only."""
    thread, raise_in = threading.get_ident(), ctypes.pythonapi.PyThreadState_SetAsyncExc
    used_s = _clock_of(thread)
    end, is_over, turn = used_s() + most_s, threading.Event(), threading.Lock()

    def watch() -> None:
        while not is_over.wait(_LOOK_S):
            with turn:
                if is_over.is_set():
                    return
                if used_s() > end:
                    raise_in(ctypes.c_ulong(thread), ctypes.py_object(TooLong))
                    return

    watcher = threading.Thread(target=watch, name="time limit", daemon=True)
    try:
        watcher.start()
        yield
    finally:
        is_over.set()
        # what was raised arrives here at the latest; if it were taken back, CPython 3.11 would spin where it traces
        with turn:
            pass
        watcher.join()


def _clock_of(thread: int) -> Callable[[], float]:
    """Processor time of a thread in seconds; where the system has no clock for it (macOS), time that passes."""
    if not hasattr(time, "pthread_getcpuclockid"):
        return time.monotonic
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(thread))
