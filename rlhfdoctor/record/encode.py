"""Rows of the trace: one a process, one a limit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rlhfdoctor.record.columns import number, thousandths
from rlhfdoctor.record.limits import Limit
from rlhfdoctor.record.target import Process
from rlhfdoctor.trace.schema import NULL, TABLES


def process_tables(processes: Iterable[Process], probes: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """The tables that have a row per process; `probes` by pid."""
    followed = list(processes)
    keys, rows, mapped = [], [], []
    for process in followed:
        s = process.status
        if s is None:
            continue
        if not process.row:
            row: tuple[Any, ...] = (*s[3:10], s[2], *process.slow)
            process.row = row if None not in row else tuple(NULL if value is None else value for value in row)
        keys.append(process.uid)
        rows.append(process.row)
        if process.mappings is not None:
            m = process.mappings
            mapped.append(
                (
                    process.uid,
                    m.plasma_bytes,
                    m.dev_shm_bytes,
                    m.deleted_bytes,
                    m.memfd_bytes,
                    m.driver_bytes,
                    m.anonymous_bytes,
                )
            )
    tables: dict[str, Any] = {"process": (keys, list(zip(*rows)))} if rows else {}
    if mapped:
        uids, *columns = zip(*mapped)
        tables["mapping"] = (list(uids), columns)
    if probes:
        known = [(p.uid, probes[p.pid]) for p in followed if p.pid in probes]
        if known:
            tables["probe"] = (
                [uid for uid, _ in known],
                [[number(row.get(c)) for _, row in known] for c in TABLES["probe"]],
            )
    return tables


def limit_rows(rows: Sequence[Limit]) -> tuple[list[int], list[list[int]]]:
    """The newest figures and forecast of every limit."""
    columns: list[list[int]] = [[] for _ in TABLES["limit"]]
    for limit in rows:
        f = limit.forecast
        left = (None,) * 4 if f is None else (*map(thousandths, (f.left_s, f.low_s, f.high_s)), f.slope_bytes_per_s)
        basis = (None,) * 3 if f is None else (f.rise_bytes, f.steps_count, thousandths(f.seen_s))
        row = (limit.used_bytes, limit.limit_bytes, *left, *basis, thousandths(limit.hangs_s))
        for column, value in zip(columns, row):
            column.append(number(value))
    return [limit.uid for limit in rows], columns
