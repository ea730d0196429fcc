"""Hits -> Events: the line's writer, place, time, repeat count.

Knows the prefixes that Ray and torch put in front of a line:

    (ActorModelRayActor pid=204417, ip=10.0.0.2) [rank3]:[E408 10:01:52.863 ...] text [repeated 7x across cluster]
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone, tzinfo

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs import (
    config,
    data,
    deepspeed,
    exits,
    frameworks,
    job,
    kernel,
    nccl,
    numbers,
    phases,
    python,
    ray,
    ray_exits,
    reward,
    schedulers,
    steps,
    torch,
    trainers,
    vllm,
)
from rlhfdoctor.logs.clock import read_time
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.logs.scan import Candidate, Hit, Scanner
from rlhfdoctor.types import Event, Gap, Origin, Value
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.names import Field, Kind

PATTERNS: tuple[Pattern, ...] = tuple(
    pattern
    for speaker in (
        kernel,
        ray,
        ray_exits,
        torch,
        nccl,
        deepspeed,
        vllm,
        schedulers,
        exits,
        job,
        python,
        numbers,
        frameworks,
        phases,
        steps,
        trainers,
        reward,
        data,
        config,
    )
    for pattern in speaker.PATTERNS
)

_RAY_PREFIX = re.compile(
    r"\((?P<actor>[A-Za-z_][\w.:<>+-]*)? ?(?:rank=\d+, )?pid=(?P<pid>\d+)(?:, ip=(?P<ip>[^),\s]+))?\)"
)
_RAYLET_PREFIX = re.compile(r"\((?P<actor>raylet|autoscaler|gcs_server)(?:, ip=(?P<ip>[^),\s]+))?\)")
_RANK = re.compile(r"\[rank ?(?P<rank>\d+)\]|\[Rank (?P<rank2>\d+)\]")
_REPEATED = re.compile(r"\[repeated (?P<count>\d+)x across cluster\]")
_FILE_PID = re.compile(
    r"(?:worker-[0-9a-f]{8,}-[0-9a-f]+-|python-core-worker-[0-9a-f]+_|[-_])(?P<pid>\d+)\.(?:out|err|log)"
)
_FILE_HOST = re.compile(r"(?:^|[/_.-])(?P<host>(?:\d{1,3}\.){3}\d{1,3}|node-?\d+|host-?\d+)(?=[/_.-]|$)")
_EXPECTED_FLOODS = (EVENT.python.frame, EVENT.kernel.task, EVENT.kernel.task_header)
"""Kinds whose repeats are left out without a gap."""
_KEEP_COUNT = 400
"""Events of one kind kept from the start of a file, and as many from its end."""
_EVERY = 256
"""In a flood, one line of so many is read for its year."""


def read_events(source: Source, scanner: Scanner, gaps: list[Gap]) -> Iterator[Event]:
    """Events of one source, in order. Floods of one kind keep their first and last 400."""
    maker = Maker(source)
    counts: dict[Kind, int] = {}
    floods: dict[Kind, Flood] = {}
    for found in scanner.candidates(source.stream(), restore=True):
        kind = found.pattern.kind
        if counts.get(kind, 0) < _KEEP_COUNT:
            hit = found if isinstance(found, Hit) else found.hit()
            if hit is not None:
                counts[kind] = counts.get(kind, 0) + 1
                yield maker.make(hit)
            continue
        kept = found if isinstance(found, Hit) else found.keep() if scanner.trusts(found.index) else found.hit()
        if kept is not None:
            floods.setdefault(kind, Flood()).add(kept, maker)
    for flood in floods.values():
        yield from flood.events(maker)
    if scanner.longest_line_cut:
        gaps.append(Gap(what=quoted(source.name), why=say("holds a line of more than 4 MiB, which was read in pieces")))
    for kind, flood in floods.items():
        if flood.dropped and kind.scope != "phase" and kind not in _EXPECTED_FLOODS:
            gaps.append(
                Gap(
                    what=quoted(f"{source.name}: {kind}"),
                    why=say("{count} more lines of this kind left out", count=flood.dropped),
                )
            )


class Flood:
    """What comes of one kind when enough of it was seen: the last ones, which are parsed only at the end."""

    def __init__(self) -> None:
        self.dropped = 0
        """How many are left out."""
        self._last: deque[tuple[Candidate | Hit, int | None]] = deque(maxlen=_KEEP_COUNT)

    def add(self, found: Candidate | Hit, maker: Maker) -> None:
        """One more."""
        full = len(self._last) == _KEEP_COUNT
        if full:
            self.dropped += 1
        if not full or not self.dropped % _EVERY:
            maker.look_at(found)
        self._last.append((found, maker.year))

    def events(self, maker: Maker) -> Iterator[Event]:
        """Those that are kept."""
        for found, year in self._last:
            maker.year = year
            hit = found if isinstance(found, Hit) else found.hit()
            if hit is not None:
                yield maker.make(hit)


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
        rank=int(number) if number is not None else None,
        actor=found.get("actor"),
    )


def order_events(events: Iterable[Event]) -> list[Event]:
    """Events in the order of time; lines without a stamp keep their place after the previous line."""
    keyed = []
    clock: dict[str, float] = {}
    for index, event in enumerate(events):
        file = event.origin.file
        if event.time is not None:
            clock[file] = event.time
        keyed.append((clock.get(file, float("-inf")), index, event))
    keyed.sort(key=lambda item: item[:2])
    return [event for _, _, event in keyed]


def _around(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - 200)
    return text[start : start + 2000]


def _year(modified: float | None) -> int | None:
    try:
        return datetime.fromtimestamp(modified, timezone.utc).year if modified else None
    except (ValueError, OverflowError, OSError):
        return None  # a damaged archive can hold any number
