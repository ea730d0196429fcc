"""What shows how a run ended: an exit status, the trainer's last words, the state that Ray reports."""

from __future__ import annotations

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, RECORD

_TRAINS = (EVENT.phase.rollout, EVENT.phase.score, EVENT.phase.update, EVENT.phase.step, EVENT.phase.episode)
_UNRECOGNISED_COUNT = 5
_ENDS = (EVENT.phase.finished, EVENT.ray.job_succeeded, EVENT.job.exit_0, EVENT.trace.job_done)


def find_good_end(case: Case) -> Event | None:
    """The line that shows it, the last of them; None if there is none, or if a recording breaks off."""
    if any(not trace.of(RECORD.recorder.end) for trace in case.traces):
        return None
    return next((event for event in reversed(case.of(*_ENDS)) if not _goes_on(case, event)), None)


def find_unrecognised(case: Case) -> list[Event]:
    """Lines that read like a failure and that no pattern knows, the last ones."""
    return case.of(EVENT.job.unrecognised)[-_UNRECOGNISED_COUNT:]


def _goes_on(case: Case, end: Event) -> bool:
    """Whether the log goes on training behind the line: then a program or a stage on the way ended."""
    return any(
        event.kind in _TRAINS
        and event.origin.file == end.origin.file
        and (event.origin.line or 0) > (end.origin.line or 0)
        for event in case.events
    )
