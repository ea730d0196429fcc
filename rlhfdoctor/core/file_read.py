"""One file that was read in another process: what its log holds, or the text of a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from rlhfdoctor.logs.events import make_scanner
from rlhfdoctor.logs.flight import MOST_BYTES, rank_of_dump
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.workers import read_files
from rlhfdoctor.settings.read import CONFIG_LIMIT_BYTES, is_configuration
from rlhfdoctor.types import Gap


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    """What travels from there to here."""

    name: str
    modified: float | None = None
    reading: Reading = field(default_factory=Reading)
    data: bytes | None = None
    """Of configuration or a flight recorder's dump, which are read by the asking side."""

    def as_source(self) -> tuple[Source, Reading | None]:
        """As a session takes it."""
        data = self.data
        if data is not None:
            return Source(self.name, lambda: iter((data,)), len(data), self.modified), None
        return Source(self.name, lambda: iter(()), self.reading.byte_count, self.modified), self.reading


def read_all(
    paths: Sequence[str],
    placed: Callable[[Source], Source],
    progress: Callable[[int], None] = lambda _: None,
    most_workers: int | None = None,
) -> Iterator[FileRead]:
    """All that is below these paths; behind it the gaps of the looking, under no name.

    Args:
        placed: gives a log its host, zone and window.
        progress: called with bytes read since the last call.
        most_workers: of cores that may be used; None for all.
    """
    logs: list[Source] = []
    gaps: list[Gap] = []
    scanner = make_scanner()
    for source in find_sources(paths, gaps):
        if is_configuration(source.name) or rank_of_dump(source.name) is not None:
            data = source.read(CONFIG_LIMIT_BYTES if is_configuration(source.name) else MOST_BYTES)
            progress(len(data))
            reading = Reading(byte_count=len(data))
            yield FileRead(name=source.name, modified=source.modified, reading=reading, data=data)
        elif source.is_file:
            logs.append(placed(source))
        else:
            reading = read_log(placed(source), scanner, Reading(), progress)
            yield FileRead(name=source.name, modified=source.modified, reading=reading)
    found = read_files(logs, [Reading() for _ in logs], scanner, lambda _name, size: progress(size), most_workers)
    for source, reading in zip(logs, found):
        yield FileRead(name=source.name, modified=source.modified, reading=reading)
    yield FileRead(name="", reading=Reading(gaps=gaps))
