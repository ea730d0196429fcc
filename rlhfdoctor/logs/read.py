"""A log -> its events, with the lines at its end that no pattern knows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from rlhfdoctor.faults import isolated
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.logs.events import left_out_gaps, read_events
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.logs.unrecognised import Tail
from rlhfdoctor.types import Event, Gap
from rlhfdoctor.vocabulary.names import Kind


@dataclass(slots=True)
class Reading:
    """What was read of one log."""

    events: list[Event] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    line_end_count: int = 0
    byte_count: int = 0
    left_out: Counter[Kind] = field(default_factory=Counter)
    """Events between the first and the last ones of a flood."""


def read_log(source: Source, scanner: Scanner, reading: Reading, progress: Callable[[int], None]) -> Reading:
    """Reads a log into `reading`, whose gaps the source may add to; `progress` is given the bytes of each piece."""
    with isolated(quoted(source.name), reading.gaps):
        scan_log(source, scanner, reading, progress)
    note_left_out(reading, source.name)
    return reading


def note_left_out(reading: Reading, name: str) -> None:
    """What was left out of a log as gaps."""
    reading.gaps.extend(left_out_gaps(name, reading.left_out))


def scan_log(source: Source, scanner: Scanner, reading: Reading, progress: Callable[[int], None]) -> None:
    """The same without gaps for what was left out, of which a part of a log knows only a part."""

    def counted() -> Iterator[bytes]:
        for piece in source.stream():
            reading.byte_count += len(piece)
            progress(len(piece))
            yield piece

    def stream() -> Iterator[bytes]:
        return counted() if source.window.is_open() else source.window.blank(counted(), source.zone)

    tail = Tail(replace(source, stream=stream))
    events = read_events(replace(source, stream=tail.stream), scanner, reading.gaps, reading.left_out)
    reading.events.extend(map(tail.know, events))
    reading.line_end_count = scanner.line_end_count
    reading.events.extend(tail.unrecognised(reading.line_end_count, lambda line: any(scanner.scan([line]))))
