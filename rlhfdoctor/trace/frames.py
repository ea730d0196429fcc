"""Frames: the bytes of a trace. Length, checksum, column deltas, zstd; every frame needs only its key frame.

    marker  d7 'R' 'D' 0a | kind B | codec B | length u32 | crc32 u32 | payload

The checksum covers kind, codec, length and payload. A reader that meets a damaged frame looks for the
next marker. A sample holds deltas against the last key frame, not against the sample before, so that
a lost frame takes no other along (but the key frame does), and a reader may skip frames.

Sample payload: length of the head (u32), the head, then all integers as bytes of equal weight together.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Any, NamedTuple

import zstandard

from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.vocabulary.names import RecordField

MARKER = b"\xd7RD\n"
HEADER, KEY, SAMPLE, EVENT = b"H"[0], b"K"[0], b"S"[0], b"E"[0]
PLAIN, ZSTD = 0, 1
_HEAD = struct.Struct("<4sBBII")
_CHECKED = struct.Struct("<BBI")
_SAMPLE = struct.Struct("<QQqqB")
_TABLE = struct.Struct("<BBI")
_LONGEST = 16 << 20
"""No frame is longer, packed or plain; a larger length is damage."""
_MOST_CELLS = 4 << 20
_MOST_ROWS = 1 << 17
"""Of a table in one sample; 32,768 processes is what Linux numbers by default."""
"""Of one table in one sample: 5,000 processes have 75,000."""
_MISREAD_BYTES = 64 << 20
"""Of frames that turn out to be none, after which the rest of a segment is damage."""

LATEST_NS = 1 << 62
"""In the year 2116: a later time is damage, and some calendars do not have it."""

Rows = tuple[list[int], list[Sequence[int]]]
"""Keys, and one sequence of integers per column."""


class Frame(NamedTuple):
    """One frame as stored in a segment."""

    offset: int
    kind: int
    payload: bytes
    end: int


@dataclass(slots=True)
class Sample:
    """One tick of the recorder."""

    sequence: int
    wall_ns: int
    """CLOCK_REALTIME."""
    mono_ns: int
    """CLOCK_MONOTONIC of this boot."""
    tables: dict[str, Rows]


def pack(kind: int, payload: bytes, codec: int = PLAIN) -> bytes:
    """A frame's bytes."""
    size = len(payload)
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, codec, size)))
    return _HEAD.pack(MARKER, kind, codec, size, crc) + payload


def unpack(
    data: bytes | memoryview, start: int = 0, final: bool = True, offset: int = 0
) -> Iterator[Frame | tuple[int, int]]:
    """Frames of a segment from an offset; damage is given as (offset, length in bytes).

    Args:
        final: False where more bytes may follow: an unfinished frame at the end is then left alone.
        offset: of the data in its file, which the places count from.
    """
    data = bytes(data)
    misread = 0
    decompress = zstandard.ZstdDecompressor().decompress
    at, size = start, len(data)
    while at < size:
        if size - at < _HEAD.size:
            if final:
                yield (offset + at, size - at)
            return
        marker, kind, codec, length, crc = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        if marker == MARKER and length <= _LONGEST:
            if end <= size:
                payload = data[at + _HEAD.size : end]
                if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, codec, length))) == crc:
                    plain = _plain(payload, codec, decompress)
                    place = offset + at
                    yield Frame(place, kind, plain, offset + end) if plain is not None else (place, end - at)
                    at = end
                    continue
                misread += length
            elif not final and data.find(MARKER, at + 1) < 0:
                return
        following = data.find(MARKER, at + 1) if misread <= _MISREAD_BYTES else -1
        if following < 0:
            if final or misread > _MISREAD_BYTES:
                yield (offset + at, size - at)
            elif marker != MARKER and size - at >= len(MARKER):
                yield (offset + at, size - at - len(MARKER) + 1)  # the next marker may begin in its last bytes
            return
        yield (offset + at, following - at)
        at = following


def _plain(payload: bytes, codec: int, decompress: Callable[[bytes, int], bytes]) -> bytes | None:
    """None for an unknown codec, or a payload that is invalid."""
    if codec == PLAIN:
        return payload
    if codec != ZSTD:
        return None
    try:
        if zstandard.frame_content_size(payload) > _LONGEST:  # of a size that is given, the limit below is ignored
            return None
        return decompress(payload, _LONGEST)
    except zstandard.ZstdError:
        return None


class Encoder:
    """Samples -> frames, with a key frame now and then."""

    def __init__(self, tables: Mapping[str, Sequence[str]], key_every: int = 60) -> None:
        """`tables` is written into the header by the caller; their order gives their numbers."""
        self._numbers = {name: number for number, name in enumerate(tables)}
        self._every = key_every
        self._zstd = zstandard.ZstdCompressor(level=3, write_content_size=True)
        self._key: dict[str, Rows] = {}
        self._index: dict[str, tuple[list[int], list[int]]] = {}
        self._key_sequence = 0
        self._sequence = 0
        self._since_key = key_every

    def restart(self) -> None:
        """The next sample becomes a key frame: a new segment begins."""
        self._since_key = self._every

    def encode(self, wall_ns: int, mono_ns: int, tables: Mapping[str, Rows]) -> bytes:
        """The frame of one sample; behind one that cannot be made the next is a key frame, as nothing refers to it.

        Raises:
            OverflowError: a figure has more than 63 bits.
        """
        try:
            return self._frame(wall_ns, mono_ns, tables)
        except OverflowError:
            self.restart()
            raise

    def _frame(self, wall_ns: int, mono_ns: int, tables: Mapping[str, Rows]) -> bytes:
        self._sequence += 1
        key = self._since_key >= self._every
        if key:
            self._key, self._index, self._since_key = dict(tables), {}, 0
            self._key_sequence = self._sequence
        self._since_key += 1
        head = [_SAMPLE.pack(self._sequence, self._key_sequence, wall_ns, mono_ns, len(tables))]
        body = array("q")
        for name, (keys, columns) in tables.items():
            same = not key and keys == self._key.get(name, ((),))[0]
            mask = 0
            kept: list[list[int]] = []
            for number, column in enumerate(columns):
                delta = list(column) if key else list(map(sub, column, self._base(name, number, keys, same)))
                if any(delta):
                    mask |= 1 << number
                    kept.append(delta)
            head.append(_TABLE.pack(self._numbers[name], same, len(keys)))
            head.append(mask.to_bytes((len(columns) + 7) // 8, "little"))
            if not same:
                body.extend(keys)
            for delta in kept:
                body.extend(delta)
        front, raw = b"".join(head), body.tobytes()
        planes = b"".join([raw[i::8] for i in range(8)])
        payload = self._zstd.compress(struct.pack("<I", len(front)) + front + planes)
        return pack(KEY if key else SAMPLE, payload, ZSTD)

    def _base(self, name: str, number: int, keys: list[int], same: bool) -> Sequence[int]:
        """The key frame's column in the order of these keys; 0 where it has no such row."""
        before = self._key.get(name)
        if before is None:
            return [0] * len(keys)
        column = before[1][number]
        if same:
            return column
        known = self._index.get(name)
        if known is None or known[0] != keys:
            places = {key: place for place, key in enumerate(before[0])}
            known = self._index[name] = (list(keys), [places.get(key, -1) for key in keys])
        return [0 if place < 0 else column[place] for place in known[1]]


class Decoder:
    """Frames of one segment -> samples."""

    def __init__(self, tables: Mapping[str, Sequence[str]], only: Mapping[str, Sequence[str]] | None = None) -> None:
        """`tables` as the segment's header lists them; `only` these columns of them are decoded, NULL where unknown."""
        self._names = list(tables)
        self._widths = [len(columns) for columns in tables.values()]
        self._picked: list[Sequence[int | None] | None] = [
            range(len(columns)) if only is None else _places(columns, only[name]) if name in only else None
            for name, columns in tables.items()
        ]
        self._key: dict[str, Rows] = {}
        self._key_sequence = -1

    def decode(self, frame: Frame) -> Sample | None:
        """The sample of a frame; None if its key frame is lost or the payload is invalid."""
        try:
            sample, key_sequence = self._decode(frame)
        except (struct.error, IndexError, ValueError, KeyError, OverflowError):
            return None
        if frame.kind == KEY:
            self._key, self._key_sequence = sample.tables, sample.sequence
        elif key_sequence != self._key_sequence:
            return None
        return sample

    def _decode(self, frame: Frame) -> tuple[Sample, int]:
        payload, key = frame.payload, frame.kind == KEY
        (front,) = struct.unpack_from("<I", payload)
        sequence, key_sequence, wall_ns, mono_ns, table_count = _SAMPLE.unpack_from(payload, 4)
        lost_key = not key and key_sequence != self._key_sequence
        numbers = _numbers(payload, 4 + front)
        at, place = 4 + _SAMPLE.size, 0
        tables: dict[str, Rows] = {}
        for _ in range(0 if lost_key else table_count):
            index, same, rows = _TABLE.unpack_from(payload, at)
            name, wide, picked = self._names[index], (self._widths[index] + 7) // 8, self._picked[index]
            at += _TABLE.size
            mask = int.from_bytes(payload[at : at + wide], "little")
            at += wide
            first = place if same else place + rows
            following = first + mask.bit_count() * rows
            if following > len(numbers) or rows > _MOST_ROWS or rows * self._widths[index] > _MOST_CELLS:
                raise ValueError("rows are missing")
            if picked is not None:
                before = self._key.get(name) if not key else None
                keys = numbers[place:first].tolist() if not same else before[0] if before is not None else []
                if len(keys) != rows:
                    raise ValueError("rows are missing")
                base = _base_of(before, keys, len(picked), bool(same))
                tables[name] = keys, _added(base, numbers, first, mask, picked)
            place = following
        if not 0 <= wall_ns <= LATEST_NS:
            raise ValueError("at no time that a clock has shown")
        return Sample(sequence, wall_ns, mono_ns, tables), key_sequence


def _places(columns: Sequence[str], wanted: Sequence[str]) -> list[int | None]:
    return [columns.index(column) if column in columns else None for column in wanted]


def _numbers(payload: bytes, start: int) -> array[int]:
    """The integers behind a sample's head."""
    count = (len(payload) - start) // 8
    raw = bytearray(count * 8)
    for weight in range(8):
        raw[weight::8] = payload[start + weight * count : start + (weight + 1) * count]
    numbers = array("q")
    numbers.frombytes(raw)
    return numbers


def _base_of(before: Rows | None, keys: Sequence[int], width: int, same: bool) -> list[Sequence[int]]:
    """The columns of the key frame in the order of these keys; 0 where it has no such row."""
    if before is None:
        return [array("q", bytes(8 * len(keys)))] * width
    if same:
        return before[1]
    places = {key: place for place, key in enumerate(before[0])}
    order = [places.get(key) for key in keys]
    return [array("q", [0 if place is None else column[place] for place in order]) for column in before[1]]


def _added(
    base: Sequence[Sequence[int]], numbers: array[int], first: int, mask: int, picked: Sequence[int | None]
) -> list[Sequence[int]]:
    """The picked columns: the base, and what is stored of those that differ from it, one behind the other."""
    columns: list[Sequence[int]] = []
    for column, number in zip(base, picked):
        if number is None:
            columns.append(array("q", [NULL]) * len(column))
        elif mask >> number & 1:
            rows = len(column)
            start = first + (mask & ((1 << number) - 1)).bit_count() * rows
            columns.append(
                array("q", list(map(add, column, numbers[start : start + rows])))
            )  # faster than from an iterator
        else:
            columns.append(column)
    return columns


def json_payload(value: Mapping[str, Any] | Mapping[RecordField, Any]) -> bytes:
    """An object as compact JSON; bytes that are no text are escaped."""
    import json

    return json.dumps(value, separators=(",", ":"), ensure_ascii=True, default=str).encode()
