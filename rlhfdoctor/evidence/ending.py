"""What shows that a run ended well: an exit status, the trainer's last words, the state that Ray reports."""

from __future__ import annotations

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD, RECORD

_ENDS = (EVENT.phase.finished, EVENT.ray.job_succeeded, EVENT.job.exit_0, EVENT.trace.job_done)
_STATUSES = (EVENT.docker.exit, EVENT.k8s.exit, EVENT.deepspeed.exit)


def find_good_end(case: Case) -> Event | None:
    """The line that shows it, the last of them; None if there is none, or if a recording breaks off."""
    if any(not trace.of(RECORD.recorder.end) for trace in case.traces):
        return None
    shown = [
        event for event in case.of(*_ENDS, *_STATUSES) if event.kind in _ENDS or event.fields.get(FIELD.exit_code) == 0
    ]
    return next((event for event in reversed(shown) if not _goes_on(case, event)), None)


def _goes_on(case: Case, end: Event) -> bool:
    """Whether the log goes on training behind the line: then a program on the way ended, such as a compiler."""
    return end.kind == EVENT.job.exit_0 and any(
        event.kind.scope == "phase"
        and event.kind != EVENT.phase.finished
        and event.origin.file == end.origin.file
        and (event.origin.line or 0) > (end.origin.line or 0)
        for event in case.events
    )
