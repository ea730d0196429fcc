"""What a trace or run.json says, by its types: a value of another type never gets further than here."""

from __future__ import annotations

import functools
import json
import math
import re
from typing import Annotated, Any, TypedDict, cast

import msgspec
from msgspec import Meta

from rlhfdoctor.trace.frames import LATEST_NS
from rlhfdoctor.trace.record import StoredEvent
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary.index import RECORD_FIELDS
from rlhfdoctor.vocabulary.names import RecordUnit

_MOST_LETTERS = 1 << 16
MOST_JSON_BYTES = 1 << 20
"""Of an event or a header as JSON; the largest of a real one is some ten kilobytes, a long command line."""
_MOST_ITEMS = 20_000
_ESCAPED_HALF = re.compile(rb"(?i)\\ud[89a-f]|\xed[\xa0-\xbf]")
_HALF = re.compile("[\ud800-\udc7f\udd00-\udfff]")
"""Half of a pair of UTF-16, but for those that stand for bytes of a name (surrogateescape): they can be written."""
Text = Annotated[str, Meta(max_length=_MOST_LETTERS)]
Number = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Time = Annotated[int, Meta(ge=0, le=LATEST_NS)]
Offset = Annotated[float, Meta(gt=-1e9, lt=1e9)]
_OF_UNIT: dict[RecordUnit, Any] = {
    "ns": Time,
    "text": Text,
    "flag": bool,
    "list": Annotated[list[Number | Text], Meta(max_length=_MOST_ITEMS)],
    "messages": dict[str, Any],
    "bytes": Number,
    "count": Number,
    "s": Offset,
}
"""What JSON may hold for a unit; a whole number where nothing is said."""


_NAMING = (RECORD.process.seen, RECORD.process.named, RECORD.cgroup.seen, RECORD.limit.seen)
"""Events that say which one they name."""


class Level(TypedDict, total=False):
    """A cgroup above the command, in run.json."""

    path: Text
    max_bytes: Number | None
    high_bytes: Number | None


class Limits(TypedDict, total=False):
    """What the command was allowed, in run.json."""

    memory_total_bytes: Number | None
    shm_size_bytes: Number | None
    cgroup_version: Number | None
    cgroups: list[Level]
    open_files: Number
    processes: Number
    locked_bytes: Number


class Config(TypedDict, total=False):
    """A configuration file that the command line named, and its copy in the run's folder."""

    path: Text
    sha256: Text
    copy: Text


class RunFile(TypedDict, total=False):
    """run.json; every key may be missing, of an older recorder."""

    schema: Text
    name: Text
    node: Text
    doctor: Text
    argv: list[Text]
    cwd: Text
    started: Annotated[float, Meta(ge=0, lt=1e11)]
    host: Text
    kernel: Text
    boot_id: Text
    clock_offset_s: Offset
    utc_offset_s: Annotated[int, Meta(gt=-86400, lt=86400)]
    environment: dict[Text, Text]
    versions: dict[Text, Text]
    limits: Limits
    configs: list[Config]
    pid: Number


class Header(TypedDict, total=False):
    """The first frame of a segment."""

    run: Text
    node: Text
    host: Text
    boot_id: Text
    pid: Number
    ticks_per_s: Number
    page_bytes: Number
    host_pids: bool
    writer: Text
    segment: Number
    wall_ns: Time
    mono_ns: Time


def read_json(payload: bytes) -> dict[str, Any] | None:
    """A JSON object, or None if it is not valid. Halves of a pair that are no byte of a name become U+FFFD.

    >>> read_json(b'{"a": "\\\\ud800 x\\\\udce9"}')["a"] == "\\ufffd x\\udce9"
    True
    """
    try:
        value = json.loads(payload.decode("utf-8", "surrogatepass"))
        if _ESCAPED_HALF.search(payload):
            value = json.loads(_HALF.sub("\ufffd", json.dumps(value, ensure_ascii=False)))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def checked(value: dict[str, Any] | None, form: type) -> tuple[dict[str, Any], str]:
    """An object as one of the forms above, and what is wrong with it; it is empty then."""
    try:
        return dict(msgspec.convert(value, form)), ""
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        return {}, str(error)
    except RecursionError:
        return {}, "nested too deeply"


def read_event(payload: bytes) -> StoredEvent | None:
    """An event of the recorder; None if it is not one, or a field has an invalid value."""
    value, fault = checked(read_json(payload) if len(payload) <= MOST_JSON_BYTES else None, _event_form())
    is_finite = all(math.isfinite(figure) for figure in value.values() if isinstance(figure, float))
    is_whole = value.get("kind") not in _NAMING or value.get("uid") is not None
    return cast(StoredEvent, value) if not fault and is_finite and is_whole else None


@functools.cache
def _event_form() -> type:
    """Every declared field by its unit, None where it was not known; a newer recorder's are left out."""
    fields = {str(field): _OF_UNIT.get(field.unit, Number) | None for field in RECORD_FIELDS.values()}
    fields |= {"kind": Text, "wall_ns": Time, "mono_ns": Time, "modified": Number | float}
    form: type = TypedDict("_Event", fields, total=False)  # type: ignore[misc]
    return form
