"""Host memory: the kernel's and Ray's own figures, and the sums that must agree."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator

from rlhfdoctor.evidence.case import Case, fact, number, page_size, whole
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.i18n.message import Message, plural, say, term
from rlhfdoctor.logs.kernel import read_oom_kill
from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Event, Evidence, Origin
from rlhfdoctor.units import GIB, parse_bytes
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.names import Field

_OURS = re.compile(
    r"^(?:ray::|python|pt_main|VLLM|vllm|torchrun|deepspeed|accelerate|EngineCor|raylet|sglang|train|Worker_TP)"
)
_NO_LIMIT_BYTES = 2**60
"""cgroup v1 shows 'no limit' as 9223372036854771712 or 9007199254740988 kB (a page-rounded LONG_MAX)."""


def find_kernel(case: Case) -> Iterator[Evidence]:
    """The victim's three kinds of RSS, the binding limit, and who else was in the task table."""
    killed = case.first(EVENT.kernel.killed)
    anon = whole(killed, FIELD.anon_bytes)
    if killed is not None and anon is not None:
        shmem = whole(killed, FIELD.shmem_bytes)
        comm = str(killed.fields.get(FIELD.comm))
        yield fact(FACT.kernel.victim_of_run, bool(_OURS.match(comm)), say("the victim is {comm}", comm=comm), killed)
        if shmem is not None and anon + shmem > 0 and comm != "raylet":  # a raylet maps the object store
            share = shmem / (anon + shmem)
            yield fact(
                FACT.kernel.victim_shmem_ratio,
                share,
                say(
                    "{shmem:bytes} of the victim were shmem (pinned or shared) against {anon:bytes} anon",
                    shmem=shmem,
                    anon=anon,
                ),
                killed,
            )
            yield fact(FACT.kernel.victim_shmem_bytes, shmem, say("shmem-rss {shmem:bytes}", shmem=shmem), killed)
    verdict = case.first(EVENT.kernel.oom_kill)
    if verdict is not None:
        constraint = str(verdict.fields.get(FIELD.constraint))
        keys = read_oom_kill(str(verdict.fields.get(FIELD.rest_text, "")))
        yield fact(
            FACT.kernel.constraint, constraint, say("the kernel names {constraint}", constraint=constraint), verdict
        )
        if keys.get("oom_memcg"):
            yield fact(
                FACT.kernel.limit_level,
                keys["oom_memcg"],
                say("the limit stands on {oom_memcg}", oom_memcg=keys["oom_memcg"]),
                verdict,
            )
    usage = case.first(EVENT.kernel.memcg_usage)
    limit = whole(usage, FIELD.limit_bytes)
    own = _own_limit(case)
    if own is not None and limit is not None and own[0] > 1.02 * limit:
        yield fact(
            FACT.kernel.outer_limit,
            True,
            say(
                "the limit that was full ({limit:bytes}) is not the job's own ({value:bytes}, {value2}): it "
                "stands on a cgroup around it",
                limit=limit,
                value=own[0],
                value2=own[1],
            ),
            usage,
        )
    yield from _table(case, killed)


def _own_limit(case: Case) -> tuple[int, str] | None:
    """The memory that the configuration requests for the job: bytes, and the spelling."""
    setting = case.setting("container.memory")
    if setting is None or not isinstance(setting.value, str | int):
        return None
    size = parse_bytes(str(setting.value))
    if size and setting.spelled == "--mem" and str(setting.value).isdigit():
        size *= 1024**2  # slurm's default unit is MB
    return (size, setting.spelled) if size else None


def _table(case: Case, killed: Event | None) -> Iterator[Evidence]:
    """Sums over the task table; the page size is derived from the victim's total_vm."""
    rows = case.of(EVENT.kernel.task)
    if not rows:
        return
    header = case.first(EVENT.kernel.task_header)
    page = page_size(rows, killed)
    unique: dict[int, tuple[int, Event]] = {}
    for row in rows:
        pid = whole(row, FIELD.pid) or 0
        unique[pid] = ((whole(row, FIELD.rss_pages) or 0) * page, row)
    ordered = sorted(unique.values(), key=lambda item: -item[0])
    total = sum(size for size, _ in ordered)
    yield fact(
        FACT.kernel.table_bytes,
        total,
        say("the task table adds up to {total:bytes} of RSS in {ordered} processes", total=total, ordered=len(ordered)),
        header or rows[0],
    )
    size, largest = ordered[0]
    if total:
        yield fact(
            FACT.kernel.largest_ratio,
            size / total,
            say("the largest process holds {size:share} of the table's RSS", size=size / total),
            largest,
        )
    ours = [(s, r) for s, r in ordered if _OURS.match(str(r.fields[FIELD.comm]))]
    big = [s for s, _ in ours if s > 0.02 * max(total, 1)]
    yield fact(
        FACT.kernel.large_count,
        len(big),
        say("{big} processes of the run hold more than 2 % each", big=len(big)),
        largest,
    )
    workers = [(s, r) for s, r in ours if re.match(r"ray::(?!IDLE)", str(r.fields[FIELD.comm]))]
    beside = [
        (s, r) for s, r in ours if str(r.fields[FIELD.comm]).startswith(("python", "pt_main")) and s > 0.05 * total
    ]
    driver = (
        beside[0] if len(beside) == 1 and len(workers) > 1 else None
    )  # several are ranks or engines of something else
    if driver is not None:
        ratio = driver[0] / max(workers[0][0], 1)
        yield fact(
            FACT.kernel.driver_to_worker_ratio,
            ratio,
            say(
                "the largest python process beside Ray's workers holds {value:bytes}, {ratio:.1f} times as much "
                "as the largest worker",
                value=driver[0],
                ratio=ratio,
            ),
            driver[1],
        )
    ranks = workers or ours
    peers = [(s, r) for s, r in ranks if r.fields[FIELD.comm] == ranks[0][1].fields[FIELD.comm]]
    if len(peers) >= 2 and peers[1][0] > 0:
        ratio = peers[0][0] / peers[1][0]
        yield fact(FACT.kernel.peer_count, len(peers), say("{peers} processes of its kind", peers=len(peers)), largest)
        yield fact(
            FACT.kernel.top_to_second_ratio,
            ratio,
            say("the largest process of the run holds {ratio:.1f} times as much as the next of its kind", ratio=ratio),
            largest,
        )
    roles = {
        role for _, r in ours if (role := find_role(str(r.fields[FIELD.comm]))) and role not in ("driver", "raylet")
    }
    yield fact(FACT.kernel.role_count, len(roles), _roles_say(roles), largest)


def _roles_say(roles: Collection[str]) -> Message:
    if not roles:
        return say("roles in the table: none known")
    return say("roles in the table: {roles}", roles=tuple(term(role) for role in sorted(roles)))


def find_ray(case: Case) -> Iterator[Evidence]:
    """What Ray's memory monitor saw: use, threshold, victim, and the ten largest processes."""
    kill = case.first(
        EVENT.ray.memory_kill, EVENT.ray.memory_kill_numbers, EVENT.ray.memory_kill_old, EVENT.ray.memory_error_old
    )
    reason = case.first(EVENT.ray.memory_reason)
    used, total = whole(kill, FIELD.used_bytes), whole(kill, FIELD.total_bytes)
    if kill is not None and total:
        yield fact(FACT.ray.total_bytes, total, say("Ray took the node's memory as {total:bytes}", total=total), kill)
    event = case.first(
        EVENT.ray.memory_threshold, EVENT.ray.memory_kill_old, EVENT.ray.memory_error_old, EVENT.ray.memory_reason
    )
    threshold = number(event, FIELD.threshold_ratio)
    if event is not None and threshold is not None:
        yield fact(
            FACT.ray.threshold_ratio,
            threshold,
            say("Ray's threshold was {threshold:share}", threshold=threshold),
            reason or event,
        )
    yield from _top(case, used)


def read_rows(case: Case) -> tuple[list[tuple[int, int, str]], Event | None]:
    """(pid, bytes, command) of Ray's table of the largest processes, and the line where it is printed."""
    header = case.first(EVENT.ray.memory_top, EVENT.ray.memory_error_old)
    rows = read_top(header.after, header.text) if header is not None else []
    if rows:
        return rows, header
    found = case.of(EVENT.ray.memory_row)
    rows = [
        (whole(r, FIELD.pid) or 0, whole(r, FIELD.rss_bytes) or 0, f"ray::{r.fields[FIELD.name]}") for r in found[:10]
    ]
    return rows, found[0] if found else None


def _top(case: Case, used: int | None) -> Iterator[Evidence]:
    """Ray's table of the ten largest must roughly agree with the node's use."""
    rows, where = read_rows(case)
    if not rows or where is None:
        return
    total = sum(size for _, size, _ in rows)
    workers = [(size, name) for _, size, name in rows if name.startswith("ray::")]
    largest = max(rows, key=lambda row: row[1])
    roles = {
        role
        for _, _, name in rows
        if name.startswith("ray::") and (role := find_role(name)) and role not in ("driver", "raylet")
    }
    yield fact(FACT.ray.role_count, len(roles), _roles_say(roles), where)
    yield fact(
        FACT.ray.top_bytes, total, say("Ray's ten largest processes held {total:bytes} together", total=total), where
    )
    yield fact(
        FACT.ray.worker_count,
        len(workers),
        say("{workers} of the ten largest were Ray workers", workers=len(workers)),
        where,
    )
    if used:
        yield fact(
            FACT.ray.top_ratio,
            total / used,
            say("Ray's ten largest explain {total:share} of what was in use", total=total / used),
            where,
        )
        yield fact(
            FACT.ray.largest_ratio,
            largest[1] / used,
            say("the largest process held {used:share} of what was in use", used=largest[1] / used),
            where,
        )
    infra = sum(
        size
        for _, size, name in rows
        if re.search(r"gcs_server|dashboard|autoscaler|ray start|util\.client|raylet|-ServeHead", name)
    )
    if total:
        yield fact(
            FACT.ray.infra_ratio,
            infra / total,
            say("Ray's own services are {infra:share} of the table", infra=infra / total),
            where,
        )


def find_limits(case: Case) -> Iterator[Evidence]:
    """The limit that binds and what the node has, from cgroup files, notes, `free`, and settings."""
    limits: list[tuple[int, str, Event | None, Origin | None]] = []
    for event in case.of(EVENT.host.note_limit, EVENT.host.cgroup_limit):
        size = whole(event, FIELD.limit_bytes)
        if size is not None:
            limits.append((size, "noted", event, event.origin))
    for event in case.of(EVENT.host.cgroup_file):
        name = str(event.fields.get(FIELD.file_text))
        text = event.after[0].strip() if event.after else ""
        if name in ("memory.limit_in_bytes", "memory.max") and (text.isdigit() or text == "max"):
            limits.append((int(text) if text.isdigit() else _NO_LIMIT_BYTES, name, event, event.origin))
    usage = case.first(EVENT.kernel.memcg_usage)
    kernel_limit = whole(usage, FIELD.limit_bytes)
    if kernel_limit is not None:
        limits.append((kernel_limit, "kernel", usage, usage.origin if usage else None))
    own = _own_limit(case)
    if own is not None:
        limits.append((*own, None, own_setting.origin if (own_setting := case.setting("container.memory")) else None))
    total = find_total(case)
    if total is not None:
        yield total
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
            say("the limit is {share:share} of the node's {value:bytes}", share=share, value=total.value),
            shown,
        )
    noted = case.first(EVENT.host.note_used)
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
    if not text.isdigit():
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
    return int(text) * _free_unit(total) if text.isdigit() and total.isdigit() else _free_bytes(text)


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
            "host memory rose by {slope:bytes} a step over {steps}: {value:bytes} to {value2:bytes}",
            slope=slope,
            steps=plural("{n} step", "{n} steps", len(rises)),
            value=used[0],
            value2=used[-1],
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
        say("it grew by {value:share}", value=(used[-1] - used[0]) / max(used[0], GIB)),
        marks[-1],
    )
