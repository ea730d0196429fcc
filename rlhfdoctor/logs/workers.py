"""Logs read by interpreters of their own, a core each; what one does not answer is read here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import tzinfo
from itertools import repeat
from typing import NamedTuple

from rlhfdoctor import interpreters
from rlhfdoctor.logs.events import make_scanner
from rlhfdoctor.logs.open import Part, Source, find_sources
from rlhfdoctor.logs.parts import cut, join, read_part
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.logs.window import Window

WORTH_BYTES = 64 * 1024**2
"""Fewer bytes are read before a worker has started."""


class Order(NamedTuple):
    """A file to read."""

    path: str
    host: str | None
    zone: tzinfo
    window: Window
    part: Part | None
    below: str | None


def read_files(
    sources: Sequence[Source],
    readings: Sequence[Reading],
    scanner: Scanner,
    progress: Callable[[str, int], None],
    most_workers: int | None = None,
) -> Iterator[Reading]:
    """Reads files by as many workers as they are worth, large ones in parts; in the order of the files.

    Args:
        sources: files that can be opened by their name.
        readings: one a file; what was read until Ctrl-C is in its events.
        scanner: for what is read here.
        progress: called with a file's name and bytes read since the last call.
        most_workers: of cores that may be used; None for all.
    """
    cuts = [cut(source) for source in sources]
    parts = [part for parts in cuts for part in parts]
    count = min(count_workers(parts), most_workers or len(parts))
    answers = read_beside(parts, count, scanner.engine, progress) if count > 1 else repeat(None)
    for own, reading in zip(cuts, readings):
        if len(own) == 1:
            answer = next(answers)
            yield answer or read_log(own[0], scanner, reading, lambda size, name=own[0].name: progress(name, size))  # type: ignore[misc]
            continue
        found: list[Reading] = []
        try:
            for part in own:
                found.append(next(answers) or _read_here(part, scanner, progress))
        except KeyboardInterrupt:
            reading.events.extend(join(own[0].name, found).events)
            raise
        yield join(own[0].name, found)


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
        sources: files that can be opened by their name, or parts of them.
        count: how many workers.
        engine: of the scanner.
        progress: called with a file's name and bytes read since the last call.
    """
    return interpreters.answers(
        f"{__name__}:make_reader",
        [engine],
        [Order(source.name, source.host, source.zone, source.window, source.part, source.below) for source in sources],
        count,
        lambda number, size: progress(sources[number].name, size),
        [source.size_bytes or 0 for source in sources],
    )


def make_reader(engine: str) -> interpreters.Answerer:
    """What a worker does with an `Order`."""
    scanner = make_scanner(engine)

    def read(order: Order, say: Callable[[int], None]) -> Reading:
        reading, progress = Reading(), interpreters.Portions(say)
        below = {} if order.below is None else {order.path: order.below}
        for source in find_sources([order.path], reading.gaps, below=below):
            placed = replace(source, host=order.host, zone=order.zone, window=order.window)
            if order.part is not None:
                reading = read_part(placed, order.part, scanner, progress.add)
            else:
                read_log(placed, scanner, reading, progress.add)
        progress.end()
        return reading

    return read


def _read_here(part: Source, scanner: Scanner, progress: Callable[[str, int], None]) -> Reading:
    bounds = part.part
    assert bounds is not None
    return read_part(part, bounds, scanner, lambda size: progress(part.name, size))
