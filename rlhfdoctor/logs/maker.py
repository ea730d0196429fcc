"""A hit -> an event: the line's writer, place, time, repeat count.

Knows the prefixes that Ray and torch put in front of a line:

    (ActorModelRayActor pid=204417, ip=10.0.0.2) [rank3]:[E408 10:01:52.863 ...] text [repeated 7x across cluster]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timezone, tzinfo

from rlhfdoctor.logs.blocks import Candidate, Hit
from rlhfdoctor.logs.clock import read_time
from rlhfdoctor.logs.open import Source
from rlhfdoctor.types import Event, Origin, Value
from rlhfdoctor.vocabulary import FIELD
from rlhfdoctor.vocabulary.names import Field

_RAY_PREFIX = re.compile(
    r"\((?P<actor>[A-Za-z_][\w.:<>+-]*)? ?(?:rank=\d+, )?pid=(?P<pid>\d{1,9})(?:, ip=(?P<ip>[^),\s]+))?\)"
)
_RAYLET_PREFIX = re.compile(r"\((?P<actor>raylet|autoscaler|gcs_server)(?:, ip=(?P<ip>[^),\s]+))?\)")
_RANK = re.compile(r"\[rank ?(?P<rank>\d{1,9})\]|\[Rank (?P<rank2>\d{1,9})\]")
_REPEATED = re.compile(r"\[repeated (?P<count>\d{1,9})x across cluster\]")
_FILE_PID = re.compile(
    r"(?:worker-[0-9a-f]{8,}-[0-9a-f]+-|python-core-worker-[0-9a-f]+_|[-_])(?P<pid>\d{1,9})\.(?:out|err|log)"
)
_COUNT = re.compile(r"\d{1,9}")
_FILE_HOST = re.compile(r"(?:^|[/_.-])(?P<host>(?:\d{1,3}\.){3}\d{1,3}|node-?\d+|host-?\d+)(?=[/_.-]|$)")


class Maker:
    """Makes the events of one source; stamps without a year take that of the stamps before them."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self.year = _year(source.modified)

    def make(self, hit: Hit) -> Event:
        """The event of a hit."""
        source = self._source
        event = make_event(hit, source.name, self.year, source.zone, source.host)
        if event.time is not None and source.modified is not None and event.time > source.modified + 86400:
            earlier = read_time(event.text, self.year - 1, source.zone) if self.year is not None else None
            event = replace(event, time=earlier) if earlier is not None and earlier < event.time else event
        if event.time is not None:
            self.year = datetime.fromtimestamp(event.time, timezone.utc).year
        return event

    def look_at(self, found: Candidate | Hit) -> None:
        """Takes the year of a line of which no event is made now."""
        text = found.text if isinstance(found, Hit) else found.text()
        time = read_time(text, self.year, self._source.zone)
        if time is not None:
            self.year = datetime.fromtimestamp(time, timezone.utc).year


def make_event(
    hit: Hit, file: str, year: int | None = None, zone: tzinfo = timezone.utc, host: str | None = None
) -> Event:
    """The event of a hit: fields, origin, time and count; `host` is the node if the line itself does not name one."""
    fields = hit.pattern.fields(hit.match)
    text = hit.text.strip()
    repeated = _REPEATED.search(text[-400:])
    origin = read_origin(text, file, hit.line, fields)
    return Event(
        kind=hit.pattern.kind,
        fields=fields,
        origin=origin if host is None else replace(origin, host=host),
        text=text if len(text) <= 2000 else _around(text, hit.match),
        time=read_time(text, year, zone),
        repeats_count=int(repeated["count"]) if repeated else 1,
        after=hit.after,
    )


def read_origin(text: str, file: str, line: int, fields: Mapping[Field, Value]) -> Origin:
    """Where the line comes from, by its prefixes, its fields and the name of its file.

    >>> read_origin("(LLMRayActor pid=71180, ip=10.0.0.2) INFO", "a.log", 3, {}).host
    '10.0.0.2'
    """
    head = text[:300]
    prefix = _RAY_PREFIX.search(head) or _RAYLET_PREFIX.search(head)
    rank = _RANK.search(head)
    found = prefix.groupdict() if prefix else {}
    name = file.rsplit("!", 1)[-1]
    file_pid = _FILE_PID.search(name)
    file_host = _FILE_HOST.search(name)
    ip = fields.get(FIELD.ip)
    pid = found.get("pid") or (file_pid["pid"] if file_pid else None)
    number = (rank["rank"] or rank["rank2"]) if rank else fields.get(FIELD.rank)
    host = found.get("ip") or (str(ip) if ip else None) or (file_host["host"] if file_host else None)
    return Origin(
        file=file,
        line=line,
        host=host,
        pid=int(pid) if pid else None,
        rank=int(number) if isinstance(number, int) or (number is not None and _COUNT.fullmatch(str(number))) else None,
        actor=found.get("actor"),
    )


def _around(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - 200)
    return text[start : start + 2000]


def _year(modified: float | None) -> int | None:
    try:
        return datetime.fromtimestamp(modified, timezone.utc).year if modified else None
    except (ValueError, OverflowError, OSError):
        return None  # a damaged archive can hold any number
