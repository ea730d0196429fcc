"""Calls in a thread, one at a time; one that the client cancels is stopped before the next begins."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio
import anyio.abc
import anyio.to_thread

Answer = TypeVar("Answer")


class _Stopped(BaseException):
    """Raised in the thread of a cancelled call; no part of the work that isolates its faults catches it."""


class _Call:
    """Work in a thread that another thread can stop."""

    def __init__(self, work: Callable[[], Answer], stopped: Answer) -> None:
        self._work, self._stopped = work, stopped
        self._thread: int | None = None
        self._is_over, self._turn = False, threading.Lock()

    def run(self) -> object:
        """What the work gives, or `stopped`."""
        try:
            with self._turn:
                if self._is_over:
                    return self._stopped
                self._thread = threading.get_ident()
            try:
                return self._work()
            finally:
                with self._turn:  # what was raised meanwhile arrives here at the latest
                    self._is_over = True
        except _Stopped:
            return self._stopped

    def stop(self) -> None:
        """Ends the work at its next step in Python, or before it begins."""
        with self._turn:
            if self._thread is not None and not self._is_over:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(_Stopped))
            self._is_over = True


def one_at_a_time() -> Callable[[Callable[[], Answer], Answer], Awaitable[Answer]]:
    """A function (work, answer of a cancelled call) -> answer, whose calls wait for each other."""
    turn = anyio.Lock()

    async def run(work: Callable[[], Answer], stopped: Answer) -> Answer:
        async with turn:
            call = _Call(work, stopped)
            found: list[object] = []
            async with anyio.create_task_group() as group:
                await group.start(_stop_if_cancelled, call)  # one that has not begun is cancelled without its `finally`
                found.append(await anyio.to_thread.run_sync(call.run))  # waits for the thread even if it is cancelled
                group.cancel_scope.cancel()
            return found[0]  # type: ignore[return-value]

    return run


async def _stop_if_cancelled(call: _Call, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    try:
        task_status.started()
        await anyio.sleep_forever()
    finally:
        call.stop()
