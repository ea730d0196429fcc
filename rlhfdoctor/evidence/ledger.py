"""The ledger: named parts that add up to what was in use, the remainder always shown."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, page_size, whole
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.logs.ray import read_top
from rlhfdoctor.types import Part


def make_ledger(case: Case) -> Iterator[Part]:
    """Parts of the kernel's task table against the cgroup's use, else of Ray's table against the node's."""
    usage = case.first("kernel.memcg_usage")
    rows = case.of("kernel.task")
    if rows:
        page = page_size(rows, case.first("kernel.killed"))
        table: dict[int, tuple[str, int]] = {}
        for row in rows:
            table[whole(row, "pid") or 0] = (str(row.fields["comm"]), (whole(row, "rss_pages") or 0) * page)
        yield from _parts(list(table.values()), whole(usage, "usage_bytes"), "rss of the kernel's task table")
        return
    kill = case.first("ray.memory_kill", "ray.memory_kill_numbers")
    header = case.first("ray.memory_top")
    top = read_top(header.after, header.text) if header is not None else []
    if top:
        yield from _parts([(name, size) for _, size, name in top], whole(kill, "used_bytes"), "Ray's ten largest")


def _parts(rows: list[tuple[str, int]], total: int | None, basis: str) -> Iterator[Part]:
    sums: dict[str, int] = {}
    for name, size in rows:
        part = find_role(name) or ("other Ray workers" if name.startswith("ray::") else "other processes")
        sums[part] = sums.get(part, 0) + size
    for part, size in sorted(sums.items(), key=lambda item: -item[1]):
        yield Part(part=part, bytes=size, basis=basis)
    if total is not None:
        rest = total - sum(sums.values())
        yield Part(part="unexplained", bytes=rest, basis="use of the limit's owner less the rows above")
