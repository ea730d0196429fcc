"""Reads traces back, whole or thinned. Damage becomes a Gap, which takes nothing else along."""

from __future__ import annotations

import contextlib
import json
import os
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.files.bounds import is_below
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.walk import names_ending
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.trace.checked import RunFile, checked, read_json
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.node import Held, NodeTrace
from rlhfdoctor.trace.record import StoredEvent, time_of
from rlhfdoctor.trace.segment import MOST_EVENT_BYTES, SegmentReader, Wanted
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Gap
from rlhfdoctor.vocabulary import RECORD_FIELD as R

RUN_SCHEMA = "rlhfdoctor.run/1"
_MOST_RUN_BYTES = 8 << 20
_LEAST_EVENT_BYTES = 1 << 20
"""Of one node among many."""


def is_run(path: str | Path) -> bool:
    """Whether a folder was written by `doctor watch`."""
    folder = Path(path)
    return os.path.isdir(folder) and (
        names_ending(folder, SUFFIX) != []
        or _run_file(folder, []) != {}
        or (os.path.isdir(folder / "nodes") and not os.path.islink(folder / "nodes"))
    )


def _run_file(folder: Path, gaps: list[Gap]) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        value = read_json(read_bytes(path, _MOST_RUN_BYTES, below=os.path.realpath(folder)))
    except FileNotFoundError:
        return {}
    except OSError as error:
        gaps.append(Gap(what=quoted(path), why=quoted(error.strerror) if error.strerror else say("not readable")))
        return {}
    if value is None:
        gaps.append(Gap(what=quoted(path), why=say("no JSON object")))
    if value is None or value.get("schema") != RUN_SCHEMA:
        return {}
    run, fault = checked(value, RunFile)
    if fault:
        gaps.append(Gap(what=quoted(path), why=say("was not written by a recorder ({fault})", fault=fault)))
    return run


def find_nodes(path: str | Path) -> list[Path]:
    """The folders of a run that hold segments: its own, and those of other nodes; none by a link out of it."""
    folder = Path(path)
    own = [folder] if names_ending(folder, SUFFIX) else []
    top = os.path.realpath(folder)
    nodes = [Path(name) for name in names_ending(folder / "nodes", "")]
    return own + [node for node in nodes if os.path.isdir(node) and is_below(os.path.realpath(node), top)]


def read_node(path: str | Path, *, every_s: float = 0.0, whole_s: float = 600.0, share: int = 1) -> NodeTrace:
    """What one recorder wrote, sorted by time.

    Args:
        every_s: thin out to one sample in this time, but for the last `whole_s` seconds.
        share: how many nodes are read; what fits in memory is divided by it.

    Raises:
        SourceError: there is no segment, or no segment can be opened.
    """
    folder = Path(path)
    names = [Path(name) for name in names_ending(folder, SUFFIX)]
    if not names:
        raise SourceError(
            say(
                "{path}: no trace in it (a trace is a folder with files such as 000001{ending})",
                path=str(path),
                ending=SUFFIX,
            )
        )
    gaps: list[Gap] = []
    run = _run_file(folder, gaps)
    after_ns = _last_ns(names) - int(whole_s * 1e9) if every_s else 0
    wanted = Wanted(every_s, after_ns) if every_s else None
    trace = NodeTrace(str(folder), folder.name, run, {}, {}, [], gaps, path=str(folder))
    held = Held(trace, after_ns, share)
    opened, event_bytes = 0, max(MOST_EVENT_BYTES // share, _LEAST_EVENT_BYTES)
    for name in names:
        segment = SegmentReader(str(name), most_event_bytes=event_bytes)
        try:
            for item in segment.read(gaps, final=True, wanted=wanted):
                if isinstance(item, Sample):
                    held.add_sample(item, segment.columns)
                else:
                    held.add_event(item)
            opened += 1
        except OSError as error:
            gaps.append(Gap(what=quoted(name), why=quoted(error.strerror) if error.strerror else say("not readable")))
        trace.header = segment.header or trace.header
        event_bytes -= segment.event_bytes
    if not opened:
        raise SourceError(say("{path}: no segment of the trace can be read ({why})", path=str(path), why=gaps[0].why))
    held.finish()
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
        with contextlib.suppress(OSError):
            last_ns = SegmentReader(str(name)).last_ns()
            if last_ns:
                return last_ns
    return 0
