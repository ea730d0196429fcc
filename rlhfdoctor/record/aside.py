"""Reads what may never answer, such as files on a mount that hangs, in a thread: who asks waits a moment for it."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from rlhfdoctor.faults import attempt

Found = TypeVar("Found")
_PATIENCE_S = 0.25
_STACK_BYTES = 512 << 10


def start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    """A thread with a small stack, which ends with the process."""
    before = threading.stack_size(_STACK_BYTES)
    try:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
    finally:
        threading.stack_size(before)
    return thread


class Aside(Generic[Found]):
    """One piece of work at a time; it ends with the process, whatever it waits for."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """Starts no thread yet."""
        self.patience_s = patience_s
        self._orders: queue.SimpleQueue[Callable[[], Found]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[Found | Exception] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._since_s: float | None = None

    def run(self, work: Callable[[], Found], patience_s: float | None = None) -> Found | None:
        """The result, or that of the work before, which took too long; None while neither is there.

        Raises:
            Exception: what the work raised.
        """
        if self._since_s is None:
            self._thread = self._thread or start_thread("aside", self._loop)
            self._orders.put(work)
            self._since_s, wait_s = time.monotonic(), self.patience_s
        else:
            wait_s = 0.0
        try:
            found = self._results.get(timeout=wait_s if patience_s is None else patience_s)
        except queue.Empty:
            return None
        self._since_s = None
        if isinstance(found, Exception):
            raise found
        return found

    @property
    def waits_s(self) -> float:
        """For how long the work has been under way; 0 while there is none."""
        return 0.0 if self._since_s is None else time.monotonic() - self._since_s

    def _loop(self) -> None:
        while True:
            self._results.put(attempt(self._orders.get()))
