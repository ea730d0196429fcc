"""Reads traces back, whole or thinned. Damage becomes a Gap, which takes nothing else along."""

from __future__ import annotations

import json
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.trace.frames import KEY, SAMPLE, Frame, Sample, unpack
from rlhfdoctor.trace.record import StoredEvent, time_of
from rlhfdoctor.trace.segment import SegmentReader, Wanted, read_json, wall_ns_of
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
    """Wall clock of every sample that was read."""
    path: str = ""
    """Where the segments lie; `folder` is its name for the user, which differs while an archive is unpacked."""


def is_run(path: str | Path) -> bool:
    """Whether a folder was written by `doctor watch`."""
    folder = Path(path)
    return folder.is_dir() and (
        any(folder.glob(f"*{SUFFIX}")) or _run_file(folder) != {} or (folder / "nodes").is_dir()
    )


def _run_file(folder: Path) -> dict[str, Any]:
    try:
        value = read_json((folder / "run.json").read_bytes())
    except OSError:
        return {}
    return value if value is not None and value.get("schema") == RUN_SCHEMA else {}


def find_nodes(path: str | Path) -> list[Path]:
    """The folders of a run that hold segments: its own, and those of other nodes."""
    folder = Path(path)
    own = [folder] if any(folder.glob(f"*{SUFFIX}")) else []
    return own + sorted(p for p in folder.glob("nodes/*") if p.is_dir())


def read_node(path: str | Path, *, every_s: float = 0.0, whole_s: float = 600.0) -> NodeTrace:
    """What one recorder wrote, sorted by time.

    Args:
        every_s: thin out to one sample in this time, but for the last `whole_s` seconds.

    Raises:
        SourceError: there is no segment, or no segment can be opened.
    """
    folder = Path(path)
    names = sorted(folder.glob(f"*{SUFFIX}"))
    if not names:
        raise SourceError(
            say(
                "{path}: no trace in it (a trace is a folder with files such as 000001{ending})",
                path=str(path),
                ending=SUFFIX,
            )
        )
    run = _run_file(folder)
    gaps: list[Gap] = []
    wanted = Wanted(every_s, _last_ns(names) - int(whole_s * 1e9)) if every_s else None
    trace = NodeTrace(str(folder), folder.name, run, {}, {}, [], gaps, path=str(folder))
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
        raise SourceError(say("{path}: no segment of the trace can be read ({why})", path=str(path), why=gaps[0].why))
    _sort(trace)
    trace.events = _once(sorted(trace.events, key=time_of))
    trace.node = str(run.get("node") or trace.header.get("node") or trace.header.get("host") or folder.name)
    return trace


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
        table.times_ns.extend(array("q", [sample.wall_ns]) * count)
        table.mono_ns.extend(array("q", [sample.mono_ns]) * count)
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
