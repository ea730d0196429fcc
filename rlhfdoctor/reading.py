"""Paths -> what was read of them, and the case that it makes: events, settings, framework and versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone, tzinfo
from pathlib import Path

from rlhfdoctor.errors import SourceError
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.logs.events import PATTERNS, read_events
from rlhfdoctor.logs.flight import MOST_BYTES, rank_of_dump, read_dump
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.patch.apply import find_original
from rlhfdoctor.settings.framework import find_framework, find_versions, name_of
from rlhfdoctor.settings.read import is_configuration, is_source, parse_configuration, parse_logged
from rlhfdoctor.settings.written import Written, interpret
from rlhfdoctor.trace.archive import unpacked
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.run import find_runs, find_unread, read_run
from rlhfdoctor.types import Event, Gap

CONFIG_LIMIT_BYTES = 2 * 1024**2
_SAID_BY_SOURCES = ("config.", "framework.", "version.", "host.note")


@dataclass
class Reading:
    """What was read of the paths before anything is concluded."""

    events: list[Event] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    """Configuration files whole, by name."""
    originals: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Text before the doctor patched a file, and when it did."""
    newest_s: float = 0.0
    """When a log was last written to."""
    gaps: list[Gap] = field(default_factory=list)
    traces: list[Recorded] = field(default_factory=list)
    """What recorders wrote."""
    shown_only: set[str] = field(default_factory=set)
    """Configuration that tells settings and is not the user's to edit."""
    places: dict[str, tuple[str | None, tzinfo]] = field(default_factory=dict)
    """Log of a recorded run -> its node and time zone."""
    source_count: int = 0
    byte_count: int = 0


def read_all(
    paths: Sequence[str], *, engine: str = "auto", progress: Callable[[str, int], None] | None = None
) -> Reading:
    """One pass over all sources: events of the logs, texts of the configuration files."""
    reading = Reading()
    with unpacked(paths, reading.gaps) as names:
        _read_sources(list(names), reading, engine, progress)
        for real, shown in names.items():
            if real != shown:
                _show_as(reading, real, shown)
    if not reading.byte_count:
        why = "; ".join(f"{gap.what}: {gap.why}" for gap in reading.gaps[:3]) or "no files, or all of them empty"
        raise SourceError(
            f"nothing to read in {', '.join(map(str, paths))} ({why}).\n"
            "Give the folder of a Ray session (for example /tmp/ray/session_latest/logs), the job's log, dmesg, "
            "and the launch script."
        )
    return reading


def _read_sources(
    paths: Sequence[str], reading: Reading, engine: str, progress: Callable[[str, int], None] | None
) -> None:
    scanner = Scanner(PATTERNS, engine)
    seen: set[bytes] = set()
    for source in find_sources(_open_runs(paths, reading), reading.gaps):
        reading.source_count += 1
        alike = (
            source.fingerprint is None or rank_of_dump(source.name) is not None
        )  # ranks may have written the same bytes
        mark = b"" if alike or source.fingerprint is None else source.fingerprint()
        if mark in seen:
            reading.gaps.append(Gap(what=source.name, why="a copy of a file that was read already"))
            continue
        seen.update({mark} - {b""})
        if is_configuration(source.name):
            data = source.read(CONFIG_LIMIT_BYTES)
            if len(data) == CONFIG_LIMIT_BYTES:
                reading.gaps.append(
                    Gap(what=source.name, why=f"configuration of more than {CONFIG_LIMIT_BYTES >> 20} MiB; cut there")
                )
            reading.texts[source.name] = data.decode("utf-8", "surrogateescape")
            original = find_original(Path(source.name))
            if original is not None:
                reading.originals[source.name] = original
            source = replace(source, stream=lambda data=data: iter((data,)))  # type: ignore[misc]
        if rank_of_dump(source.name) is not None:
            data = replace(source, stream=_counting(source, reading, progress)).read(MOST_BYTES)
            reading.events.extend(read_dump(data, source.name, reading.gaps))
            continue
        if not is_configuration(source.name):
            reading.newest_s = max(reading.newest_s, source.modified or 0.0)
        host, zone = reading.places.get(source.name, (None, timezone.utc))
        counted = replace(source, stream=_counting(source, reading, progress), host=host, zone=zone)
        found = read_events(counted, scanner, reading.gaps)
        if is_source(source.name):  # a program that can raise an error has not raised it
            found = (event for event in found if event.kind.startswith(_SAID_BY_SOURCES))
        reading.events.extend(found)


def _show_as(reading: Reading, real: str, shown: str) -> None:
    """Names of what was unpacked, as the user knows them: by the archive."""

    def named(name: str) -> str:
        return name.replace(real, shown, 1) if name.startswith(real) else name

    reading.events = [replace(e, origin=replace(e.origin, file=named(e.origin.file))) for e in reading.events]
    reading.texts = {named(name): text for name, text in reading.texts.items()}
    reading.places = {named(name): place for name, place in reading.places.items()}
    reading.shown_only = {named(name) for name in reading.shown_only}
    reading.gaps = [Gap(what=named(gap.what), why=gap.why.replace(real, shown)) for gap in reading.gaps]
    for trace in reading.traces:
        trace.node.folder, trace.file = named(trace.node.folder), named(trace.file)


def _open_runs(paths: Sequence[str], reading: Reading) -> list[str]:
    """The folders that `doctor watch` wrote are taken apart; what is left is read as text."""
    rest: list[str] = []
    for path in paths:
        runs = find_runs(path)
        if not runs or runs[0] != Path(path):
            rest.append(path)
            reading.gaps.extend(find_unread(path, runs))
        for folder in runs:
            run = read_run(folder)
            reading.traces.extend(run.traces)
            reading.events.extend(run.events)
            reading.gaps.extend(run.gaps)
            reading.shown_only |= run.shown_only
            reading.places |= run.places
            reading.byte_count += sum(len(trace.node.times_ns) for trace in run.traces)
            if runs[0] == Path(path):
                rest.extend(run.files)
    return list(dict.fromkeys(rest))


def _counting(
    source: Source, reading: Reading, progress: Callable[[str, int], None] | None
) -> Callable[[], Iterator[bytes]]:
    def stream() -> Iterator[bytes]:
        for block in source.stream():
            reading.byte_count += len(block)
            if progress is not None:
                progress(source.name, reading.byte_count)
            yield block

    return stream


def make_case(events: list[Event], reading: Reading, given: str | None) -> Case:
    """Events and configuration texts -> a case with settings, framework and versions."""
    versions = find_versions(events)
    prefer = name_of(given) if given else None
    written = list(_written(events, reading))
    settings = interpret(written, prefer)
    framework = find_framework(events, settings, versions, given)
    if framework is not None and framework.name != prefer:  # its table goes before the others
        settings = interpret(written, framework.name)
        framework = find_framework(events, settings, versions, given)
    return Case(events, settings, framework, versions, reading.traces)


def _written(events: list[Event], reading: Reading) -> Iterator[Written]:
    """The settings of all configuration, then those that logs show."""
    for name, text in reading.texts.items():
        found, gaps = parse_configuration(name, text)
        reading.gaps.extend(gap for gap in gaps if gap not in reading.gaps)
        yield from (replace(one, form="argv", span=None) for one in found) if name in reading.shown_only else found
    for event in events:
        if event.kind.scope == "config":
            yield from parse_logged(event)
