"""The job's output: what its files gained, passed on or kept as the last lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from rlhfdoctor.files.read import open_binary

_LOG_LINES = 40
_PUMP_S = 0.5


@dataclass(slots=True)
class Output:
    """The job's output files, read on as they grow."""

    folder: Path
    through: bool
    """Pass it on to our own standard output and error."""
    lines: list[str] = field(default_factory=list)
    _files: dict[Path, IO[bytes]] = field(default_factory=dict)
    """Open for as long as we wait: the folder may be moved meanwhile."""

    def pump(self) -> bool:
        """What is new, passed on byte for byte or kept as the last lines; whether there is more.

        A slow reader may take longer than the job: after half a second the caller has its turn.
        """
        until = time.monotonic() + _PUMP_S
        for name, stream in (("job.log", sys.stdout), ("job.out.log", sys.stdout), ("job.err.log", sys.stderr)):
            for data in self._fresh(self.folder / "logs" / name):
                if self.through:
                    self._pass(stream, data)
                else:
                    text = data.decode("utf-8", "replace").replace("\r", "\n")
                    self.lines.extend(line for line in text.split("\n") if line.strip())
                    del self.lines[:-_LOG_LINES]
                if time.monotonic() > until:
                    return True
        return False

    def _fresh(self, path: Path) -> Iterator[bytes]:
        with contextlib.suppress(OSError):
            if path not in self._files:
                self._files[path] = open_binary(path, follow=False)
            while data := self._files[path].read(1 << 16):
                yield data

    def _pass(self, stream: IO[str] | None, data: bytes) -> None:
        try:
            if stream is None:
                raise ValueError("closed")
            stream.buffer.write(data)  # type: ignore[attr-defined]
            stream.flush()
        except (OSError, ValueError):  # our reader is gone; the run is not
            self.through = False
