"""Sources that may block are read in a background thread, so that no tick waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rlhfdoctor.faults import attempt
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.record.aside import start_thread
from rlhfdoctor.types import Gap

_LONGEST_PAUSE_S = 300.0


@dataclass(slots=True)
class Job:
    """One slow source."""

    name: str
    every_s: float
    run: Callable[[], Any]
    due_s: float = 0.0
    pause_s: float = 0.0
    """Grows with every failure in a row."""
    failed: set[str] = field(default_factory=set)


class SlowLane:
    """Runs jobs one after the other; the newest result of each can be had at any time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._jobs: list[Job] = []
        self._results: dict[str, Any] = {}
        self._gaps: list[Gap] = []
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._clock = clock
        self._thread: threading.Thread | None = None

    def add(self, name: str, every_s: float, run: Callable[[], Any]) -> None:
        """A job that raises is tried again after a growing pause."""
        self._jobs.append(Job(name, every_s, run))

    def start(self) -> None:
        """Starts the thread; it ends with the process."""
        self._thread = start_thread("slow lane", self._loop)

    def _loop(self) -> None:
        while not self._stop.wait(self.step()):
            pass

    def step(self) -> float:
        """Runs what is due; seconds until the next is."""
        for job in list(self._jobs):
            now = self._clock()
            if now < job.due_s:
                continue
            result = attempt(job.run)
            if isinstance(result, Exception):
                job.pause_s = min(max(job.every_s, job.pause_s * 2), _LONGEST_PAUSE_S)
                job.due_s = now + job.pause_s
                why = str(result) or type(result).__name__
                if why not in job.failed and len(job.failed) < 5:
                    job.failed.add(why)
                    with self._lock:
                        self._gaps.append(Gap(what=quoted(job.name), why=quoted(why)))
                continue
            job.pause_s, job.due_s = 0.0, now + job.every_s
            with self._lock:
                self._results[job.name] = result
        return max(0.05, min([1.0, *(job.due_s - self._clock() for job in self._jobs)]))

    def take(self, name: str) -> Any:
        """The newest result that was not taken yet, or None."""
        with self._lock:
            return self._results.pop(name, None)

    def gaps(self) -> list[Gap]:
        """What failed since the last call; each reason of a job once."""
        with self._lock:
            found, self._gaps = self._gaps, []
        return found

    def stop(self) -> None:
        """Lets the thread end; a hanging source ends with the process."""
        self._stop.set()
