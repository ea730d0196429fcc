"""What shows how a run ended: an exit status, the trainer's last words, the state that Ray reports."""

from __future__ import annotations

import re

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.classify import RAY_SERVICE, TRIED_AGAIN
from rlhfdoctor.types import Event
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
    return next((event for event in reversed(case.of(*_ENDS)) if not _goes_on(case, event)), None)


def find_unrecognised(case: Case) -> list[Event]:
    """Lines that read like a failure and that no pattern knows, the last ones; else errors that echo another one.

    Of the latter kind is `ObjectLostError` or `DataLoader worker exited unexpectedly`: each follows from an end that is
    shown elsewhere, if it is shown at all.
    """
    unknown = case.of(EVENT.job.unrecognised) or [e for e in case.of(EVENT.python.error) if _is_echo(case, e)]
    return unknown[-_UNRECOGNISED_COUNT:]


def _is_echo(case: Case, error: Event) -> bool:
    """Whether an exception tells of another end, and no training follows it."""
    harmless = TRIED_AGAIN.search(error.text) or "Warning" in error.text or "Exception ignored" in error.text
    if harmless or RAY_SERVICE.search(error.origin.file) or _LOGGED.search(error.text):
        return False
    return not _goes_on(case, error)


def _is_full(event: Event) -> bool:
    """Whether a progress bar has all of its steps."""
    total = event.fields.get(FIELD.total_count)
    return total is not None and total == event.fields.get(FIELD.step)


def _is_saving(case: Case, end: Event) -> bool:
    """Whether the log stops in the bar of a save that began behind the line."""
    saves = [
        event
        for event in case.of(EVENT.phase.checkpoint)
        if event.origin.file == end.origin.file and (event.origin.line or 0) > (end.origin.line or 0)
    ]
    return bool(saves) and _OPEN_BAR.search(saves[-1].text) is not None


def _goes_on(case: Case, end: Event) -> bool:
    """Whether the log goes on training behind the line: then a program or a stage on the way ended.

    Lines of other processes may be flushed behind the driver's last word, a few of them; a bar that stands at its end
    is closed there (transformers' ProgressCallback.on_train_end).
    """
    behind = [
        event.origin
        for event in case.events
        if event.kind in _TRAINS
        and not _is_full(event)
        and event.origin.file == end.origin.file
        and (event.origin.line or 0) > (end.origin.line or 0)
    ]
    if end.kind not in EXITS and _is_saving(case, end):
        return True
    writer = (end.origin.actor, end.origin.pid)
    return len(behind) > _FLUSHED_COUNT or any((origin.actor, origin.pid) == writer for origin in behind)
