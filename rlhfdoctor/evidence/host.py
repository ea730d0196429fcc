"""Host memory outside the killers' reports: the limit that binds, the node's size, the rise from step to step."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.i18n.message import plural, say
from rlhfdoctor.types import Event, Evidence, Origin
from rlhfdoctor.units import GIB, is_whole, parse_bytes
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.names import Field

_NO_LIMIT_BYTES = 2**60
"""cgroup v1 shows 'no limit' as 9223372036854771712 or 9007199254740988 kB (a page-rounded LONG_MAX)."""


_MANAGERS = {
    "slurm": re.compile(r"/slurm|/job_\d"),
    "kubernetes": re.compile("kubepods"),
    "docker": re.compile("docker|libpod"),
}
"""By a part of a cgroup's path: proctrack/cgroup's, the kubelet's, docker's and podman's. The innermost counts."""
_SCOPES = {"slurm": "slurm", "k8s": "kubernetes", "docker": "docker"}
"""By who speaks in the logs."""


def find_requested(case: Case) -> tuple[int, str] | None:
    """The memory that the configuration requests for the job, in bytes, with the spelling of the setting."""
    setting = case.setting("container.memory")
    if setting is None or not isinstance(setting.value, str | int):
        return None
    size = parse_bytes(str(setting.value))
    if size and setting.spelled == "--mem" and is_whole(str(setting.value)):
        size *= 1024**2  # slurm's default unit is MB
    return (size, setting.spelled) if size else None


def find_manager(case: Case, level: str) -> str:
    """Who set the limit around the job: docker, slurm or kubernetes; empty if unknown.

    Args:
        level: the cgroup whose limit was full; empty if unknown.
    """
    named = [(match.start(), name) for name, sign in _MANAGERS.items() for match in sign.finditer(level)]
    speakers = {e.kind.scope for e in case.events} & _SCOPES.keys()
    return max(named)[1] if named else _SCOPES[speakers.pop()] if len(speakers) == 1 else ""


def find_limits(case: Case) -> Iterator[Evidence]:
    """The limit that binds and what the node has, from cgroup files, notes, `free`, and settings."""
    limits: list[tuple[int, str, Event | None, Origin | None]] = []
    for event in case.of(EVENT.host.note_limit, EVENT.host.cgroup_limit, EVENT.slurm.limit_killed):
        size = whole(event, FIELD.limit_bytes)
        if size is not None:
            limits.append((size, "noted", event, event.origin))
    for event in case.of(EVENT.host.cgroup_file):
        name = str(event.fields.get(FIELD.file_text))
        text = event.after[0].strip() if event.after else ""
        if name in ("memory.limit_in_bytes", "memory.max") and (is_whole(text) or text == "max"):
            limits.append((int(text) if is_whole(text) else _NO_LIMIT_BYTES, name, event, event.origin))
    usage = case.first(EVENT.kernel.memcg_usage)
    kernel_limit = whole(usage, FIELD.limit_bytes)
    if kernel_limit is not None:
        limits.append((kernel_limit, "kernel", usage, usage.origin if usage else None))
    own = find_requested(case)
    if own is not None:
        limits.append((*own, None, own_setting.origin if (own_setting := case.setting("container.memory")) else None))
    total = find_total(case)
    if total is not None:
        yield total
    limits = [item for item in limits if item[0] > 0]
    finite = [item for item in limits if item[0] < _NO_LIMIT_BYTES]
    if limits and not finite:
        yield fact(FACT.host.unlimited, True, say("the cgroup has no memory limit"), limits[0][2])
    if not finite:
        return
    size, source, shown, origin = min(finite, key=lambda item: item[0])
    yield Evidence(
        name=FACT.host.limit_bytes,
        value=size,
        says=say("the job's memory limit is {size:bytes} ({source})", size=size, source=source),
        origin=origin,
        text=shown.text if shown else None,
    )
    if total is not None and isinstance(total.value, int) and total.value > 0:
        share = size / total.value
        yield fact(
            FACT.host.limit_ratio,
            share,
            say("the limit is {share:share} of the node's {total:bytes}", share=share, total=total.value),
            shown,
        )
    noted = case.first(EVENT.host.note_used, EVENT.slurm.limit_killed)
    used = whole(noted, FIELD.used_bytes)
    if noted is not None and used is not None:
        yield fact(
            FACT.host.used_to_limit,
            used / size,
            say("{used:bytes} were in use against a limit of {size:bytes}", used=used, size=size),
            noted,
        )


def find_total(case: Case) -> Evidence | None:
    """The node's memory, from `free`, /proc/meminfo, a note or the kernel's report."""
    for event in case.of(EVENT.host.free):
        size = read_free(event, FIELD.total_text)
        if size:
            return fact(FACT.host.total_bytes, size, say("the node has {size:bytes}", size=size), event)
    for event in case.of(EVENT.host.meminfo):
        if event.fields.get(FIELD.name) == "MemTotal":
            return fact(
                FACT.host.total_bytes,
                whole(event, FIELD.size_bytes),
                say("the node has {size_bytes:bytes}", size_bytes=whole(event, FIELD.size_bytes) or 0),
                event,
            )
    noted = case.first(EVENT.host.note_total)
    if noted is not None:
        return fact(
            FACT.host.total_bytes,
            whole(noted, FIELD.total_bytes),
            say("the node has {total_bytes:bytes}", total_bytes=whole(noted, FIELD.total_bytes) or 0),
            noted,
        )
    ram = case.first(EVENT.kernel.ram)
    if ram is not None:
        return fact(
            FACT.host.total_bytes,
            (whole(ram, FIELD.ram_pages) or 0) * 4096,
            say("the node has {ram_pages:bytes}", ram_pages=(whole(ram, FIELD.ram_pages) or 0) * 4096),
            ram,
        )
    return None


def find_available(case: Case) -> Iterator[Evidence]:
    """How much of the node could still be had (MemAvailable), and /dev/shm as `df` shows it."""
    table = {str(e.fields[FIELD.name]): e for e in case.of(EVENT.host.meminfo)}
    total, available = (
        whole(table.get("MemTotal"), FIELD.size_bytes),
        whole(table.get("MemAvailable"), FIELD.size_bytes),
    )
    if total and available is not None:
        yield fact(
            FACT.host.available_ratio,
            available / total,
            say("MemAvailable is {available:share} of the node's memory", available=available / total),
            table["MemAvailable"],
        )
    for event in case.of(EVENT.host.free):
        size, left = read_free(event, FIELD.total_text), read_free(event, FIELD.available_text)
        if size and left is not None:
            yield fact(
                FACT.host.available_ratio,
                left / size,
                say("{left:bytes} of {size:bytes} were available", left=left, size=size),
                event,
            )
    for event in case.of(EVENT.host.df):
        if event.fields.get(FIELD.mount_text) == "/dev/shm":
            used, size = (parse_bytes(str(event.fields[key]) + "B") for key in (FIELD.used_text, FIELD.size_text))
            if used is not None:
                yield fact(FACT.shm.used_bytes, used, say("files in /dev/shm held {used:bytes}", used=used), event)
            if size:
                yield fact(FACT.shm.size_bytes, size, say("/dev/shm is {size:bytes} large", size=size), event)


def _free_bytes(text: str) -> int | None:
    """A column of `free`: with unit as `free -h` writes it, else kB."""
    if not is_whole(text):
        return parse_bytes(text)
    return int(text) * 1024


def _free_unit(total: str) -> int:
    """Bytes per unit of `free` without suffixes, by the size of the total: -g, -m or kB.

    `free` does not print its unit; nodes of these runs have between 4 GB and 10 TB.
    """
    number_of = int(total)
    return GIB if number_of < 10_000 else 1024**2 if number_of < 4_000_000 else 1024


def read_free(event: Event, name: Field) -> int | None:
    """A column of a `free` line in bytes."""
    text, total = str(event.fields.get(name)), str(event.fields.get(FIELD.total_text))
    return int(text) * _free_unit(total) if is_whole(text) and is_whole(total) else _free_bytes(text)


def find_growth(case: Case) -> Iterator[Evidence]:
    """The slope of host memory from one step to the next, if the framework logs it.

    A plain difference quotient over the steps after the first two (which load and warm up);
    rising in nearly every step counts as a climb, rising and falling does not.
    """
    marks = case.of(EVENT.host.used)
    used = [size for e in marks if (size := whole(e, FIELD.used_bytes)) is not None]
    if len(used) < 2:
        marks = case.of(EVENT.host.free)
        sums = [[read_free(e, key) for key in (FIELD.used_text, FIELD.shared_text)] for e in marks]
        used = [sum(size or 0 for size in row) for row in sums if row[0]]
    if len(used) < 2:
        return
    rises = [b - a for a, b in itertools.pairwise(used)]
    up = sum(1 for rise in rises if rise > 0.001 * used[0])
    slope = (used[-1] - used[0]) // len(rises)
    yield fact(
        FACT.host.slope_bytes_per_step,
        slope,
        say(
            "host memory rose by {slope:bytes} a step over {steps}: {first:bytes} to {last:bytes}",
            slope=slope,
            steps=plural("{n} step", "{n} steps", len(rises)),
            first=used[0],
            last=used[-1],
        ),
        marks[-1],
    )
    yield fact(
        FACT.host.rising_steps_ratio,
        up / len(rises),
        say("it rose in {up} of {rises} steps", up=up, rises=len(rises)),
        marks[-1],
    )
    yield fact(
        FACT.host.growth_ratio,
        (used[-1] - used[0]) / max(used[0], GIB),
        say("it grew by {growth:share}", growth=(used[-1] - used[0]) / max(used[0], GIB)),
        marks[-1],
    )
