"""Holders of host memory other than the ranks: reward workers, data loader workers, the driver with its data set.

Figures come from the recorder's last samples, else from Ray's table, else from the kernel's. Forked copies share
pages, and RSS counts those in each of them: what the sum exceeds the true use by is taken off, so that a share is a
lower bound; the upper bound is reported with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rlhfdoctor.evidence.case import Case, fact, page_size, whole
from rlhfdoctor.evidence.ray_memory import read_rows
from rlhfdoctor.evidence.roles import MARKS, find_role
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window, find_process_usage, find_steps
from rlhfdoctor.i18n.message import Message, plural, say, term
from rlhfdoctor.types import Death, Event, Evidence, Origin
from rlhfdoctor.units import show_bytes
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Fact

REWARD, LOADER = "reward worker", "data loader"
_REPORTED_RATIO = 0.05
"""Growth by less than this share of the limit killed no one."""
_RANKS = ("actor", "critic", "reference", "rollout engine")


@dataclass(frozen=True, slots=True)
class Table:
    """Processes with their memory, from one source."""

    rows: tuple[tuple[str, int], ...]
    """(role, bytes); the role is empty if unknown."""
    used_bytes: int | None
    """Bytes actually in use, if the source reports them."""
    origin: Origin | None
    text: str | None = None
    unowned_bytes: int = 0
    """Shared memory in the rows that is not attributed to a role and may belong to any."""


@dataclass(frozen=True, slots=True)
class Share:
    """What the processes of one role hold."""

    count: int
    bytes: int
    ratio: float
    """Of what was in use, the least that it can be."""
    says: Message
    most_ratio: float
    """The most that it can be: above `ratio` where RSS counts pages more than once."""


def find_workers(case: Case, death: Death | None) -> Iterator[Evidence]:
    """Shares of reward workers and data loader workers, and what the driver does before the first step."""
    window = find_failure_window(case, death)
    table = _recorded(window) or _ray(case) or _kernel(case)
    if table is not None:
        reward, loader = share_of(table, REWARD), share_of(table, LOADER)

        def share_fact(name: Fact, value: float, share: Share) -> Evidence:
            return Evidence(name=name, value=value, says=share.says, origin=table.origin, text=table.text)

        if reward is not None:
            yield share_fact(FACT.share.reward_ratio, reward.ratio, reward)
            yield share_fact(FACT.share.reward_bytes, reward.bytes, reward)
            yield share_fact(FACT.share.reward_count, reward.count, reward)
        if loader is not None:
            yield share_fact(FACT.share.loader_ratio, loader.ratio, loader)
            yield share_fact(FACT.share.loader_most_ratio, loader.most_ratio, loader)
    if window is not None:
        yield from _late_growth(window)
    if window is not None and _is_apart(window):
        yield Evidence(
            name=FACT.share.driver_apart,
            value=True,
            says=say("the driver holds no model: other processes are the ranks"),
            origin=window.origin(),
        )
    yield from _preparing(case, death)


def share_of(table: Table, role: str) -> Share | None:
    """What the processes of a role hold together, as a lower bound; None if there are none."""
    own = [size for name, size in table.rows if name == role]
    if not own:
        return None
    others = [size for name, size in table.rows if name != role]
    total = sum(own) + sum(others)
    used = max(table.used_bytes or total, 1)
    shared = max(0, total - used)
    if role != LOADER:  # started by Ray: they share only with each other
        least = max(sum(own) - shared, max(own))
    elif shared or table.used_bytes is None:
        # a fork shares at most all of its parent, which is another row
        least = max(sum(own) - shared if shared else 0, max(own) - max(others, default=0), 0)
    else:
        least = sum(own)
    least, most = min(used, least), min(used, sum(own) + table.unowned_bytes)
    ratio, most_ratio = least / used, most / used
    if show_bytes(least) != show_bytes(most):
        size = say(
            "between {least:bytes} and {most:bytes}, {ratio:share} to {most_ratio:share} of what was in use",
            least=least,
            most=most,
            ratio=ratio,
            most_ratio=most_ratio,
        )
    else:
        size = say("{least:bytes}, {ratio:share} of what was in use", least=least, ratio=ratio)
    says = plural("{n} {role} held {size}", "{n} {role}s held {size}", len(own), role=term(role), size=size)
    return Share(len(own), least, ratio, says, most_ratio)


def _recorded(window: FailureWindow | None) -> Table | None:
    if window is None:
        return None
    usages = find_process_usage(window)
    if not usages:
        return None
    shmem = max(usage.shmem_bytes for usage in usages)  # the same pages in each of them
    rows = [(usage.role, usage.anon_bytes) for usage in usages] + [("shmem", shmem)]
    return Table(tuple(rows), window.use[-1][1] if window.use else None, window.origin(), unowned_bytes=shmem)


def _ray(case: Case) -> Table | None:
    rows, where = read_rows(case)
    if not rows or where is None:
        return None
    kill = case.first(
        EVENT.ray.memory_kill, EVENT.ray.memory_kill_numbers, EVENT.ray.memory_kill_old, EVENT.ray.memory_error_old
    )
    found = tuple((find_role(name) or "", size) for _, size, name in rows)
    return Table(found, whole(kill, FIELD.used_bytes), where.origin, where.text)


def _kernel(case: Case) -> Table | None:
    rows = case.of(EVENT.kernel.task)
    if not rows:
        return None
    page = page_size(rows, case.first(EVENT.kernel.killed))
    unique = {whole(row, FIELD.pid): row for row in rows}
    found = [
        (find_role(str(row.fields[FIELD.comm])) or "", (whole(row, FIELD.rss_pages) or 0) * page)
        for row in unique.values()
    ]
    return Table(
        tuple(found), whole(case.first(EVENT.kernel.memcg_usage), FIELD.usage_bytes), rows[0].origin, rows[0].text
    )


def _late_growth(window: FailureWindow) -> Iterator[Evidence]:
    """Which role grew since the second step began: before it, everyone loads and warms up."""
    starts = [at for at in find_steps(window.trace) if at <= window.until_s]
    if len(starts) < 3 or not window.limit_bytes:
        return
    use = [value for at, value in window.use if at >= starts[1]]
    growth: dict[str, int] = {}
    for usage in find_process_usage(window):
        parts = [
            window.trace.last("process", usage.uid, f"rss_{kind}_bytes", starts[1]) or 0 for kind in ("anon", "shmem")
        ]
        growth[usage.role] = growth.get(usage.role, 0) + usage.bytes - sum(parts)
    grower = max(growth, key=lambda role: growth[role], default="")
    rise = growth.get(grower, 0)
    if not use or rise < _REPORTED_RATIO * window.limit_bytes or use[-1] - use[0] < rise / 2:
        return  # negligible, or pages that forks share
    ratio = rise / sum(value for value in growth.values() if value > 0)
    says = say(
        "since the second step, {grower} grew most: by {rise:bytes}, {ratio:share} of all growth",
        grower=term(grower),
        rise=rise,
        ratio=ratio,
    )
    yield Evidence(name=FACT.share.late_grower_role, value=grower, says=says, origin=window.origin())
    yield Evidence(name=FACT.share.late_grower_ratio, value=ratio, says=says, origin=window.origin())


def _is_apart(window: FailureWindow) -> bool:
    """Whether other processes than the driver hold the models."""
    processes = window.trace.known["process"].values()
    return any(row.get(R.role) in _RANKS for row in processes) or any(
        row.get(R.role) == "driver" and str(row.get(R.name)).startswith("ray::") for row in processes
    )


def _preparing(case: Case, death: Death | None) -> Iterator[Evidence]:
    """Whether the last sign of life before the death is the preparation of a data set."""
    last: Event | None = None
    end = death.event if death is not None else None
    for event in case.events:
        if end is not None and event is end:
            break
        if (
            event.kind == EVENT.data.prepare
            or event.kind in MARKS
            or event.kind in (EVENT.phase.step, EVENT.phase.episode)
        ):
            last = event
    if last is not None and last.kind == EVENT.data.prepare and not _is_finished(last):
        yield fact(FACT.data.preparing, True, say("the last sign of life is the preparation of the data set"), last)


def _is_finished(event: Event) -> bool:
    """Whether a bar is full, or a filter reports what remains: what follows may have no mark of its own."""
    return "100%" in event.text or FIELD.row_count in event.fields
