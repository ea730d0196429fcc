"""Which of the kernel's OOM kills belong to the run, where no recording followed its processes.

The kernel log is the node's, and other jobs run there. A kill is the run's by its pid, by the job's number in the
cgroup's path, or by its time; one that nothing ties to the run loses against a run that finished or died of an error of
its own, against lines that go on behind it, and where its cgroup held fewer processes than the run has. A kill by the
kernel is SIGKILL: what ended on SIGTERM, with an exit status or by `ray.kill` is not it. One without a time, beside a
log that just stops, may be the run's, and decides nothing.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rlhfdoctor.evidence.case import Case, whole
from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.handled import without_handled
from rlhfdoctor.evidence.kernel_kill import looks_own
from rlhfdoctor.evidence.survived import without_survived
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.names import Kind
from rlhfdoctor.vocabulary.run import CERTAIN, EXCEPTION, SIGKILLERS, VANISHED

_REPORT: frozenset[Kind] = frozenset(
    (
        EVENT.kernel.oom_invoked,
        EVENT.kernel.memcg_trace,
        EVENT.kernel.memcg_usage,
        EVENT.kernel.memcg_task,
        EVENT.kernel.task_header,
        EVENT.kernel.task,
        EVENT.kernel.oom_kill,
        EVENT.kernel.killed,
        EVENT.kernel.kill_choice,
    )
)
_ENDS = frozenset((EVENT.kernel.killed, EVENT.kernel.kill_choice))
_JOB = re.compile(r"/job_(\d+)")
"""A Slurm job's cgroup (slurm, cgroup plugins)."""
_STEP = re.compile(r"\d{2,}")
_NEAR_S = 90.0
"""Judgement: a driver notices a lost worker within Ray's health checks, some seconds to a minute after the kill."""
_ZONES_S = 14 * 3600.0
"""Stamps without a time zone are so much wrong at most."""
_SILENT_S = 24 * 3600.0
"""Judgement: so long a run may have stood still before it was killed, without one line."""
_GOES_ON_S = 300.0
"""Judgement: a run that writes for this long behind a kill, and notices nothing, was not hit by it."""
_LOST = (EVENT.ray.actor_died, EVENT.ray.worker_died, EVENT.ray.worker_vanished)
_REASONS = (EVENT.ray.killed_on_request, EVENT.ray.worker_exit_code)
_LOST_ERRORS = ("ActorDiedError", "RayActorError", "WorkerCrashedError", "NodeDiedError", "LocalRayletDiedError")
"""How a driver sees that a process of its is gone (python/ray/exceptions.py)."""
_OF_THE_NODE = ("systemd", "shell", "job", "k8s", "docker", "slurm", "batch", "host")
"""Who speaks of any process of a node or of a job as a whole, not of an error that the program raised."""
_NAMED_BY_LAUNCHER = (EVENT.torch.closing_signal, EVENT.torch.process_failed, EVENT.torch.process_signal)
_NOT_SAID_BY_A_RUN = ("config", "framework", "version", "host")
"""What is in configuration, or noted of a machine."""
_GOOD_ENDS = (EVENT.phase.finished, EVENT.ray.job_succeeded, EVENT.job.exit_0)


@dataclass(frozen=True, slots=True)
class Sorted:
    """Events, and the last lines of the kernel's reports of kills that are not certainly the run's."""

    events: list[Event]
    """Without the reports of foreign kills."""
    foreign: list[Event]
    """Not the run's."""
    untied: list[Event]
    """Among `events`; nothing ties them to the run, and nothing speaks against them."""


def sort_kills(events: Sequence[Event]) -> Sorted:
    """Distinguishes the run's kills from others."""
    job = _Job([event for event in events if event.kind.scope != "kernel"])
    dropped: set[int] = set()
    found = Sorted([], [], [])
    reports = list(_reports(events))
    for report in reports:
        if not job.may_own(report):
            found.foreign.append(report[-1])
            dropped |= {id(event) for event in report}
        elif not job.is_tied_to(report):
            found.untied.append(report[-1])
    if len(found.foreign) == len(reports) > 0:  # pieces of a report without its end are of another kill of theirs
        whole_reports = {id(event) for report in reports for event in report}
        files = {killed.origin.file for killed in found.foreign}
        dropped |= {
            id(event)
            for event in events
            if event.kind in _REPORT and event.origin.file in files and id(event) not in whole_reports
        }
    found.events.extend(event for event in events if id(event) not in dropped)
    return found


def _reports(events: Sequence[Event]) -> Iterator[list[Event]]:
    """The lines of each kill, in the order of their file; a report without its end is not one."""
    report: list[Event] = []
    lines = (event for event in events if event.kind in _REPORT)
    for event in sorted(lines, key=lambda event: (event.origin.file, event.origin.line or 0)):
        if event.kind == EVENT.kernel.oom_invoked or (report and report[-1].origin.file != event.origin.file):
            report = []
        report.append(event)
        if event.kind in _ENDS:
            yield report
            report = []


def may_be_own(killed: Event) -> bool:
    """Whether a kill that was left out is of a process such as the run has: then a last word is no proof of its end."""
    return looks_own(str(killed.fields.get(FIELD.comm)))


def _name_of(event: Event) -> str:
    """Of an exception, without its module."""
    return str(event.fields.get(FIELD.name)).rpartition(".")[2]


class _Job:
    """What the run's own lines say of how it ended."""

    def __init__(self, events: Sequence[Event]) -> None:
        shown = [(event, failure) for event in events if (failure := classify(event)) is not None]
        self._pids = {pid for e in events for pid in (e.origin.pid, whole(e, FIELD.pid)) if pid is not None}
        self._vanished = [
            e
            for e, f in shown
            if (f.certainty == VANISHED and f.killer != "other") or (f.certainty == CERTAIN and f.killer in SIGKILLERS)
        ]
        case = Case(events)
        last = without_survived(case, without_handled(case, shown))
        own_error = any(f.certainty == EXCEPTION and e.kind.scope not in _OF_THE_NODE for e, f in last)
        finished = any(event.kind in _GOOD_ENDS for event in events)
        reasons = {e.kind for e, _ in shown if e.kind in _REASONS}  # why Ray's worker is gone: it was not killed
        if not reasons:
            self._vanished += [e for e in events if e.kind in _LOST or _name_of(e) in _LOST_ERRORS]
        self._vanished_s = sorted(event.time for event in self._vanished if event.time is not None)
        own_error |= EVENT.ray.killed_on_request in reasons
        self._ended_itself = not self._vanished and (own_error or finished)
        times = [event.time for event in events if event.time is not None]
        self._first_s, self._last_s = min(times, default=None), max(times, default=None)
        self._least_processes = 2 * any(event.kind in _NAMED_BY_LAUNCHER for event in events)  # torchrun and a rank
        self._speakers = {event.kind.scope for event in events}
        self._files = {
            event.origin.file
            for event in events
            if event.kind.scope not in _NOT_SAID_BY_A_RUN and event.kind != EVENT.job.unrecognised
        }
        self._numbers = {
            found[0]
            for e in events
            if e.kind.scope == "slurm" and (found := _STEP.search(str(e.fields.get(FIELD.step_text))))
        }

    def may_own(self, report: Sequence[Event]) -> bool:
        """Whether a kill may be the run's: nothing speaks against it."""
        killed = report[-1]
        if killed.time is not None and not self._ran_at(killed.time):
            return False
        if whole(killed, FIELD.pid) in self._pids:
            return True
        if _listed(report) < self._least_processes:
            return False
        numbers = {match[1] for event in report for match in _JOB.finditer(event.text)}
        if numbers and self._numbers:
            return bool(numbers & self._numbers)
        at = killed.time
        if at is not None and self._vanished_s:
            next_to = bisect_left(self._vanished_s, at)
            return min(abs(at - time) for time in self._vanished_s[max(next_to - 1, 0) : next_to + 1]) <= _NEAR_S
        if at is not None and self._last_s is not None and not self._vanished:
            return not self._ended_itself and self._last_s - at < _GOES_ON_S
        return not self._ended_itself

    def _ran_at(self, at: float) -> bool:
        """Whether the run may have lived then, by its first and its last line with a time."""
        if self._first_s is None or self._last_s is None:
            return True
        return self._first_s - _ZONES_S <= at <= self._last_s + _SILENT_S

    def is_tied_to(self, report: Sequence[Event]) -> bool:
        """Whether a kill that may be the run's has more in common with it than the folder it lies in."""
        killed = report[-1]
        if self._vanished or whole(killed, FIELD.pid) in self._pids or self._numbers:
            return True
        if killed.time is not None and self._last_s is not None:
            return True
        if str(killed.fields.get(FIELD.comm)).startswith("ray::") and "ray" in self._speakers:
            return True
        return not self._files - {killed.origin.file}


def _listed(report: Sequence[Event]) -> float:
    """How many processes the cgroup of a kill had; infinite where the kernel's list is not whole, or of the node."""
    rows = [event for event in report if event.kind == EVENT.kernel.task]
    lines = [event.origin.line or 0 for event in report if event.kind in (EVENT.kernel.task_header, EVENT.kernel.task)]
    whole_list = len(rows) < len(lines) == max(lines, default=0) - min(lines, default=0) + 1
    return len(rows) if whole_list and rows else math.inf
