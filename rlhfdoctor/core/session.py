"""What was read of one run: sources, traces, settings, the window of time.

Every command works on it; nothing is read twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timezone, tzinfo
from functools import cached_property
from itertools import repeat
from pathlib import Path

from rlhfdoctor.errors import SourceError
from rlhfdoctor.evidence.bars import name_training_bars
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.ownership import may_be_own, sort_kills
from rlhfdoctor.i18n.message import joined, plural, quoted, say
from rlhfdoctor.logs.events import make_scanner, order_events, read_events
from rlhfdoctor.logs.flight import MOST_BYTES, rank_of_dump, read_dump
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.streams import is_compressed
from rlhfdoctor.logs.workers import count_workers, read_beside
from rlhfdoctor.patch.apply import find_original
from rlhfdoctor.settings.framework import find_framework, find_versions, name_of
from rlhfdoctor.settings.logged import parse_every_logged
from rlhfdoctor.settings.read import is_configuration, is_source, parse_configuration
from rlhfdoctor.settings.written import Written, interpret
from rlhfdoctor.trace.archive import shown, unpacked
from rlhfdoctor.trace.events import Recorded, drop_foreign
from rlhfdoctor.trace.run import find_runs, find_unread, read_run
from rlhfdoctor.types import Event, Gap
from rlhfdoctor.vocabulary import EVENT

CONFIG_LIMIT_BYTES = 2 * 1024**2
_SAID_BY_SOURCES = ("config", "framework", "version")
"""Whose events count in a source file, beside notes on the machine: code that can raise an error has not raised it."""
_SHOWN_BY_LOGS = (EVENT.config.command, EVENT.config.dump, EVENT.config.variable)
"""What a file of configuration says of itself is read as configuration, with places that can be edited."""
_SAID_BY_STATUS = ("k8s", "docker")
"""What a pod's or container's state says, which kubectl writes as YAML, too."""
_NOTES = (EVENT.host.note_limit, EVENT.host.note_total, EVENT.host.note_used)


class Session:
    """One run as a command reads it. Archives with a recorded run stay unpacked while it is open.

    Example:
        >>> with Session(["samples/ray-cgroup-kill/run"]) as session:
        ...     session.case.first(EVENT.kernel.killed).fields["pid"]
        11922
    """

    def __init__(
        self,
        paths: Sequence[str],
        *,
        configs: Sequence[str] = (),
        framework: str | None = None,
        since: float | None = None,
        until: float | None = None,
        engine: str = "auto",
        progress: Callable[[str, int], None] | None = None,
        expect: Callable[[int], None] | None = None,
        interruptible: bool = False,
    ) -> None:
        """Reads nothing yet.

        Args:
            paths: folders, files, archives, or `-`.
            configs: configuration files in addition to the paths.
            framework: `NAME` or `NAME==VERSION`, to override detection.
            since, until: Unix seconds; events outside are ignored.
            engine: of the scanner, `auto`, `hyperscan` or `re`.
            progress: called with the source's name and the bytes read so far.
            expect: called with the bytes that `progress` will come to, where that can be known.
            interruptible: Ctrl-C ends the reading, not the command: what was read counts, and a gap says so.
        """
        self.paths = tuple(str(path) for path in paths)
        self.names: dict[str, str] = {}
        """Each path that is read -> its name as the user gave it."""
        self.events: list[Event] = []
        """Of all sources, in the order of reading; `case` has them in order of time."""
        self.texts: dict[str, str] = {}
        """Configuration files whole, by name."""
        self.logs: dict[str, None] = {}
        """Names of what was read line by line, in order."""
        self.originals: dict[str, tuple[str, float]] = {}
        """Text before the doctor patched a file, and when it did."""
        self.newest_s = 0.0
        """When a log was last written to."""
        self.gaps: list[Gap] = []
        self.is_end_in_doubt = False
        """Whether a kill was left out that may be the run's: then the last words of its log do not show its end."""
        self.untied: list[Event] = []
        """The kernel's kills that nothing ties to the run, and nothing speaks against."""
        self.traces: list[Recorded] = []
        """What recorders wrote, as much as a verdict needs."""
        self._configs, self._framework, self._window = tuple(map(str, configs)), framework, (since, until)
        self._progress, self._expect, self._interruptible = progress, expect, interruptible
        self._scanner = make_scanner(engine)
        self._stack = contextlib.ExitStack()
        self._shown_only: set[str] = set()
        """Configuration with settings that is not for the user to edit."""
        self._places: dict[str, tuple[str | None, tzinfo]] = {}
        """Log of a recorded run -> its node and time zone."""
        self._written: dict[str, list[Written]] = {}
        self._seen: set[bytes] = set()
        self._byte_count = 0
        self._line_counts: dict[str, int] = {}

    def __enter__(self) -> Session:
        """Reads the paths.

        Raises:
            SourceError: there was nothing to read.
        """
        try:
            self.add([*self.paths, *self._configs])
            if not self._byte_count:
                raise self._nothing()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def add(self, paths: Sequence[str]) -> None:
        """Reads further paths, and nothing again of what was read before."""
        fresh = self._stack.enter_context(unpacked(paths, self.gaps))
        self.names |= fresh
        self._read_sources(self._open_runs(list(fresh)))
        if any(real != to_show for real, to_show in fresh.items()):
            self._show_names()
        self.__dict__.pop("case", None)

    def shown(self, name: str) -> str:
        """The name of a file as the user gave it."""
        return shown(name, self.names)

    @cached_property
    def case(self) -> Case:
        """Events of the window in order of time, with settings, framework and versions."""
        events = [event for event in name_training_bars(order_events(self.events)) if self._is_inside(event)]
        if self.traces:
            events, foreign = drop_foreign(events, self.traces)
        else:
            kills = sort_kills(events)
            events, self.untied = kills.events, kills.untied
            foreign, self.is_end_in_doubt = len(kills.foreign), any(map(may_be_own, kills.foreign))
        if foreign:
            self._note(
                Gap(
                    what=say("kernel log"),
                    why=say(
                        "{kills} of other jobs on this node left out", kills=plural("{n} kill", "{n} kills", foreign)
                    ),
                )
            )
        versions = find_versions(events)
        prefer = name_of(self._framework) if self._framework else None
        written = [*self._configured(), *self._logged(events)]
        settings = interpret(written, prefer)
        framework = find_framework(events, settings, versions, self._framework, recorded=bool(self.traces))
        if framework is not None and framework.name != prefer:  # its table takes precedence
            settings = interpret(written, framework.name)
            framework = find_framework(events, settings, versions, self._framework, recorded=bool(self.traces))
        return Case(events, settings, framework, versions, self.traces, self._line_counts)

    def _is_inside(self, event: Event) -> bool:
        since, until = self._window
        if event.time is None:
            return True
        return (since is None or event.time >= since) and (until is None or event.time <= until)

    def _configured(self) -> Iterator[Written]:
        for name, text in self.texts.items():
            if name not in self._written:
                self._written[name], gaps = parse_configuration(name, text)
                for gap in gaps:
                    self._note(gap)
            found = self._written[name]
            yield from (replace(one, form="argv", span=None) for one in found) if name in self._shown_only else found

    def _logged(self, events: Sequence[Event]) -> list[Written]:
        gaps: list[Gap] = []
        written = parse_every_logged(events, gaps)
        for gap in gaps:
            self._note(gap)
        return written

    def _note(self, gap: Gap) -> None:
        if gap not in self.gaps:
            self.gaps.append(gap)

    def _nothing(self) -> SourceError:
        why = joined(*(say("{what}: {why}", what=gap.what, why=gap.why) for gap in self.gaps[:3]))
        return SourceError(
            say(
                "nothing to read in {paths:, } ({why}).\n"
                "Give the folder of a Ray session (for example /tmp/ray/session_latest/logs), the job's log, dmesg, "
                "and the launch script.",
                paths=(*self.paths, *self._configs),
                why=why or say("no files, or all of them empty"),
            )
        )

    def _open_runs(self, paths: Sequence[str]) -> list[str]:
        """The folders that `doctor watch` wrote are taken apart; what is left is read as text."""
        rest: list[str] = []
        for path in paths:
            runs = find_runs(path)
            alone = bool(runs) and runs[0] == Path(path)
            if not alone:
                rest.append(path)
                self.gaps.extend(find_unread(path, runs))
            for folder in runs:
                run = read_run(folder)
                self.traces.extend(run.traces)
                self.events.extend(run.events)
                self.gaps.extend(run.gaps)
                self._shown_only |= run.shown_only
                self._places |= run.places
                self._byte_count += sum(len(trace.node.times_ns) for trace in run.traces)
                if alone:
                    rest.extend(run.files)
        return list(dict.fromkeys(rest))

    def _read_sources(self, paths: Sequence[str]) -> None:
        parts: list[list[Event]] = []
        """Events of each source, in order."""
        files: list[tuple[Source, list[Event]]] = []
        """Logs that can be read at any time, and where their events go."""
        try:
            for source in find_sources(paths, self.gaps):
                part: list[Event] = []
                parts.append(part)
                if self._is_copy(source):
                    self.gaps.append(Gap(what=quoted(source.name), why=say("a copy of a file that was read already")))
                elif is_configuration(source.name):
                    part += self._read_configuration(source)
                elif rank_of_dump(source.name) is not None:
                    data = source.read(MOST_BYTES)
                    self._add_bytes(source.name, len(data))
                    part += read_dump(data, source.name, self.gaps)
                else:
                    self.logs[source.name] = None
                    self.newest_s = max(self.newest_s, source.modified or 0.0)
                    host, zone = self._places.get(source.name, (None, timezone.utc))
                    placed = replace(source, host=host, zone=zone)
                    if source.is_file:
                        files.append((placed, part))
                    else:
                        self._read_log(placed, part)
            self._read_files(files)
        except KeyboardInterrupt:
            if not self._interruptible or not any(parts):
                raise  # there is nothing to rest a verdict on
            why = say(
                "stopped by Ctrl-C after {read} of {every} logs; the verdict rests on what was read until then",
                read=len(self._line_counts),
                every=len(self.logs),
            )
            self.gaps.append(Gap(what=say("the reading"), why=why))
        self.events.extend(event for part in parts for event in part)

    def _read_files(self, files: Sequence[tuple[Source, list[Event]]]) -> None:
        """Reads logs by as many processes as they are worth, or here."""
        sources = [source for source, _ in files]
        if self._expect is not None and not any(is_compressed(source.name) for source in sources):
            self._expect(self._byte_count + sum(source.size_bytes or 0 for source in sources))
        count = count_workers(sources)
        readings = read_beside(sources, count, self._scanner.engine, self._add_bytes) if count else repeat(None)
        for (source, part), reading in zip(files, readings):
            if reading is None:
                self._read_log(source, part)
                continue
            part += reading.events
            self.gaps.extend(reading.gaps)
            self._line_counts[source.name] = reading.line_end_count

    def _read_log(self, source: Source, part: list[Event]) -> None:
        reading = Reading(part, self.gaps)
        read_log(source, self._scanner, reading, lambda count: self._add_bytes(source.name, count))
        self._line_counts[source.name] = reading.line_end_count

    def _add_bytes(self, name: str, count: int) -> None:
        self._byte_count += count
        if self._progress is not None:
            self._progress(name, self._byte_count)

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
        self.texts[source.name] = data.decode("utf-8", "surrogateescape")
        original = find_original(Path(source.name))
        if original is not None:
            self.originals[source.name] = original
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

    def _renamed(self, gap: Gap, real: str, to_show: str) -> Gap:
        return Gap(what=gap.what.with_text(self.shown), why=gap.why.with_text(lambda text: text.replace(real, to_show)))

    def _show_names(self) -> None:
        """Names of what was unpacked, as the user gave them: by the archive."""
        self.events = [replace(e, origin=replace(e.origin, file=self.shown(e.origin.file))) for e in self.events]
        self.texts = {self.shown(name): text for name, text in self.texts.items()}
        self.logs = {self.shown(name): None for name in self.logs}
        self._places = {self.shown(name): place for name, place in self._places.items()}
        self._shown_only = {self.shown(name) for name in self._shown_only}
        self._line_counts = {self.shown(name): count for name, count in self._line_counts.items()}
        for real, to_show in self.names.items():
            if real != to_show:
                self.gaps = [self._renamed(gap, real, to_show) for gap in self.gaps]
        for trace in self.traces:
            trace.node.folder, trace.file = self.shown(trace.node.folder), self.shown(trace.file)
