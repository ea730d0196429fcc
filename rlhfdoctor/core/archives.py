"""Archives read by workers, one each: decompressing takes as long as scanning, in one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from rlhfdoctor import interpreters
from rlhfdoctor.core.file_read import FileRead, read_all
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.window import Window

WORTH_BYTES = 8 * 1024**2
"""Of compressed text: less is read before a worker has started."""


def read_archives(
    archives: Sequence[Source], window: Window, progress: Callable[[str, int], None]
) -> Iterator[list[FileRead] | None] | None:
    """The files of each archive, in order, None where a worker did not answer; None if workers are not worth it.

    Args:
        progress: called with an archive's name and bytes of its files read since the last call.
    """
    sizes = [source.size_bytes or 0 for source in archives]
    count = interpreters.count_workers(len(archives)) if sum(sizes) >= WORTH_BYTES else 0
    if not count:
        return None
    return interpreters.answers(
        f"{__name__}:make_reader",
        [*window],
        [source.name for source in archives],
        count,
        lambda number, size: progress(archives[number].name, size),
        sizes,
    )


def make_reader(since: float | None, until: float | None) -> interpreters.Answerer:
    """What a worker does with the path of an archive."""
    window = Window(since, until)

    def read(path: str, say: Callable[[int], None]) -> list[FileRead]:
        progress = interpreters.Portions(say)
        found = list(read_all([path], lambda source: replace(source, window=window), progress.add))
        progress.end()
        return found

    return read
