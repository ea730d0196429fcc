"""What shows how a run ended: an exit status, the trainer's last words, the state that Ray reports."""

from __future__ import annotations

import re
from bisect import bisect_right

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.classify import RAY_SERVICE, TRIED_AGAIN
from rlhfdoctor.types import Event, Origin
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD

_TRAINS = (EVENT.phase.rollout, EVENT.phase.score, EVENT.phase.update, EVENT.phase.step, EVENT.phase.episode)
_UNRECOGNISED_COUNT = 5
_OPEN_BAR = re.compile(r"(?<!\d)\d{1,2}%\|")
"""A progress bar that is not at its end."""
_FLUSHED_COUNT = 5
"""Judgement: Ray writes what its workers printed to the driver's log some lines late."""
_ENDS = (EVENT.phase.finished, EVENT.ray.job_succeeded, EVENT.job.exit_0, EVENT.trace.job_done)
_LOGGED = re.compile(r"\b(?:INFO|DEBUG|TRACE)\b|^\[[\d :,.-]{10,40} [IWD] \d")
"""Severities of what goes on."""
EXITS = (EVENT.ray.job_succeeded, EVENT.job.exit_0, EVENT.trace.job_done)
"""Those that end the run itself, beyond its last words."""


def find_good_end(case: Case) -> Event | None:
    """The line that shows it, the last of them; None if there is none, or if a recording breaks off."""
    if any(not trace.of(RECORD.recorder.end) for trace in case.traces):
        return None
    logs = _Logs(case)
    return next((event for event in reversed(case.of(*_ENDS)) if not logs.goes_on(event)), None)


def is_in_another_log(case: Case, failure: Event) -> bool:
    """Whether a failure stands in another log than that of a run that ended well, and nothing ties the two.

    Folders hold logs of installations, tests, notebooks, other jobs, too.
    """
    good = find_good_end(case)
    origin = failure.origin
    if good is None or failure.time is not None or origin.file == good.origin.file:
        return False
    if failure.kind.scope in ("trace", "ray") or origin.rank is not None or origin.actor is not None:
        return False
    others = [event for event in case.events if event.origin.file != origin.file]
    is_known = origin.pid is not None and any(event.origin.pid == origin.pid for event in others)
    return not is_known and not any(event.origin.file == origin.file for event in case.of(*_TRAINS))


def find_shutdown(case: Case) -> Origin | None:
    """The place of the trainer's last words, where no save follows them and no step.

    Behind it an allocation is cancelled, an engine's process is found dead and threads lose their peers.
    """
    good = find_good_end(case)
    if good is None:
        return None
    return None if saves_behind(case, good.origin) else good.origin


def saves_behind(case: Case, place: Origin) -> bool:
    """Whether a save begins behind a place of a log."""
    return any(stands_behind(save, place) for save in case.of(EVENT.phase.checkpoint))


def stands_behind(event: Event, place: Origin) -> bool:
    """Whether an event stands in a later line of the same log."""
    return event.origin.file == place.file and _line(event) > (place.line or 0)


def find_unrecognised(case: Case) -> list[Event]:
    """Lines that read like a failure and that no pattern knows, the last ones; else errors that echo another one.

    Of the latter kind is `ObjectLostError` or `DataLoader worker exited unexpectedly`: each follows from an end that is
    shown elsewhere, if it is shown at all.
    """
    unknown = case.of(EVENT.job.unrecognised)
    if not unknown:
        logs = _Logs(case)
        unknown = [error for error in case.of(EVENT.python.error) if _is_echo(logs, error)]
    return unknown[-_UNRECOGNISED_COUNT:]


def _is_echo(logs: _Logs, error: Event) -> bool:
    """Whether an exception reports another end, and no training follows it."""
    harmless = TRIED_AGAIN.search(error.text) or "Warning" in error.text or "Exception ignored" in error.text
    if harmless or RAY_SERVICE.search(error.origin.file) or _LOGGED.search(error.text):
        return False
    return not logs.goes_on(error)


def _is_full(event: Event) -> bool:
    """Whether a progress bar has all of its steps."""
    total = event.fields.get(FIELD.total_count)
    return total is not None and total == event.fields.get(FIELD.step)


def _line(event: Event) -> int:
    return event.origin.line or 0


class _Logs:
    """Where each log shows training and saves."""

    def __init__(self, case: Case) -> None:
        self._trained: dict[str, list[int]] = {}
        """File -> lines of training, in order."""
        self._writers: dict[tuple[str, str | None, int | None], int] = {}
        """File and process -> its last line of training."""
        self._saves: dict[str, list[Event]] = {}
        for event in case.of(*_TRAINS):
            if not _is_full(event):
                origin, line = event.origin, _line(event)
                self._trained.setdefault(origin.file, []).append(line)
                writer = (origin.file, origin.actor, origin.pid)
                self._writers[writer] = max(line, self._writers.get(writer, 0))
        for lines in self._trained.values():
            lines.sort()
        for save in case.of(EVENT.phase.checkpoint):
            self._saves.setdefault(save.origin.file, []).append(save)

    def goes_on(self, end: Event) -> bool:
        """Whether the log goes on training behind the line: then a program or a stage on the way ended.

        Lines of other processes may be flushed behind the driver's last word, a few of them; a bar that stands at its
        end is closed there (transformers' ProgressCallback.on_train_end).
        """
        if end.kind not in EXITS and self._is_saving(end):
            return True
        origin, line = end.origin, _line(end)
        lines = self._trained.get(origin.file, [])
        own = self._writers.get((origin.file, origin.actor, origin.pid), 0)
        return len(lines) - bisect_right(lines, line) > _FLUSHED_COUNT or own > line

    def _is_saving(self, end: Event) -> bool:
        """Whether the log stops in the bar of a save that began behind the line."""
        saves = reversed(self._saves.get(end.origin.file, []))
        last = next((save for save in saves if _line(save) > _line(end)), None)
        return last is not None and _OPEN_BAR.search(last.text) is not None
