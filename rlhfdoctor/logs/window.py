"""A window of time: of text outside of it only the line ends are read, so that lines keep their numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import tzinfo
from typing import NamedTuple

from rlhfdoctor.logs.clock import read_time

_SLACK_S = 600.0
"""Lines of several writers are not in order to the second."""
_LOOK_BYTES = 4096
"""At either end of a piece, where a stamp is looked for."""
_LEAST_BYTES = 64 * 1024
"""Shorter pieces are read in any case."""


class Window(NamedTuple):
    """Unix seconds; None where there is no bound."""

    since: float | None = None
    until: float | None = None

    def holds(self, time_s: float | None) -> bool:
        """Whether it is inside; what has no time is."""
        after = time_s is None or self.since is None or time_s >= self.since
        return after and (time_s is None or self.until is None or time_s <= self.until)

    def is_open(self) -> bool:
        """Whether it has no bound."""
        return self.since is None and self.until is None

    def moved(self, offset_s: float) -> Window:
        """The same moments by a clock that is so much ahead."""
        return Window(*(None if bound is None else bound + offset_s for bound in self))

    def blank(self, stream: Iterable[bytes], zone: tzinfo) -> Iterator[bytes]:
        """The stream with whole pieces outside of the window as line ends.

        A piece stays whose stamps have no year, or that has none where one is looked for.

        Args:
            stream: text in pieces of any size.
            zone: of stamps without one.
        """
        rest = b""
        for piece in stream:
            text = rest + piece
            end = text.rfind(b"\n") + 1
            if not end and len(text) < _LEAST_BYTES:
                rest = text
                continue
            text, rest = (text[:end], text[end:]) if end else (text, b"")
            yield b"\n" * text.count(b"\n") if self._is_outside(text, zone) else text
        if rest:
            yield rest

    def _is_outside(self, text: bytes, zone: tzinfo) -> bool:
        if len(text) < _LEAST_BYTES:
            return False
        if self.since is not None:
            last = _stamp(reversed(text[-_LOOK_BYTES:].split(b"\n")[1:]), zone)
            if last is not None and last < self.since - _SLACK_S:
                return True
        if self.until is not None:
            first = _stamp(text[:_LOOK_BYTES].split(b"\n")[:-1], zone)
            return first is not None and first > self.until + _SLACK_S
        return False


ALWAYS = Window()
"""No bound."""


def _stamp(lines: Iterable[bytes], zone: tzinfo) -> float | None:
    """The first one in these lines."""
    times = (read_time(line.decode("utf-8", "replace"), None, zone) for line in lines)
    return next((time_s for time_s in times if time_s is not None), None)
