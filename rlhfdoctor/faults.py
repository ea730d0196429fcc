"""A fault of the doctor's own in one part of the work is a gap of that part; the others still answer.

With RLHFDOCTOR_DEBUG=1, as in the tests, it is raised.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import TypeVar

from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.message import Message, quoted, say
from rlhfdoctor.privacy.secrets import shortened
from rlhfdoctor.types import Gap

Answer = TypeVar("Answer")
PATIENCE_S = 10.0
"""Of processor time for one rule or one finder, which need milliseconds."""


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
            why = say("took more than {most_s} s and was left out; please report it", most_s=most_s)
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
    """Raises `TooLong` after so many seconds of this process's processor time; in the main thread only."""
    if threading.current_thread() is not threading.main_thread() or signal.getitimer(signal.ITIMER_VIRTUAL)[0]:
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
