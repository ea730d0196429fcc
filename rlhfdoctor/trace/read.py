"""Reads traces back: whole, thinned, or as they grow. Damage becomes a Gap and takes nothing else along."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress, pairwise
from pathlib import Path
from typing import Any, cast

from rlhfdoctor.errors import SourceError
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.trace.frames import EVENT, HEADER, KEY, SAMPLE, Decoder, Frame, Sample, unpack
from rlhfdoctor.trace.record import StoredEvent, time_of
from rlhfdoctor.trace.schema import FORMAT, TABLES
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Gap
from rlhfdoctor.vocabulary import RECORD_FIELD as R

RUN_SCHEMA = "rlhfdoctor.run/1"


@dataclass(slots=True)
class Columns:
    """One table of a trace, column by column; row i belongs to `times_ns[i]` and `keys[i]`."""

    names: tuple[str, ...]
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Wall clock, Unix nanoseconds."""
    mono_ns: array[int] = field(default_factory=lambda: array("q"))
    keys: array[int] = field(default_factory=lambda: array("q"))
    values: dict[str, array[int]] = field(default_factory=dict)
    """`schema.NULL` means None; `schema.scale_of` what to divide by."""


@dataclass(slots=True)
class NodeTrace:
    """What one recorder wrote."""

    folder: str
    node: str
    run: Mapping[str, Any]
    """run.json, or empty."""
    header: Mapping[str, Any]
    """Of the last segment."""
    tables: dict[str, Columns]
    events: list[StoredEvent]
    """In order of time; each has `kind`, `wall_ns`, `mono_ns`."""
    gaps: list[Gap]
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Wall clock of every sample."""
    kept_ns: set[int] | None = None
    """Of those, the samples that `thinned` keeps."""


class SegmentReader:
    """One segment, read on from where the last call ended."""

    def __init__(self, path: str) -> None:
        """`path` is a file, or a memfd below /proc."""
        self.path = path
        self.header: dict[str, Any] = {}
        self._offset = 0
        self._rest = b""
        self._decoder: Decoder | None = None
        self.columns: Mapping[str, Sequence[str]] = TABLES

    def read(self, gaps: list[Gap], *, final: bool, wanted: Wanted | None = None) -> Iterator[Sample | StoredEvent]:
        """Samples and events that are new. Raises OSError where the file cannot be read."""
        with open(self.path, "rb") as handle:
            handle.seek(self._offset)
            fresh = handle.read()
        self._offset += len(fresh)
        data = self._rest + fresh
        used = 0
        for item in unpack(data, final=final):
            if not isinstance(item, Frame):
                at, size = item
                cut = final and at + size == len(data)
                gaps.append(
                    Gap(
                        what=quoted(self.path),
                        why=say(
                            "{size} bytes at {at} are {cut}",
                            size=size,
                            at=at,
                            cut=(say("cut off: the writer died there") if cut else say("damaged; skipped")),
                        ),
                    )
                )
                used = at + size
                continue
            used = item.end
            yield from self._item(item, gaps, wanted)
        self._rest = data[used:]

    def _item(self, frame: Frame, gaps: list[Gap], wanted: Wanted | None) -> Iterator[Sample | StoredEvent]:
        if frame.kind == HEADER:
            self._open(frame, gaps)
        elif frame.kind == EVENT:
            event = cast(StoredEvent | None, _json(frame.payload))
            if event is None:
                gaps.append(
                    Gap(what=quoted(self.path), why=say("an event at {offset} is no JSON", offset=frame.offset))
                )
            else:
                yield event
        elif frame.kind in (KEY, SAMPLE):
            if self._decoder is None:
                gaps.append(
                    Gap(what=quoted(self.path), why=say("its header is lost; read with the tables of this version"))
                )
                self._decoder = Decoder(TABLES)
            kept = wanted is None or wanted.take(frame)
            if wanted is not None and not kept and not wanted.everything:
                return
            sample = self._decoder.decode(frame)
            if sample is None:
                if not kept:
                    return
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
        header = _json(frame.payload)
        if header is None:
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
        self.header = header
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
        self._decoder = Decoder(self.columns)


class Wanted:
    """Which samples to read: all of the last minutes, and one now and then before."""

    def __init__(self, every_s: float, after_ns: int, everything: bool = False) -> None:
        """`after_ns`: from this wall-clock time on everything is wanted; `everything`: the others are decoded, too."""
        self._every_ns, self._after_ns, self._last_ns = int(every_s * 1e9), after_ns, -(2**62)
        self.everything = everything
        self.kept_ns: set[int] = set()

    def take(self, frame: Frame) -> bool:
        """Whether a frame is wanted, by its wall clock alone; key frames are."""
        wall_ns = wall_ns_of(frame)
        kept = frame.kind != SAMPLE or self._is_due(wall_ns)
        if kept and self.everything:
            self.kept_ns.add(wall_ns)
        return kept

    def _is_due(self, wall_ns: int) -> bool:
        if wall_ns < self._after_ns and 0 <= wall_ns - self._last_ns < self._every_ns:
            return False  # a clock that was set back restarts the count
        self._last_ns = wall_ns
        return True


def _is_tables(value: Any) -> bool:
    """Whether a header's description of the tables can be used."""
    return isinstance(value, dict) and all(
        isinstance(columns, list) and all(isinstance(column, str) for column in columns) for columns in value.values()
    )


def _json(payload: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(payload)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def is_run(path: str | Path) -> bool:
    """Whether a folder was written by `doctor watch`."""
    folder = Path(path)
    return folder.is_dir() and (
        any(folder.glob(f"*{SUFFIX}")) or _run_file(folder) != {} or (folder / "nodes").is_dir()
    )


def _run_file(folder: Path) -> dict[str, Any]:
    try:
        value = _json((folder / "run.json").read_bytes())
    except OSError:
        return {}
    return value if value is not None and value.get("schema") == RUN_SCHEMA else {}


def find_nodes(path: str | Path) -> list[Path]:
    """The folders of a run that hold segments: its own, and those of other nodes."""
    folder = Path(path)
    own = [folder] if any(folder.glob(f"*{SUFFIX}")) else []
    return own + sorted(p for p in folder.glob("nodes/*") if p.is_dir())


def read_node(path: str | Path, *, every_s: float = 0.0, whole_s: float = 600.0, everything: bool = False) -> NodeTrace:
    """What one recorder wrote, sorted by time.

    Args:
        every_s: thin out to one sample in this time, but for the last `whole_s` seconds.
        everything: hold all samples, and note in `kept_ns` which of them `thinned` keeps.

    Raises:
        SourceError: there is no segment, or no segment can be opened.
    """
    folder = Path(path)
    names = sorted(folder.glob(f"*{SUFFIX}"))
    if not names:
        raise SourceError(f"{path}: no trace in it (a trace is a folder with files such as 000001{SUFFIX})")
    run = _run_file(folder)
    gaps: list[Gap] = []
    wanted = Wanted(every_s, _last_ns(names) - int(whole_s * 1e9), everything) if every_s else None
    trace = NodeTrace(str(folder), folder.name, run, {}, {}, [], gaps)
    opened = 0
    for name in names:
        segment = SegmentReader(str(name))
        try:
            for item in segment.read(gaps, final=True, wanted=wanted):
                if isinstance(item, Sample):
                    trace.times_ns.append(item.wall_ns)
                    _append(trace.tables, item, segment.columns)
                else:
                    trace.events.append(item)
            opened += 1
        except OSError as error:
            gaps.append(Gap(what=quoted(name), why=quoted(error.strerror) if error.strerror else say("not readable")))
        trace.header = segment.header or trace.header
    if not opened:
        raise SourceError(f"{path}: no segment of the trace can be read ({gaps[0].why})")
    _sort(trace)
    trace.events = _once(sorted(trace.events, key=time_of))
    trace.node = str(run.get("node") or trace.header.get("node") or trace.header.get("host") or folder.name)
    trace.kept_ns = wanted.kept_ns if wanted is not None and everything else None
    return trace


def thinned(trace: NodeTrace) -> NodeTrace:
    """The trace as it is read without `everything`."""
    kept = trace.kept_ns
    if kept is None:
        return trace
    tables = {name: _rows(table, [at in kept for at in table.times_ns]) for name, table in trace.tables.items()}
    return replace(trace, tables=tables, times_ns=array("q", [at for at in trace.times_ns if at in kept]), kept_ns=None)


def _rows(table: Columns, wanted: Sequence[bool]) -> Columns:
    def cut(column: array[int]) -> array[int]:
        return array("q", compress(column, wanted))

    values = {name: cut(column) for name, column in table.values.items()}
    return Columns(table.names, cut(table.times_ns), cut(table.mono_ns), cut(table.keys), values)


def _sort(trace: NodeTrace) -> None:
    """In order of time, where two writers or a clock that was set back put it out of order."""
    for table in trace.tables.values():
        times = table.times_ns
        if all(one <= two for one, two in pairwise(times)):
            continue
        order = sorted(range(len(times)), key=times.__getitem__)
        for rows in (table.times_ns, table.mono_ns, table.keys, *table.values.values()):
            rows[:] = array("q", [rows[place] for place in order])
    trace.times_ns = array("q", sorted(trace.times_ns))


def _append(tables: dict[str, Columns], sample: Sample, columns: Mapping[str, Sequence[str]]) -> None:
    for name, (keys, values) in sample.tables.items():
        table = tables.get(name)
        if table is None:
            table = tables[name] = Columns(tuple(columns[name]), values={c: array("q") for c in columns[name]})
        count = len(keys)
        before = len(table.keys)
        table.times_ns.extend([sample.wall_ns] * count)
        table.mono_ns.extend([sample.mono_ns] * count)
        table.keys.extend(keys)
        for column, numbers in zip(columns[name], values):
            if column not in table.values:  # a segment of a newer recorder
                table.values[column] = array("q", [-(2**62)] * before)
            table.values[column].extend(numbers)
        for numbers_so_far in table.values.values():
            if len(numbers_so_far) < before + count:
                numbers_so_far.extend([-(2**62)] * (before + count - len(numbers_so_far)))
        table.names = tuple(table.values)


def _once(events: list[StoredEvent]) -> list[StoredEvent]:
    """Events without those that later segments repeat to be understood alone."""
    seen: set[str] = set()
    kept = []
    for event in events:
        if event.pop(R.again, False):
            key = json.dumps(event, sort_keys=True)
            if key in seen:
                continue
        seen.add(json.dumps(event, sort_keys=True))
        kept.append(event)
    return kept


def _last_ns(names: Sequence[Path]) -> int:
    """Wall clock of the last sample; the modification time of a copy is meaningless."""
    for name in reversed(names):
        try:
            data = name.read_bytes()
        except OSError:
            continue
        frames = [frame for frame in unpack(data) if isinstance(frame, Frame) and frame.kind in (KEY, SAMPLE)]
        if frames:
            return max(wall_ns_of(frame) for frame in frames)
    return 0


def wall_ns_of(frame: Frame) -> int:
    """Wall clock of a sample's frame, without decoding it."""
    return int.from_bytes(frame.payload[20:28], "little", signed=True)
