"""Sources one after the other: logs to events, configuration to its text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import timezone, tzinfo
from pathlib import Path

from rlhfdoctor.faults import isolated
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.events import make_scanner, read_events
from rlhfdoctor.logs.flight import MOST_BYTES, rank_of_dump, read_dump
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.streams import is_compressed
from rlhfdoctor.logs.thin import thin, why_left_out
from rlhfdoctor.logs.window import Window
from rlhfdoctor.logs.workers import read_files
from rlhfdoctor.patch.apply import applied_to
from rlhfdoctor.patch.journal import Applied
from rlhfdoctor.settings.read import CONFIG_LIMIT_BYTES, is_configuration, is_source
from rlhfdoctor.types import Event, Gap
from rlhfdoctor.vocabulary import EVENT

_SAID_BY_SOURCES = ("config", "framework", "version")
"""Whose events count in a source file, beside notes on the machine: code that can raise an error has not raised it."""
_SHOWN_BY_LOGS = (EVENT.config.command, EVENT.config.dump, EVENT.config.variable)
"""What a file of configuration says of itself is read as configuration, with places that can be edited."""
_SAID_BY_STATUS = ("k8s", "docker")
"""What a pod's or container's state says, which kubectl writes as YAML, too."""
_MOST_EVENTS = 100_000
"""Held of all sources together, some 70 MB; then half as many are kept."""
_MOST_CONFIGURATION_BYTES = 32 * 1024**2
"""Held of all small files, and as much of all large ones: samples in JSON do not displace a launch script. verl's
repository has 6 MiB, TRL's 5."""
_LARGE_BYTES = 256 * 1024
_NOTES = (EVENT.host.note_limit, EVENT.host.note_total, EVENT.host.note_used)


class Intake:
    """What was read so far."""

    def __init__(
        self,
        engine: str,
        progress: Callable[[str, int], None] | None,
        expect: Callable[[int], None] | None,
        interruptible: bool,
        window: Window,
    ) -> None:
        """As `Session` takes them."""
        self.events: list[Event] = []
        """Of all sources, in the order of reading; `case` has them in order of time."""
        self.texts: dict[str, str] = {}
        """Configuration files whole, by name."""
        self.logs: dict[str, None] = {}
        """Names of what was read line by line, in order."""
        self.applied: dict[str, Applied] = {}
        """File -> what the doctor has written into it since the run; its text is then the one before that."""
        self.newest_s = 0.0
        """When a log was last written to."""
        self.gaps: list[Gap] = []
        self._progress, self._expect, self._interruptible = progress, expect, interruptible
        self._window = window
        self._scanner = make_scanner(engine)
        self._places: dict[str, tuple[str | None, tzinfo]] = {}
        """Log of a recorded run -> its node and time zone."""
        self._seen: set[bytes] = set()
        self._byte_count = 0
        self._ahead_count = 0
        """Bytes of archives that workers have read, and that were not taken yet."""
        self._line_counts: dict[str, int] = {}
        self._most_events = _MOST_EVENTS
        self._left_out_count = 0
        self._configuration_bytes = {False: 0, True: 0}

    def _read_sources(self, found: Iterable[tuple[Source, Reading | None]]) -> None:
        """Reads each source, unless it comes with its reading."""
        parts: list[list[Event]] = []
        """Events of each source, in order."""
        files: list[tuple[Source, list[Event]]] = []
        """Logs that can be read at any time, and where their events go."""
        held = 0
        try:
            for source, reading in found:
                part: list[Event] = []
                parts.append(part)
                if self._is_copy(source):
                    self.gaps.append(Gap(what=quoted(source.name), why=say("a copy of a file that was read already")))
                elif is_configuration(source.name):
                    with isolated(quoted(source.name), self.gaps):
                        part += self._read_configuration(source)
                elif rank_of_dump(source.name) is not None:
                    with isolated(quoted(source.name), self.gaps):
                        data = source.read(MOST_BYTES)
                        self._add_bytes(source.name, len(data))
                        part += read_dump(data, source.name, self.gaps)
                else:
                    self.logs[source.name] = None
                    self.newest_s = max(self.newest_s, source.modified or 0.0)
                    host, zone = self._places.get(source.name, (None, timezone.utc))
                    placed = replace(source, host=host, zone=zone, window=self._window)
                    if reading is not None:
                        self._add_bytes(source.name, reading.byte_count)
                        self._take(source, part, reading)
                    elif source.is_file:
                        files.append((placed, part))
                    else:
                        self._read_log(placed, part)
                held += len(part)
                if held > self._most_events:
                    held = self._thin(parts)
            for part in self._read_files(files):
                held += len(part)
                if held > self._most_events:
                    held = self._thin(parts)
        except KeyboardInterrupt:
            if not self._interruptible or not any(parts):
                raise  # there is nothing to rest a verdict on
            why = say(
                "stopped by Ctrl-C after {read} of {every} logs; the verdict rests on what was read until then",
                read=len(self._line_counts),
                every=len(self.logs),
            )
            self.gaps.append(Gap(what=say("the reading"), why=why))
        if self._left_out_count:
            self.gaps.append(Gap(what=say("the reading"), why=why_left_out(self._left_out_count)))
            self._left_out_count = 0
        self.events.extend(event for part in parts for event in part)

    def _thin(self, parts: Sequence[list[Event]]) -> int:
        """Leaves events out; how many are held then. Where that is no use, the limit is raised."""
        self._left_out_count += thin(parts, _MOST_EVENTS // 2)
        held = sum(map(len, parts))
        self._most_events = max(_MOST_EVENTS, 2 * held)
        return held

    def _read_files(self, files: Sequence[tuple[Source, list[Event]]]) -> Iterator[list[Event]]:
        """Reads logs by as many processes as they are worth, or here; the events of each, when they are there."""
        sources, readings = [source for source, _ in files], [Reading(part) for _, part in files]
        if self._expect is not None and not any(is_compressed(source.name) for source in sources):
            self._expect(self._byte_count + sum(source.size_bytes or 0 for source in sources))
        found = read_files(sources, readings, self._scanner, self._add_bytes)
        for (source, part), reading in zip(files, found):
            self._take(source, part, reading)
            yield part

    def _take(self, source: Source, part: list[Event], reading: Reading) -> None:
        if reading.events is not part:
            part += reading.events
        self.gaps.extend(reading.gaps)
        self._line_counts[source.name] = reading.line_end_count

    def _read_log(self, source: Source, part: list[Event]) -> None:
        reading = Reading(part, self.gaps)
        read_log(source, self._scanner, reading, lambda count: self._add_bytes(source.name, count))
        self._line_counts[source.name] = reading.line_end_count

    def _add_bytes(self, name: str, count: int) -> None:
        self._byte_count += count
        self._add_ahead(name, 0)

    def _add_ahead(self, name: str, count: int) -> None:
        self._ahead_count += count
        if self._progress is not None:
            self._progress(name, self._byte_count + self._ahead_count)

    def _is_copy(self, source: Source) -> bool:
        """Whether the same bytes were read before; ranks may have written the same dump."""
        mark = source.fingerprint() if source.fingerprint is not None and rank_of_dump(source.name) is None else b""
        if mark in self._seen:
            return True
        self._seen.update({mark} - {b""})
        return False

    def _read_configuration(self, source: Source) -> list[Event]:
        data = source.read(CONFIG_LIMIT_BYTES)
        if len(data) == CONFIG_LIMIT_BYTES:
            why = say(
                "configuration of more than {config_limit_bytes} MiB; cut there",
                config_limit_bytes=CONFIG_LIMIT_BYTES >> 20,
            )
            self.gaps.append(Gap(what=quoted(source.name), why=why))
        is_large = len(data) > _LARGE_BYTES
        if self._configuration_bytes[is_large] + len(data) > _MOST_CONFIGURATION_BYTES:
            why = say("more than {most} MiB of configuration in all; not read", most=_MOST_CONFIGURATION_BYTES >> 20)
            self.gaps.append(Gap(what=quoted(source.name), why=why))
            return []
        self._configuration_bytes[is_large] += len(data)
        self.texts[source.name] = data.decode("utf-8", "surrogateescape")
        applied = applied_to(Path(source.name), self.gaps)
        if applied is not None:
            self.applied[source.name] = applied
        self._add_bytes(source.name, len(data))
        if rank_of_dump(source.name) is not None:
            return list(read_dump(data, source.name, self.gaps))
        host, zone = self._places.get(source.name, (None, timezone.utc))
        whole = replace(source, stream=lambda: iter((data,)), host=host, zone=zone)
        found = [e for e in read_events(whole, self._scanner, self.gaps) if e.kind not in _SHOWN_BY_LOGS]
        if is_source(source.name):  # a program that can raise an error has not raised it
            said = _SAID_BY_SOURCES + (_SAID_BY_STATUS if source.name.lower().endswith((".yaml", ".yml")) else ())
            found = [event for event in found if event.kind.scope in said or event.kind in _NOTES]
        return found
