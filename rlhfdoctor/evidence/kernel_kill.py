"""The kernel's report of an OOM kill: the victim's memory, the binding limit, the task table's sums."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, page_size, whole
from rlhfdoctor.evidence.host import find_requested
from rlhfdoctor.evidence.roles import find_role, roles_say
from rlhfdoctor.i18n.message import say
from rlhfdoctor.logs.kernel import read_oom_kill
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_OURS = re.compile(
    r"^(?:ray::|python|pt_main|VLLM|vllm|torchrun|deepspeed|accelerate|EngineCor|raylet|sglang|train|Worker_TP)"
)


def looks_own(comm: str) -> bool:
    """Whether a process name is one that a training run's processes have."""
    return bool(_OURS.match(comm))


def find_kernel(case: Case) -> Iterator[Evidence]:
    """The victim's three kinds of RSS, the binding limit, and who else was in the task table."""
    killed = case.first(EVENT.kernel.killed)
    anon = whole(killed, FIELD.anon_bytes)
    if killed is not None and anon is not None:
        shmem = whole(killed, FIELD.shmem_bytes)
        comm = str(killed.fields.get(FIELD.comm))
        yield fact(FACT.kernel.victim_of_run, looks_own(comm), say("the victim is {comm}", comm=comm), killed)
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
    own = find_requested(case)
    if own is not None and limit is not None and own[0] > 1.02 * limit:
        yield fact(
            FACT.kernel.outer_limit,
            True,
            say(
                "the limit that was full ({limit:bytes}) is not the job's own ({own:bytes}, {source}): it "
                "stands on a cgroup around it",
                limit=limit,
                own=own[0],
                source=own[1],
            ),
            usage,
        )
    yield from _table(case, killed)


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
    workers = [(s, r) for s, r in ours if re.match(r"ray::(?!IDLE)\S", str(r.fields[FIELD.comm]))]
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
                "the largest python process beside Ray's workers holds {held:bytes}, {ratio:.1f} times as much "
                "as the largest worker",
                held=driver[0],
                ratio=ratio,
            ),
            driver[1],
        )
    ranks = workers or ours
    peers = [(s, r) for s, r in ranks if r.fields[FIELD.comm] == ranks[0][1].fields[FIELD.comm]]
    cut = bool(ranks) and str(ranks[0][1].fields[FIELD.comm]).endswith(
        "::"
    )  # at the edge of a screen: their kinds are unknown
    if len(peers) >= 2 and peers[1][0] > 0 and not cut:
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
    yield fact(FACT.kernel.role_count, len(roles), roles_say(roles), largest)
