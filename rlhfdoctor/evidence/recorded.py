"""What the recorder's figures say: growth and its model, phase of the peak, who grew, pinned and shared memory, limits.

A trace decides what logs leave open: a slope per step against a sawtooth, the victim against the one
who grew, shmem that is no file. Evidence that is also available from logs has the same name; logs take precedence.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, takewhile

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.thrash import find_thrash
from rlhfdoctor.evidence.window import (
    NO_ROLE,
    TELLING_RATIO,
    FailureWindow,
    find_failure_window,
    find_process_usage,
    find_steps,
    kernel_was_silent,
    until,
)
from rlhfdoctor.i18n.message import Message, plural, say, term
from rlhfdoctor.trace.growth import fit_growth, theil_sen
from rlhfdoctor.trace.record import mark_time_of
from rlhfdoctor.types import Death, Evidence, Value
from rlhfdoctor.vocabulary import FACT, RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import HOST_KILLERS

_LEAST_STEPS = 3


def find_recorded(case: Case, death: Death | None) -> Iterator[Evidence]:
    """All evidence of the trace."""
    scene = find_failure_window(case, death)
    if scene is None:
        return
    if not scene.of_node and scene.limit_bytes:
        scene = replace(scene, thrash=find_thrash(scene.trace, scene.use, scene.limit_bytes, scene.until_s))

    def fact(name: Fact, value: Value, says: Message) -> Evidence:
        return Evidence(name=name, value=value, says=says, origin=scene.origin())

    if kernel_was_silent(scene.trace):
        yield fact(
            FACT.trace.kernel_silent,
            True,
            say("the recorder read the kernel log to the end: the kernel killed no process of the run"),
        )
    for part in (_limits, _growth, _phases, _processes, _shared):
        for name, value, says in part(scene, death):
            yield fact(name, value, says)


Facts = Iterator[tuple[Fact, Value, Message]]


def _limits(scene: FailureWindow, death: Death | None) -> Facts:
    trace = scene.trace
    total = trace.last("host", 0, "total_bytes")
    limits = [value for uid in trace.keys("cgroup") if (value := trace.last("cgroup", uid, "max_bytes")) is not None]
    limits = [value for value in limits if total is None or value < total]
    if total is not None:
        yield FACT.host.total_bytes, total, say("the node has {total:bytes}", total=total)
        available = trace.last("host", 0, "available_bytes", scene.until_s)
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
    if scene.use and scene.limit_bytes:
        peak = max(value for _, value in scene.use)
        yield (
            FACT.trace.full_ratio,
            peak / scene.limit_bytes,
            say(
                "use reached {part:share} of {whole} ({peak:bytes} of {limit:bytes}, page cache left out)",
                part=peak / scene.limit_bytes,
                whole=(say("the node") if scene.of_node else say("the limit")),
                peak=peak,
                limit=scene.limit_bytes,
            ),
        )
        thrash = scene.thrash
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


def _growth(scene: FailureWindow, _death: Death | None) -> Facts:
    """The growth model over the run, and the rise of the peaks from step to step."""
    if len(scene.use) < 5 or not scene.limit_bytes:
        return
    starts = [at for at in find_steps(scene.trace) if at <= scene.until_s]
    if starts and len(starts) <= _LEAST_STEPS:
        return  # loading and the first optimizer step rise in every run
    end_s = scene.until_s if scene.thrash is None else scene.thrash.since_s  # after that, nothing can grow
    settled = [point for point in scene.use if point[0] <= end_s and (not starts or point[0] >= starts[1])]
    growth = fit_growth(_thin(settled), scene.limit_bytes)
    if growth is not None:
        rate = growth.slope_bytes_per_s * 60
        says = {
            "level": say("memory in use stood still"),
            "slope": say("memory in use rose steadily by {rate:bytes} a minute", rate=rate),
            "staircase": say(
                "memory in use rose in jumps of about {jump_bytes:bytes} every {jump_s:s}",
                jump_bytes=growth.jump_bytes,
                jump_s=round(growth.jump_s),
            ),
            "sawtooth": say(
                "memory in use rose and fell every {jump_s:s}; its peaks {rose}",
                jump_s=round(growth.jump_s),
                rose=say("rose by {rate:bytes} a minute", rate=rate) if rate else say("did not rise"),
            ),
        }[growth.kind]
        yield FACT.trace.growth, growth.kind, says
        yield FACT.trace.is_growing, growth.slope_bytes_per_s > 0, says
    yield from _grown_shmem(scene, settled[0][0] if settled else scene.until_s)
    if not starts:
        return
    peaks: list[tuple[float, int]] = []
    for begin, end in zip(starts, [*starts[1:], scene.until_s]):
        inside = [value for at, value in scene.use if begin <= at <= end]
        if inside:
            peaks.append((float(len(peaks)), max(inside)))
    if len(peaks) < _LEAST_STEPS:
        return
    warm = peaks[1:] if len(peaks) > _LEAST_STEPS else peaks  # the first step loads and warms up
    slope, _, _ = theil_sen(warm)
    rises = [two[1] - one[1] for one, two in pairwise(warm)]
    up = sum(1 for rise in rises if rise > 0.001 * warm[0][1])
    grown = (warm[-1][1] - warm[0][1]) / max(warm[0][1], 1)
    yield (
        FACT.host.slope_bytes_per_step,
        int(slope),
        say(
            "the peak of each step rose by {slope:bytes} a step over {steps}",
            slope=slope,
            steps=plural("{n} step", "{n} steps", len(warm)),
        ),
    )
    yield (
        FACT.host.rising_steps_ratio,
        up / max(1, len(rises)),
        say("it rose in {up} of {steps}", up=up, steps=plural("{n} step", "{n} steps", len(rises))),
    )
    yield FACT.host.growth_ratio, grown, say("the peaks grew by {grown:share}", grown=grown)


def _grown_shmem(scene: FailureWindow, since_s: float) -> Facts:
    """How much of what the limit's cgroup grew by is shmem (page-locked or shared) rather than anonymous memory."""
    uid = next((int(u) for u, row in scene.trace.known["cgroup"].items() if row.get(R.path) == scene.limit), None)
    if uid is None:
        return
    grown = {}
    for kind in ("anon", "shmem"):
        series = [
            value for at, value in scene.trace.series("cgroup", uid, f"{kind}_bytes") if since_s <= at <= scene.until_s
        ]
        grown[kind] = max(0, series[-1] - series[0]) if series else 0
    total = sum(grown.values())
    if total >= TELLING_RATIO * (scene.limit_bytes or 0):
        ratio = grown["shmem"] / total
        yield (
            FACT.trace.grown_shmem_ratio,
            ratio,
            say(
                "{ratio:share} of the growth of {total:bytes} is shmem (page-locked or shared)",
                ratio=ratio,
                total=total,
            ),
        )


def _thin(points: Sequence[tuple[float, int]], count: int = 480) -> list[tuple[float, int]]:
    step = max(1, len(points) // count)
    return (
        list(points[::step])
        if step == 1
        else [max(points[i : i + step], key=lambda p: p[1]) for i in range(0, len(points), step)]
    )


def _phases(scene: FailureWindow, _death: Death | None) -> Facts:
    """In which phase the peak fell, and how much memory rose within the last phase."""
    marks = [
        (scene.trace.seconds(mark_time_of(e)), str(e[R.phase]))
        for e in scene.trace.of(RECORD.note.mark)
        if e.get(R.phase) and e.get(R.edge) != "end"
    ]
    marks = sorted(mark for mark in marks if mark[0] <= scene.until_s)
    if not marks or not scene.use:
        return
    peak_s, peak = max(scene.use, key=lambda p: p[1])
    place = bisect_right(marks, (peak_s, "\uffff")) - 1
    if place >= 0:
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
    begin_s = next(begin for begin, _ in reversed(list(takewhile(lambda mark: mark[1] == phase, reversed(marks)))))
    begin_s = max(
        [begin_s, *(at for at in find_steps(scene.trace) if at <= scene.until_s)]
    )  # a phase may last for several steps
    before = [value for at, value in scene.use if at <= begin_s]
    inside = [value for at, value in scene.use if at >= begin_s]
    if before and inside and scene.limit_bytes:
        rise = max(inside) - before[-1]
        yield (
            FACT.trace.last_phase_rise_ratio,
            rise / scene.limit_bytes,
            say(
                "in the last phase ({phase}) use rose by {rise:bytes}, {part:share} of the limit",
                phase=term(phase.replace("_", " ")),
                rise=rise,
                part=rise / scene.limit_bytes,
            ),
        )


def _processes(scene: FailureWindow, _death: Death | None) -> Facts:
    holders = find_process_usage(scene)
    if not holders:
        return
    total = sum(holder.anon_bytes for holder in holders) + max(holder.shmem_bytes for holder in holders)
    top = holders[0]
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
    for holder in holders:
        growth[holder.role] = growth.get(holder.role, 0) + holder.bytes - holder.first_bytes
        sizes[holder.role] = sizes.get(holder.role, 0) + holder.bytes
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


def _shared(scene: FailureWindow, _death: Death | None) -> Facts:
    """Shared and page-locked memory: of the culprit, of the host, and what /dev/shm holds of it."""
    trace, until_s = scene.trace, scene.until_s
    holders = find_process_usage(scene)
    if holders:
        top = holders[0]
        ratio = top.shmem_bytes / max(top.bytes, 1)
        yield (
            FACT.trace.shmem_ratio,
            ratio,
            say("{ratio:share} of the largest process is shmem (pinned or shared), the rest anonymous", ratio=ratio),
        )
        locked = max(holder.locked_bytes for holder in holders)
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
        fullest = max((value for _, value in until(trace.series("host", 0, "shm_used_bytes"), until_s)), default=0)
        yield (
            FACT.shm.full_ratio,
            fullest / size,
            say("/dev/shm was up to {fullest:share} full", fullest=fullest / size),
        )
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
