"""One JSON Lines file a process: what each rank did or measured, written so that training is never blocked by it.

    {"at": 1767225600.1, "role": "actor", "rank": 0, "step": 3, "span": "update", "edge": "start"}
    {"at": 1767225602.9, "role": "actor", "rank": 0, "step": 3, "span": "update", "edge": "end", "seconds": 2.8}
    {"at": 1767225602.9, "role": "actor", "rank": 0, "step": 3, "actor_loss": -0.01, "rss_bytes": 734003200}

A span that dies ends with `"edge": "error"`. JSON has no NaN: a figure that is not finite is null. A full disk costs
lines, not the run.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from rlhfdoctor import marks


class Metrics:
    """Writes the lines of one process, and the doctor's phase marks beside them."""

    def __init__(self, folder: str | Path, role: str, rank: int = 0) -> None:
        self._base = {"role": role, "rank": rank}
        self._process = psutil.Process()
        self.step = 0
        self._file = None
        with contextlib.suppress(OSError):
            Path(folder).mkdir(parents=True, exist_ok=True)
            self._file = open(Path(folder, f"{role}-rank{rank}.jsonl"), "a", buffering=1)  # noqa: SIM115

    def write(self, **values: object) -> None:
        """One line with the present step; `rss_bytes` of this process is added."""
        self._line({**values, "rss_bytes": self._process.memory_info().rss})

    @contextlib.contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Marks begin and end of a phase here and for `doctor watch`."""
        began = time.perf_counter()
        self._line({"span": name, "edge": "start"})
        edge = "error"
        try:
            with marks.phase(name, step=self.step):
                yield
            edge = "end"
        finally:
            self._line({"span": name, "edge": edge, "seconds": round(time.perf_counter() - began, 4)})

    def _line(self, values: dict[str, object]) -> None:
        if self._file is not None:
            plain = {key: None if isinstance(v, float) and not math.isfinite(v) else v for key, v in values.items()}
            with contextlib.suppress(OSError, ValueError, TypeError):
                line = {"at": round(time.time(), 3), **self._base, "step": self.step, **plain}
                self._file.write(json.dumps(line, default=str) + "\n")
