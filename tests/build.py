"""Short builders with defaults, so that a test names only what it is about."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rlhfdoctor.budget.inputs import Inputs, Machine
from rlhfdoctor.core.estimate import opened
from rlhfdoctor.evidence.setup import make_inputs
from rlhfdoctor.logs.events import make_scanner, read_events
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.types import Event, Gap, Origin, Setting, Value
from rlhfdoctor.vocabulary.index import FIELDS, KINDS


def make_event(kind: str = "python.traceback", *, file: str = "run.log", line: int | None = 1, **given: Any) -> Event:
    """An event; `host`, `pid`, `rank` and `actor` go to its origin, unknown words to its fields."""
    whence = {name: given.pop(name) for name in ("host", "pid", "rank", "actor") if name in given}
    known = {name: given.pop(name) for name in ("text", "time", "repeats_count", "after") if name in given}
    known.setdefault("text", "")
    return Event(
        kind=KINDS[kind],
        fields={FIELDS[name]: value for name, value in given.items()},
        origin=Origin(file=file, line=line, **whence),
        **known,
    )


def make_setting(spelled: str, value: Value = True, **given: Any) -> Setting:
    """A setting of OpenRLHF's command line, unless told otherwise."""
    given = {"name": spelled.lstrip("-"), "framework": "openrlhf", "form": "flag", "file": "run.sh", "line": 1, **given}
    origin = Origin(file=given.pop("file"), line=given.pop("line"))
    return Setting(spelled=spelled, value=value, origin=origin, **given)


def make_source(text: str | bytes, name: str = "run.log", modified: float | None = None) -> Source:
    """A source in memory."""
    data = text.encode() if isinstance(text, str) else text
    return Source(name, lambda: iter((data,)), len(data), modified)


def read_log(
    text: str | bytes, name: str = "run.log", *, engine: str = "auto", modified: float | None = None, gaps: Any = None
) -> list[Event]:
    """All events of a log given as text."""
    return list(read_events(make_source(text, name, modified), make_scanner(engine), [] if gaps is None else gaps))


def read_kind(text: str | bytes, kind: str, name: str = "run.log", modified: float | None = None) -> list[Event]:
    """The events of one kind of a log given as text."""
    return [event for event in read_log(text, name, modified=modified) if event.kind == kind]


def fields_of(text: str | bytes, kind: str, name: str = "run.log") -> list[dict[str, Value]]:
    """The fields of all events of one kind of a log given as text."""
    return [dict(event.fields) for event in read_kind(text, kind, name)]


def split_at(data: bytes, cuts: Iterable[int]) -> Iterator[bytes]:
    """The data in pieces, cut at the given offsets."""
    places = [0, *sorted(cuts), len(data)]
    return (data[start:end] for start, end in itertools.pairwise(places))


def read_folder(paths: Sequence[Any]) -> tuple[dict[str, bytes], list[Gap]]:
    """What the paths hold, by name, and the gaps; each stream is read as it is found, as archives need it."""
    gaps: list[Gap] = []
    found = {source.name: b"".join(source.stream()) for source in find_sources([str(path) for path in paths], gaps)}
    return found, gaps


def told_of(path: Path, framework: str | None = None, machine: Machine | None = None) -> Inputs:
    """What the budget is computed from."""
    with opened([str(path)], framework=framework) as session:
        return make_inputs(session.case, machine or Machine())
