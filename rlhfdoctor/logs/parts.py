"""One large log as parts that are read beside each other, joined again.

A log is cut whether or not there are cores for its parts, so that the answer does not depend on the machine.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import IO

from rlhfdoctor.faults import isolated
from rlhfdoctor.files.read import is_sparse, open_binary, open_sized
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.logs.blocks import LONGEST_LINE
from rlhfdoctor.logs.flood import KEEP_COUNT
from rlhfdoctor.logs.open import Part, Source, guarded
from rlhfdoctor.logs.read import Reading, note_left_out, scan_log
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.logs.streams import READ_BYTES, is_compressed
from rlhfdoctor.logs.thin import ends
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT

PART_BYTES = 128 * 1024**2
_BEHIND_BYTES = 128 * 1024
"""Of the next part, for what a message at the end of a part goes on with; a flood's events there are counted twice."""
_HEAD_BYTES = 4096


def cut(source: Source) -> list[Source]:
    """The parts of a log, or the log alone: if it is small, compressed, or not in UTF-8 from its start."""
    size = source.size_bytes or 0
    if size < 2 * PART_BYTES or not source.is_file or is_compressed(source.name) or not _is_plain(source):
        return [source]
    begins = range(0, size - PART_BYTES + 1, PART_BYTES)  # the last one has up to two
    places = list(zip(begins, [*begins[1:], None]))
    return [replace(source, part=Part(*place), size_bytes=(place[1] or size) - place[0]) for place in places]


def read_part(source: Source, part: Part, scanner: Scanner, progress: Callable[[int], None]) -> Reading:
    """What a part of a log holds; lines are counted from its begin."""
    reading = Reading()
    lines = size = 0

    def blocks() -> Iterator[bytes]:
        nonlocal lines, size
        with open_sized(source.name, below=source.below) as raw:
            end = None if part.end is None else _line_at(raw, part.end)
            raw.seek(_line_at(raw, part.begin))
            while piece := raw.read(READ_BYTES if end is None else min(READ_BYTES, end - raw.tell())):
                lines += piece.count(b"\n")
                size += len(piece)
                yield piece
            if end is not None:
                yield raw.read(_BEHIND_BYTES)

    stream = replace(source, stream=lambda: guarded(source.name, blocks, reading.gaps))
    with isolated(quoted(source.name), reading.gaps):
        scan_log(stream, scanner, reading, progress)
    is_last = part.end is None
    reading.events = [
        event
        for event in reading.events
        if is_last or (event.kind != EVENT.job.unrecognised and (event.origin.line or 0) <= lines)
    ]
    reading.line_end_count, reading.byte_count = lines, size
    return reading


def join(name: str, readings: Sequence[Reading]) -> Reading:
    """The reading of a whole log from those of its parts: of a flood of one kind the first and last events of all."""
    joined = Reading()
    for reading in readings:
        joined.events += [_moved(event, joined.line_end_count) for event in reading.events]
        joined.gaps += [gap for gap in reading.gaps if gap not in joined.gaps]
        joined.left_out.update(reading.left_out)
        joined.line_end_count += reading.line_end_count
        joined.byte_count += reading.byte_count
    joined.events.sort(key=lambda event: event.origin.line or 0)
    counts = Counter(event.kind for event in joined.events)
    joined.events = list(ends(joined.events, counts, KEEP_COUNT))
    for kind, count in counts.items():
        if count > 2 * KEEP_COUNT:
            joined.left_out[kind] += count - 2 * KEEP_COUNT
    note_left_out(joined, name)
    return joined


def _moved(event: Event, lines: int) -> Event:
    line = event.origin.line
    return event if line is None else replace(event, origin=replace(event.origin, line=line + lines))


def _line_at(raw: IO[bytes], place: int) -> int:
    """Where the first line behind a place begins; the place itself within a line without end, or at the start."""
    if place == 0:
        return 0
    raw.seek(place - 1)
    ahead = raw.read(LONGEST_LINE)
    return place + ahead.find(b"\n") if b"\n" in ahead else place


def _is_plain(source: Source) -> bool:
    try:
        with open_binary(source.name, below=source.below) as file:
            if is_sparse(file.fileno(), os.fstat(file.fileno()).st_size):
                return False
            head = file.read(_HEAD_BYTES)
    except OSError:
        return False  # reading it will say why
    return b"\0" not in head and not head.startswith((b"\xff\xfe", b"\xfe\xff"))
