"""The report of Ray's memory monitor: use, threshold, the ten largest processes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, number, whole
from rlhfdoctor.evidence.roles import find_role, roles_say
from rlhfdoctor.i18n.message import say
from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD


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
    yield fact(FACT.ray.role_count, len(roles), roles_say(roles), where)
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
