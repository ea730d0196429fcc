"""How much processor time one analysis gives to texts that take more than their length is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import process_time

_MIB = 1024**2
_LONG_S = 2.0
"""For the long lines of one log: a MiB that begins a message over and over takes a minute."""
_ALL_LONG_S = 4.0
_LEAST_LONG_S = 0.2
"""For the long lines of a log that comes after those which took the time for all."""
_RESTORED_S = 3.0
_RESTORED_S_PER_MIB = 0.5
"""A log in JSON with escapes, a step in each third line, takes half of it."""


@dataclass(slots=True)
class Patience:
    """What was spent so far, in seconds of processor time, on the logs of one analysis."""

    long_s: float = 0.0
    restored_s: float = 0.0
    restored_bytes: int = 0

    def has_for_long(self, spent_s: float) -> bool:
        """Whether a log whose long lines took so much may look at one more place of them."""
        return spent_s <= (_LONG_S if self.long_s <= _ALL_LONG_S else _LEAST_LONG_S)

    def has_for_restoring(self) -> bool:
        """Whether one more block may be read as it was before it was quoted or translated."""
        return self.restored_s <= _RESTORED_S + _RESTORED_S_PER_MIB * self.restored_bytes / _MIB

    @contextmanager
    def restoring(self, byte_count: int) -> Iterator[None]:
        """Counts what a block of this size takes."""
        began_s = process_time()
        yield
        self.restored_s += process_time() - began_s
        self.restored_bytes += byte_count
