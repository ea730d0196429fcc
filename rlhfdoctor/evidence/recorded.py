"""What the recorder's figures say: limits, growth, the phase of the peak, who grew, shared memory.

A trace decides what logs leave open: a slope per step against a sawtooth, the victim against the one
who grew, shmem that is no file. Evidence that is also available from logs has the same name; logs take precedence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.recorded_growth import Rows, find_growth
from rlhfdoctor.evidence.thrash import find_thrash
from rlhfdoctor.evidence.window import (
    NO_ROLE,
    FailureWindow,
    find_failure_window,
    find_process_usage,
    find_steps,
    kernel_was_silent,
    until,
)
from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.trace.record import mark_time_of
from rlhfdoctor.types import Death, Evidence, Value
from rlhfdoctor.vocabulary import FACT, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import HOST_KILLERS

_BETWEEN_STEPS = ("checkpoint", "load")


def find_recorded(case: Case, death: Death | None) -> Iterator[Evidence]:
    """All evidence of the trace."""
    window = find_failure_window(case, death)
    if window is None:
        return
    if not window.of_node and window.limit_bytes:
        window = replace(window, thrash=find_thrash(window.trace, window.use, window.limit_bytes, window.until_s))

    def fact(name: Fact, value: Value, says: Message) -> Evidence:
        return Evidence(name=name, value=value, says=says, origin=window.origin())

    if kernel_was_silent(window.trace):
        yield fact(
            FACT.trace.kernel_silent,
            True,
            say("the recorder read the kernel log to the end: the kernel killed no process of the run"),
        )
    for part in (_limits, find_growth, _phases, _processes, _shared):
        for name, value, says in part(window, death):
            yield fact(name, value, says)


def _limits(window: FailureWindow, death: Death | None) -> Rows:
    trace = window.trace
    total = trace.last("host", 0, "total_bytes")
    limits = [value for uid in trace.keys("cgroup") if (value := trace.last("cgroup", uid, "max_bytes")) is not None]
    limits = [value for value in limits if total is None or value < total]
    if total is not None:
        yield FACT.host.total_bytes, total, say("the node has {total:bytes}", total=total)
        available = trace.last("host", 0, "available_bytes", window.until_s)
        if available is not None:
            yield (
                FACT.host.available_ratio,
                available / total,
                say(
                    "{available:bytes} of the node's {total:bytes} were available at the last sample",
                    available=available,
                    total=total,
                ),
            )
        if limits:
            yield (
                FACT.host.limit_ratio,
                min(limits) / total,
                say(
                    "the limit of {limit:bytes} is {part:share} of the node's {total:bytes}",
                    limit=min(limits),
                    part=min(limits) / total,
                    total=total,
                ),
            )
        elif trace.keys("cgroup"):
            yield FACT.host.unlimited, True, say("no level of the cgroup has a memory limit")
    if limits:
        yield FACT.host.limit_bytes, min(limits), say("the cgroup's memory limit is {limit:bytes}", limit=min(limits))
    if window.use and window.limit_bytes:
        peak = max(value for _, value in window.use)
        yield (
            FACT.trace.full_ratio,
            peak / window.limit_bytes,
            say(
                "use reached {part:share} of {whole} ({peak:bytes} of {limit:bytes}, page cache left out)",
                part=peak / window.limit_bytes,
                whole=(say("the node") if window.of_node else say("the limit")),
                peak=peak,
                limit=window.limit_bytes,
            ),
        )
        thrash = window.thrash
        if thrash is not None and death is not None and death.killer not in HOST_KILLERS:
            yield (
                FACT.trace.thrashed_s,
                thrash.seconds,
                say(
                    "for {seconds:s} use stood at the limit, and {reading_count} of {process_count} processes had "
                    "pages read back from disk: the kernel takes programs out of memory before it kills, and the run "
                    "hangs",
                    seconds=round(thrash.seconds),
                    reading_count=thrash.reading_count,
                    process_count=thrash.process_count,
                ),
            )


def _phase_marks(window: FailureWindow) -> list[tuple[float, str]]:
    """(Unix seconds, phase) of each beginning, in order; "" where a further step ends a save or a load."""
    found: list[tuple[float, str]] = []
    last_step = saved_step = -1
    for event in sorted(window.trace.of(RECORD.note.mark), key=mark_time_of):
        at, phase = window.trace.seconds(mark_time_of(event)), event.get(R.phase)
        if at > window.until_s or event.get(R.edge) == "end":
            continue
        last_step = max(last_step, int(event.get(R.step) or -1))
        if phase:
            found.append((at, str(phase)))
            saved_step = last_step
        elif found and found[-1][1] in _BETWEEN_STEPS and last_step > saved_step:
            found.append((at, ""))
    return found


def _phases(window: FailureWindow, _death: Death | None) -> Rows:
    """In which phase the peak fell, and how much memory rose within the last phase."""
    marks = _phase_marks(window)
    if not marks or not window.use:
        return
    peak_s, peak = max(window.use, key=lambda p: p[1])
    place = bisect_right(marks, (peak_s, "\uffff")) - 1
    if place >= 0 and marks[place][1]:
        yield (
            FACT.trace.peak_phase,
            marks[place][1],
            say(
                "the peak of {peak:bytes} fell into the {phase} phase",
                peak=peak,
                phase=term(marks[place][1].replace("_", " ")),
            ),
        )
    phase = marks[-1][1]
    if not phase:
        return
    begin_s = next(begin for begin, _ in reversed(list(takewhile(lambda mark: mark[1] == phase, reversed(marks)))))
    begin_s = max(
        [begin_s, *(at for at in find_steps(window.trace) if at <= window.until_s)]
    )  # a phase may last for several steps
    before = [value for at, value in window.use if at <= begin_s]
    inside = [value for at, value in window.use if at >= begin_s]
    if before and inside and window.limit_bytes:
        rise = max(inside) - before[-1]
        yield (
            FACT.trace.last_phase_rise_ratio,
            rise / window.limit_bytes,
            say(
                "in the last phase ({phase}) use rose by {rise:bytes}, {part:share} of the limit",
                phase=term(phase.replace("_", " ")),
                rise=rise,
                part=rise / window.limit_bytes,
            ),
        )


def _processes(window: FailureWindow, _death: Death | None) -> Rows:
    usages = find_process_usage(window)
    if not usages:
        return
    total = sum(usage.anon_bytes for usage in usages) + max(usage.shmem_bytes for usage in usages)
    top = usages[0]
    share = top.bytes / max(total, 1)
    yield (
        FACT.trace.culprit_role,
        top.role,
        say(
            "{role} (pid {pid}) held most at the last sample: {held:bytes}",
            role=term(top.role),
            pid=top.pid,
            held=top.bytes,
        ),
    )
    yield FACT.trace.culprit_ratio, share, say("that is {share:share} of what all followed processes held", share=share)
    growth: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for usage in usages:
        growth[usage.role] = growth.get(usage.role, 0) + usage.bytes - usage.first_bytes
        sizes[usage.role] = sizes.get(usage.role, 0) + usage.bytes
    grower = max(growth, key=lambda role: growth[role])
    risen = sum(value for value in growth.values() if value > 0)
    if risen > 0:
        yield (
            FACT.trace.grower_role,
            grower,
            say("{grower} grew most: by {rise:bytes}", grower=term(grower), rise=growth[grower]),
        )
        yield (
            FACT.trace.grower_ratio,
            growth[grower] / risen,
            say("that is {part:share} of all growth", part=growth[grower] / risen),
        )
    roles = [
        role for role, size in sizes.items() if role not in (NO_ROLE, "driver", "raylet") and size > 0.1 * max(total, 1)
    ]
    yield (
        FACT.trace.role_count,
        len(roles),
        (
            say("roles with a tenth or more of the memory: {roles}", roles=tuple(term(role) for role in sorted(roles)))
            if roles
            else say("roles with a tenth or more of the memory: none")
        ),
    )


def _shared(window: FailureWindow, _death: Death | None) -> Rows:
    """Shared and page-locked memory: of the culprit, of the host, and what /dev/shm holds of it."""
    trace, until_s = window.trace, window.until_s
    usages = find_process_usage(window)
    if usages:
        top = usages[0]
        ratio = top.shmem_bytes / max(top.bytes, 1)
        yield (
            FACT.trace.shmem_ratio,
            ratio,
            say("{ratio:share} of the largest process is shmem (pinned or shared), the rest anonymous", ratio=ratio),
        )
        locked = max(usage.locked_bytes for usage in usages)
        yield (
            FACT.trace.locked_ratio,
            locked / max(top.bytes, 1),
            say("{locked:bytes} mlocked against {held:bytes} held", locked=locked, held=top.bytes),
        )
    shmem, used = trace.last("host", 0, "shmem_bytes", until_s), trace.last("host", 0, "shm_used_bytes", until_s)
    size = trace.last("host", 0, "shm_size_bytes", until_s)
    if used is not None:
        yield FACT.shm.used_bytes, used, say("/dev/shm held {used:bytes}", used=used)
    if size:
        yield FACT.shm.size_bytes, size, say("/dev/shm is {size:bytes} large", size=size)
        sizes = dict(trace.series("host", 0, "shm_size_bytes"))  # the job's may have been found later than ours
        held = until(trace.series("host", 0, "shm_used_bytes"), until_s)
        fullest = max((value / size for at, value in held if sizes.get(at) == size), default=0.0)
        yield FACT.shm.full_ratio, fullest, say("/dev/shm was up to {fullest:share} full", fullest=fullest)
    if shmem is not None and used is not None:
        free = max(0, shmem - used)
        yield (
            FACT.trace.shm_without_files_bytes,
            free,
            say("{free:bytes} of shmem are no files in /dev/shm (page-locked, or anonymous shared memory)", free=free),
        )
    orphaned = trace.last("host", 0, "shm_orphaned_bytes", until_s)
    if orphaned:
        yield (
            FACT.shm.orphaned_bytes,
            orphaned,
            say("{orphaned:bytes} in /dev/shm belong to no process that is alive", orphaned=orphaned),
        )
