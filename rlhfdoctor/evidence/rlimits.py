"""Limits on processes, threads or open files: which one refused, whether before the death.

EAGAIN ("Resource temporarily unavailable") is also the error of a socket, a lock or ZeroMQ that would block;
it means a limit only if a thread or a process was being created.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rlhfdoctor.evidence.case import Case, fact
from rlhfdoctor.evidence.classify import TRIED_AGAIN
from rlhfdoctor.i18n.message import NOTHING, Message, say, term
from rlhfdoctor.types import Death, Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.limits import ProcessLimit

_FILES = re.compile(r"Too many open files|Errno 24\b", re.I)
_WATCHES = re.compile(r"inotify", re.I)
_THREADS = re.compile(
    r"can't start new thread|pthread_create|fork: |Thread creation failed|thread: Resource temporarily"
    r"|thread constructor failed|what\(\): +Resource temporarily unavailable"
)
_FORK_FRAME = re.compile(r"^(?:_?fork_exec|_execute_child|fork|_launch|_start_thread|start_new_thread|start)$")
_NO_FILE = re.compile(r"unable to open shared memory object <[^>\n]{1,80}> in read")
"""torch's error, up to release 1.7 without the reason (aten/src/TH/THAllocator.cpp)."""
_PIDS: Final = "pids cgroup"
_NEAR_LINES = 200
_NEAR_S = 300.0
_GOES_ON = 2
"""With this many marks of later work, the error did not end the run."""

_REFUSED: Mapping[ProcessLimit, Message] = {
    "open files": say("the system refused one more open file"),
    "processes or threads": say("the system refused one more process or thread"),
    _PIDS: say("the pids limit of the cgroup refused one more process or thread"),
}


def find_process_limit(case: Case, death: Death | None) -> Iterator[Evidence]:
    """The limit that was reached, and whether that came first."""
    refused = [(event, kind) for event in case.of(EVENT.host.process_limit) if (kind := _kind(case, event))]
    kernel = case.first(EVENT.kernel.pids_limit)
    if kernel is not None and any(name == "processes or threads" for _, name in refused):
        refused.append((kernel, _PIDS))  # the line alone may be another job's: the kernel log is the node's
    yield from _allowed(case)
    if not refused:
        return
    event, kind = refused[0]
    if kind == "processes or threads" and any(name == _PIDS for _, name in refused):
        kind = _PIDS
    yield fact(FACT.limit.kind, term(kind), _REFUSED[kind], event)
    first = next((e for e, _ in refused if _leads_to(e, death) and not _survived(case, e)), None)
    if death is not None:
        yield fact(
            FACT.limit.first,
            first is not None,
            (say("{what} before anything else failed", what=_REFUSED[kind]) if first else NOTHING),
            first or event,
        )


def _kind(case: Case, event: Event) -> ProcessLimit | None:
    if TRIED_AGAIN.search(event.text):
        return None
    if _FILES.search(event.text):
        return None if _WATCHES.search(event.text) else "open files"
    if _THREADS.search(event.text):
        return "processes or threads"
    before = [
        e
        for e in case.around(event, 8)
        if e.kind == EVENT.python.frame and (e.origin.line or 0) <= (event.origin.line or 0)
    ]
    forks = before and _FORK_FRAME.match(str(before[-1].fields.get(FIELD.function_text)))
    return "processes or threads" if forks else None


def _leads_to(event: Event, death: Death | None) -> bool:
    """Whether an event is the death itself, or came shortly before it; unknown order is taken as before."""
    if death is None or death.event is None:
        return death is not None
    place = death.event.origin
    if event.origin.file == place.file:
        lines = (place.line or 0) - (event.origin.line or 0)
        if lines < 0 and not _same_report(event, death.event) and not _NO_FILE.search(death.event.text):
            return False
        if event.time is None or death.time is None:
            return lines <= _NEAR_LINES
    if event.time is None or death.time is None:
        return death.event.kind not in (EVENT.python.error, EVENT.python.bare_error) or event.origin.file == place.file
    waited = 0.0
    if death.killer == "collective-timeout":
        limit = death.event.fields.get(FIELD.timeout_s) or death.event.fields.get(FIELD.limit_s)
        waited = float(limit) if isinstance(limit, int | float) else 3600.0
    return -1.0 <= death.time - event.time <= _NEAR_S + waited


def _survived(case: Case, event: Event) -> bool:
    """Whether the run went on for long: it caught the error and tried again."""
    marks = [e for e in case.events if e.kind.scope == "phase"]
    if event.time is not None:
        later = [e for e in marks if e.time is not None and e.time > event.time + _NEAR_S]
    else:
        later = [
            e for e in marks if e.origin.file == event.origin.file and (e.origin.line or 0) > (event.origin.line or 0)
        ]
    return (
        len(
            [
                e
                for e in later
                if e.kind in (EVENT.phase.step, EVENT.phase.episode, EVENT.phase.rollout, EVENT.phase.update)
            ]
        )
        >= _GOES_ON
    )


def _same_report(event: Event, other: Event) -> bool:
    """Whether the line is a few lines after the other: one report of several lines."""
    return 0 <= (event.origin.line or 0) - (other.origin.line or 0) <= 3


def _allowed(case: Case) -> Iterator[Evidence]:
    """What the recorder read of the command's own limits."""
    for trace in case.traces[:1]:
        limits = trace.node.run.get("limits") or {}
        files = limits.get("open_files")
        if isinstance(files, int) and files >= 0:  # -1 is no limit
            yield fact(
                FACT.limit.open_files_count,
                files,
                say("the run may open {files} files a process (ulimit -n)", files=files),
            )
