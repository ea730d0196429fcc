"""One segment of a trace, read on from where the last call ended. Damage becomes a Gap."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlhfdoctor.files.read import open_binary
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.trace.checked import MOST_JSON_BYTES, Header, checked, read_event, read_json
from rlhfdoctor.trace.frames import EVENT, HEADER, KEY, SAMPLE, Decoder, Frame, Sample, unpack
from rlhfdoctor.trace.record import StoredEvent
from rlhfdoctor.trace.schema import FORMAT, TABLES
from rlhfdoctor.types import Gap

MOST_EVENT_BYTES = 128 << 20
"""A day in which a process a second begins and ends has a fifth of it."""
_PIECE_BYTES = 8 << 20
_MOST_BYTES = 256 << 20
"""Of one segment; a recorder begins another one after 4 MiB."""
_PLAIN_BYTES, _PLAIN_RATIO = 256 << 20, 200
"""What the frames of a segment may unpack to: so much, and so many times the bytes that it has. Recorded ones unpack
to about twice their size.
"""
_MOST_GAPS = 1000
_MOST_TABLES, _MOST_COLUMNS = 100, 200


class SegmentReader:
    """One segment, read on from where the last call ended."""

    def __init__(
        self, path: str, only: Mapping[str, Sequence[str]] | None = None, most_event_bytes: int = MOST_EVENT_BYTES
    ) -> None:
        """
        Args:
            path: a file, or a memfd below /proc.
            only: these columns of its tables are decoded.
            most_event_bytes: of all events as JSON; what is behind them is damage.
        """
        self.path = path
        self.event_bytes, self._most_event_bytes = 0, most_event_bytes
        self._only = only
        self.is_bomb = False
        """Whether it unpacks to more than a recorder writes; the rest was not read."""
        self.header: dict[str, Any] = {}
        self._offset = self._plain_bytes = 0
        self._rest = b""
        self._decoder: Decoder | None = None
        self.columns: Mapping[str, Sequence[str]] = TABLES

    def read(self, gaps: list[Gap], *, final: bool, wanted: Wanted | None = None) -> Iterator[Sample | StoredEvent]:
        """Samples and events that are new. Raises OSError where the file cannot be read."""
        found: list[Gap] = []
        begin = end = 0  # of damage that goes on
        is_cut = False
        for item, is_cut in self.frames(final):
            if not isinstance(item, Frame):
                begin, end = begin if end == item[0] and end > begin else item[0], sum(item)
                if end - begin == item[1]:
                    found.append(self._damage(begin, item[1], is_cut))
                else:
                    found[-1] = self._damage(begin, end - begin, is_cut)
            else:
                yield from self._item(item, found, wanted)
            if len(found) > _MOST_GAPS:
                break
        if self.is_bomb:
            why = say("unpacks to more than {ratio} times its size; the rest was not read", ratio=_PLAIN_RATIO)
            gaps.append(Gap(what=quoted(self.path), why=why))
        if self._offset >= _MOST_BYTES:
            why = say("larger than a segment can be; only the first {most:bytes} were read", most=_MOST_BYTES)
            gaps.append(Gap(what=quoted(self.path), why=why))
        gaps += found[:_MOST_GAPS]
        if len(found) > _MOST_GAPS:
            why = say("damaged in more than {most} places; the rest was not read", most=_MOST_GAPS)
            gaps.append(Gap(what=quoted(self.path), why=why))

    def last_ns(self) -> int:
        """Wall clock of the latest sample, or 0; nothing is decoded. Raises OSError where the file cannot be read."""
        frames = (item for item, _ in self.frames(final=True) if isinstance(item, Frame))
        return max((wall_ns_of(frame) for frame in frames if frame.kind in (KEY, SAMPLE)), default=0)

    def frames(self, final: bool) -> Iterator[tuple[Frame | tuple[int, int], bool]]:
        """Frames, and damage by its place and size, each with whether the file ends there.

        Raises OSError where the file cannot be read.
        """
        with open_binary(self.path, follow=self.path.startswith("/proc/")) as handle:
            handle.seek(self._offset)
            more = True
            while more and self._offset < _MOST_BYTES and not self.is_bomb:
                fresh = handle.read(_PIECE_BYTES)
                more = len(fresh) == _PIECE_BYTES
                begin = self._offset - len(self._rest)
                self._offset += len(fresh)
                data = self._rest + fresh
                used = begin
                for item in unpack(data, final=final and not more, offset=begin):
                    used = item.end if isinstance(item, Frame) else sum(item)
                    self._plain_bytes += len(item.payload) if isinstance(item, Frame) else 0
                    if self._plain_bytes > _PLAIN_BYTES + _PLAIN_RATIO * used:
                        self.is_bomb = True
                        return
                    yield item, final and not more and used == self._offset
                self._rest = data[used - begin :]

    def _damage(self, at: int, size: int, cut: bool) -> Gap:
        why = say("cut off: the writer died there") if cut else say("damaged; skipped")
        return Gap(what=quoted(self.path), why=say("{size} bytes at {at} are {cut}", size=size, at=at, cut=why))

    def _item(self, frame: Frame, gaps: list[Gap], wanted: Wanted | None) -> Iterator[Sample | StoredEvent]:
        if frame.kind == HEADER:
            self._open(frame, gaps)
        elif frame.kind == EVENT:
            self.event_bytes += len(frame.payload)
            event = read_event(frame.payload) if self.event_bytes <= self._most_event_bytes else None
            if event is None:
                why = say("an event at {offset} was not written by a recorder", offset=frame.offset)
                gaps.append(Gap(what=quoted(self.path), why=why))
            else:
                yield event
        elif frame.kind in (KEY, SAMPLE):
            if self._decoder is None:
                gaps.append(
                    Gap(what=quoted(self.path), why=say("its header is lost; read with the tables of this version"))
                )
                self._decoder = Decoder(TABLES, self._only)
            if wanted is not None and not wanted.take(frame):
                return
            sample = self._decoder.decode(frame)
            if sample is None:
                gaps.append(
                    Gap(
                        what=quoted(self.path),
                        why=say(
                            "a sample at {offset} cannot be read without its damaged key frame", offset=frame.offset
                        ),
                    )
                )
            else:
                yield sample
        else:
            gaps.append(
                Gap(
                    what=quoted(self.path),
                    why=say("a frame of kind {kind}, which this version does not know", kind=frame.kind),
                )
            )

    def _open(self, frame: Frame, gaps: list[Gap]) -> None:
        header = read_json(frame.payload) if len(frame.payload) <= MOST_JSON_BYTES else None
        if header is None:
            gaps.append(Gap(what=quoted(self.path), why=say("its header is no JSON object")))
            return
        number = header.get("format", 1)
        if not isinstance(number, int) or number > FORMAT:
            gaps.append(
                Gap(
                    what=quoted(self.path),
                    why=say(
                        "written in format {number}; this version reads up to {format}, some of it may be missing",
                        number=str(number),
                        format=FORMAT,
                    ),
                )
            )
        self.header, fault = checked(header, Header)
        if fault:
            gaps.append(
                Gap(what=quoted(self.path), why=say("its header was not written by a recorder ({fault})", fault=fault))
            )
        tables: Any = header.get("tables")
        if not _is_tables(tables):
            gaps.append(
                Gap(
                    what=quoted(self.path),
                    why=say("its header does not describe the tables; read with those of this version"),
                )
            )
            tables = TABLES
        self.columns = tables
        self._decoder = Decoder(self.columns, self._only)


class Wanted:
    """Which samples to read: all of the last minutes, and one now and then before."""

    def __init__(self, every_s: float, after_ns: int) -> None:
        """`after_ns`: from this wall-clock time on all are wanted."""
        self._every_ns, self._after_ns, self._last_ns = int(every_s * 1e9), after_ns, -(2**62)

    def take(self, frame: Frame) -> bool:
        """Whether a frame is wanted, by its wall clock alone; key frames are."""
        if frame.kind != SAMPLE:
            return True
        wall_ns = wall_ns_of(frame)
        if wall_ns < self._after_ns and 0 <= wall_ns - self._last_ns < self._every_ns:
            return False  # a clock that was set back restarts the count
        self._last_ns = wall_ns
        return True


def _is_tables(value: Any) -> bool:
    """Whether a header's description of the tables can be used."""
    return (
        isinstance(value, dict)
        and len(value) <= _MOST_TABLES
        and all(isinstance(columns, list) and len(columns) <= _MOST_COLUMNS for columns in value.values())
        and all(isinstance(column, str) for columns in value.values() for column in columns)
    )


def wall_ns_of(frame: Frame) -> int:
    """Wall clock of a sample's frame, without decoding it."""
    return int.from_bytes(frame.payload[20:28], "little", signed=True)
