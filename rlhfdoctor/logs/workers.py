"""Logs read by interpreters of their own, a core each; what one does not answer is read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import NamedTuple

from rlhfdoctor import interpreters
from rlhfdoctor.logs.events import make_scanner
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.window import Window

WORTH_BYTES = 64 * 1024**2
"""Fewer bytes are read before a worker has started."""
_SAY_BYTES = 4 * 1024**2
"""A worker tells of its progress after so many."""


class Order(NamedTuple):
    """A file to read."""

    path: str
    host: str | None
    zone: tzinfo
    window: Window


def count_workers(sources: Sequence[Source]) -> int:
    """How many workers these files are worth."""
    if sum(source.size_bytes or 0 for source in sources) < WORTH_BYTES:
        return 0
    return interpreters.count_workers(len(sources))


def read_beside(
    sources: Sequence[Source], count: int, engine: str, progress: Callable[[str, int], None]
) -> Iterator[Reading | None]:
    """Reads files by `count` workers; in the order of the files, None for what a worker did not answer.

    Args:
        sources: files that can be opened by their name.
        count: how many workers.
        engine: of the scanner.
        progress: called with a file's name and bytes read since the last call.
    """
    return interpreters.answers(
        f"{__name__}:make_reader",
        [engine],
        [Order(source.name, source.host, source.zone, source.window) for source in sources],
        count,
        lambda number, size: progress(sources[number].name, size),
        [source.size_bytes or 0 for source in sources],
    )


def make_reader(engine: str) -> interpreters.Answerer:
    """What a worker does with an `Order`."""
    scanner = make_scanner(engine)

    def read(order: Order, say: Callable[[int], None]) -> Reading:
        reading = Reading()
        unsaid = 0

        def progress(count: int) -> None:
            nonlocal unsaid
            unsaid += count
            if unsaid >= _SAY_BYTES:
                say(unsaid)
                unsaid = 0

        for source in find_sources([order.path], reading.gaps):
            placed = replace(source, host=order.host, zone=order.zone, window=order.window)
            read_log(placed, scanner, reading, progress)
        say(unsaid)
        return reading

    return read
