"""What was read of one run: sources, traces, settings, the window of time.

Every command works on it; nothing is read twice.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from rlhfdoctor.core.archives import read_archives
from rlhfdoctor.core.intake import Intake
from rlhfdoctor.core.own_events import own_events
from rlhfdoctor.errors import SourceError
from rlhfdoctor.evidence.bars import name_training_bars
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.documents import is_report
from rlhfdoctor.faults import PATIENCE_S, isolated
from rlhfdoctor.files.mounts import is_silent
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.logs.events import order_events
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading
from rlhfdoctor.logs.remote import is_remote
from rlhfdoctor.logs.window import Window
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.settings.framework import find_framework, find_versions, name_of
from rlhfdoctor.settings.logged import parse_every_logged
from rlhfdoctor.settings.read import CONFIG_LIMIT_BYTES, parse_configuration
from rlhfdoctor.settings.written import Written, interpret
from rlhfdoctor.trace.archive import shown, unpacked
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.read import find_nodes
from rlhfdoctor.trace.run import Run, find_runs, find_unread, read_run
from rlhfdoctor.types import Event, Gap

_CONFIGURATION_S = 5.0
"""Of processor time for all configuration, the shortest files first; a large launch script takes a tenth of one."""
_MOST_SETTINGS = 40_000
"""Of all configuration, the shortest files first: some 40 MB; a run with its launch scripts has a few thousand."""


class Elsewhere(contextlib.AbstractContextManager[Any], Protocol):
    """Logs that are read where they lie, for as long as it is entered."""

    names: tuple[str, ...]
    """As a command takes them."""

    def read(self, gaps: list[Gap], window: Window) -> Iterable[tuple[Source, Reading | None]]:
        """Each file, with what was read of it; None where its text is to be read here."""

    def missing(self, events: list[Event]) -> Iterable[Gap]:
        """What could not be read, in the light of everything that was."""


class Session(Intake):
    """One run as a command reads it. Archives with a recorded run stay unpacked while it is open.

    Example:
        >>> from rlhfdoctor.vocabulary import EVENT
        >>> with Session("samples/ray-cgroup-kill/run") as session:
        ...     session.case.first(EVENT.kernel.killed).fields["pid"]
        11922
    """

    def __init__(
        self,
        paths: Paths,
        *,
        configs: Paths = (),
        framework: str | None = None,
        since: float | None = None,
        until: float | None = None,
        engine: str = "auto",
        progress: Callable[[str, int], None] | None = None,
        expect: Callable[[int], None] | None = None,
        interruptible: bool = False,
        elsewhere: Elsewhere | None = None,
        planned: bool = False,
    ) -> None:
        """Reads nothing yet.

        Args:
            paths: folders, files, archives, or `-`; one of them, or several.
            configs: configuration files in addition to the paths.
            framework: `NAME` or `NAME==VERSION`, to override detection.
            since, until: Unix seconds; events outside are ignored.
            engine: of the scanner, `auto`, `hyperscan` or `re`.
            progress: called with the source's name and the bytes read so far.
            expect: called with the bytes that `progress` will come to, where that can be known.
            interruptible: Ctrl-C ends the reading, not the command: what was read counts, and a gap says so.
            elsewhere: logs that are read where they lie, beside the paths.
            planned: of a run to come, for which files count as they are; else as the run had them, if the doctor has
                patched them since.
        """
        self.paths = (*listed(paths), *(elsewhere.names if elsewhere is not None else ()))
        super().__init__(engine, progress, expect, interruptible, Window(since, until))
        self.names: dict[str, str] = {}
        """Each path that is read -> its name as the user gave it."""
        self.is_end_in_doubt = False
        """Whether a kill was left out that may be the run's: then the last words of its log do not show its end."""
        self.untied: list[Event] = []
        """The kernel's kills that nothing ties to the run, and nothing speaks against."""
        self.traces: list[Recorded] = []
        """What recorders wrote, as much as a verdict needs."""
        self._planned = planned
        self._configs, self._framework = listed(configs), framework
        self._given, self._elsewhere = listed(paths), elsewhere
        self._stack = contextlib.ExitStack()
        self._shown_only: set[str] = set()
        """Configuration with settings that is not for the user to edit."""
        self._configuration_s = 0.0
        self._setting_count = 0
        self._noted = set[Gap]()
        self._written: dict[str, list[Written]] = {}

    def __enter__(self) -> Session:
        """Reads the paths.

        Raises:
            SourceError: there was nothing to read.
        """
        with contextlib.ExitStack() as undo:
            undo.callback(self._stack.close)
            self.add([*self._given, *self._configs])
            if self._elsewhere is not None:
                self._read_elsewhere(self._elsewhere)
            if not self._byte_count:
                raise self._nothing()
            undo.pop_all()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stack.close()

    def add(self, paths: Sequence[str]) -> None:
        """Reads further paths, and nothing again of what was read before."""
        fresh = self._stack.enter_context(unpacked(self._answering(paths), self.gaps))
        self.names |= fresh
        files = self._open_runs(list(fresh))
        inside = {name: folder for name, folder in files.items() if folder is not None}
        here = list(find_sources(list(files), self.gaps, whole_archives=True, below=inside))
        self._read_sources(self._opened(here))
        self._drop_reports()
        self._shown_only |= set(filter(is_remote, self.texts))
        if any(real != to_show for real, to_show in fresh.items()):
            self._show_names()
        self.__dict__.pop("case", None)

    def _answering(self, paths: Sequence[str]) -> list[str]:
        silent = [path for path in paths if path != "-" and not is_remote(path) and is_silent(path)]
        for path in silent:
            self._note(Gap(what=quoted(path), why=say("the server of its mount does not answer")))
        return [path for path in paths if path not in silent]

    def _opened(self, sources: Sequence[Source]) -> Iterator[tuple[Source, Reading | None]]:
        """Archives as their files: read beside each other, where that is worth it, or streams to be read here."""
        archives = [source for source in sources if source.is_archive]
        answers = read_archives(archives, self._window, self._add_ahead)
        for source in sources:
            if not source.is_archive:
                yield source, None
                continue
            files = next(answers) if answers is not None else None
            if files is None:
                yield from ((member, None) for member in self._members(source))
                continue
            for file in files:
                self._ahead_count -= file.reading.byte_count
                if file.name:
                    yield file.as_source()
                else:
                    self.gaps.extend(file.reading.gaps)

    def _members(self, archive: Source) -> Iterator[Source]:
        below = {} if archive.below is None else {archive.name: archive.below}
        return find_sources([archive.name], self.gaps, below=below)

    def _read_elsewhere(self, elsewhere: Elsewhere) -> None:
        here = set(self.texts)
        with elsewhere:
            self._read_sources(elsewhere.read(self.gaps, self._window))
        self._shown_only |= set(self.texts) - here
        self.gaps.extend(elsewhere.missing(self.events))

    def shown(self, name: str) -> str:
        """The name of a file as the user gave it."""
        return shown(name, self.names)

    @cached_property
    def case(self) -> Case:
        """Events of the window in order of time, with settings, framework and versions."""
        events = [event for event in name_training_bars(order_events(self.events)) if self._window.holds(event.time)]
        own = own_events(events, self.paths, self.traces)
        events, self.untied, self.is_end_in_doubt = own.events, own.untied, own.is_end_in_doubt
        for gap in own.gaps:
            self._note(gap)
        if not self._window.is_open():
            self._note_undated(events)
        self._undo_applied(events)
        versions = find_versions(events)
        prefer = name_of(self._framework) if self._framework else None
        written = [*self._configured(), *self._logged(events)]
        settings = interpret(written, prefer)
        framework = find_framework(events, settings, versions, self._framework, recorded=bool(self.traces))
        if framework is not None and framework.name != prefer:  # its table takes precedence
            settings = interpret(written, framework.name)
            framework = find_framework(events, settings, versions, self._framework, recorded=bool(self.traces))
        return Case(events, settings, framework, versions, self.traces, self._line_counts)

    def _note_undated(self, events: Sequence[Event]) -> None:
        """A window leaves nothing out of a log without times."""
        dated = {event.origin.file for event in events if event.time is not None}
        for name in dict.fromkeys(event.origin.file for event in events):
            if name in self.logs and name not in dated:
                why = say("its lines bear no times, so --since and --until leave nothing of it out")
                self._note(Gap(what=quoted(name), why=why))

    def _undo_applied(self, events: Sequence[Event]) -> None:
        """Gives files that the doctor patched after the run the text that the run had; what it wrote earlier counts."""
        last_s = max((event.time for event in events if event.time is not None), default=None)
        ran_s = self.newest_s if last_s is None else min(last_s, self.newest_s or last_s)
        for name, applied in list(self.applied.items()):
            if self._planned or ran_s >= applied.at_s or name not in self.texts:
                del self.applied[name]
            else:
                self.texts[name] = applied.base[:CONFIG_LIMIT_BYTES].decode("utf-8", "surrogateescape")

    def _configured(self) -> Iterator[Written]:
        for name in sorted(self.texts.keys() - self._written.keys(), key=lambda name: (len(self.texts[name]), name)):
            self._written[name] = []
            left_s = _CONFIGURATION_S - self._configuration_s
            if left_s <= 0:
                why = say("not read: the configuration before it took {most:.0f} s", most=_CONFIGURATION_S)
                self._note(Gap(what=quoted(name), why=why))
                continue
            gaps, before_s = list[Gap](), time.process_time()
            with isolated(quoted(name), gaps, min(PATIENCE_S, left_s)):
                self._written[name], gaps = parse_configuration(name, self.texts[name])
            self._configuration_s += time.process_time() - before_s
            self._setting_count += len(self._written[name])
            if self._setting_count > _MOST_SETTINGS:
                self._setting_count -= len(self._written[name])
                self._written[name] = []
                why = say("not read: the configuration has more than {most:,} settings", most=_MOST_SETTINGS)
                gaps.append(Gap(what=quoted(name), why=why))
            for gap in gaps:
                self._note(gap)
        for name in self.texts:
            found = self._written[name]
            yield from (replace(one, form="argv", span=None) for one in found) if name in self._shown_only else found

    def _logged(self, events: Sequence[Event]) -> list[Written]:
        gaps: list[Gap] = []
        written = parse_every_logged(events, gaps)
        for gap in gaps:
            self._note(gap)
        return written

    def _note(self, gap: Gap) -> None:
        if gap not in self._noted:
            self._noted.add(gap)
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

    def _open_runs(self, paths: Sequence[str]) -> dict[str, str | None]:
        """The folders that `doctor watch` wrote are taken apart; what is left is read as text (`Run.files`)."""
        rest: dict[str, str | None] = {}
        all_runs = [find_runs(path) for path in paths]
        share = sum(len(find_nodes(run)) for runs in all_runs for run in runs)
        named = set(map(os.path.realpath, (*paths, *self._configs)))
        for path, runs in zip(paths, all_runs):
            alone = bool(runs) and runs[0] == Path(path)
            if not alone:
                rest[path] = None
                self.gaps.extend(find_unread(path, runs))
            for folder in runs:
                run = Run()
                with isolated(quoted(folder), self.gaps):
                    run = read_run(folder, share)
                self.traces.extend(run.traces)
                self.events.extend(run.events)
                self.gaps.extend(run.gaps)
                self._shown_only |= {name for name in run.shown_only if os.path.realpath(name) not in named}
                self._places |= run.places
                self._byte_count += sum(len(trace.node.times_ns) for trace in run.traces)
                if alone:
                    rest = {**rest, **{name: folder for name, folder in run.files.items() if name not in rest}}
        return rest

    def _renamed(self, gap: Gap, real: str, to_show: str) -> Gap:
        return Gap(what=gap.what.with_text(self.shown), why=gap.why.with_text(lambda text: text.replace(real, to_show)))

    def _drop_reports(self) -> None:
        """The doctor's own JSON beside what it is about: what it quotes is no line of the run, its list no settings."""
        found = {name for name, text in self.texts.items() if name not in self.paths and is_report(text)}
        for name in sorted(found):
            del self.texts[name]
            self._note(Gap(what=quoted(name), why=say("left out: a report of the doctor")))
        if found:
            self.events = [event for event in self.events if event.origin.file not in found]

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
