"""Panels of a chart: the memory of one recorded node by role, by kind, by GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from rlhfdoctor.charts import Bound, Level, Panel
from rlhfdoctor.evidence.window import FailureWindow
from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import LimitName, limit_of, say_limit

if TYPE_CHECKING:
    import polars

_BUCKETS = (500, 4000)
"""Of the coarse levels; each bucket keeps its lowest and its highest sample."""
_MOST_POINTS = 100_000
_MOST_ROLES = 9
ABOVE = 1.6
"""A limit further above the highest point is reported as text: a chart including it would show nothing else."""
_ORDER = (
    "actor",
    "critic",
    "reference",
    "reward",
    "rollout engine",
    "reward worker",
    "data loader",
    "driver",
    "worker",
    "raylet",
    "other",
)
_OF_HOST: tuple[LimitName, ...] = ("cgroup", "node", "ray")
"""Limits of host memory."""


def make_panels(trace: Recorded, window: FailureWindow) -> list[Panel]:
    """The panels for which the trace has figures."""
    panels = (_by_role(trace, window), _by_kind(trace, window), _by_gpu(trace))
    return [panel for panel in panels if panel is not None]


def _by_role(trace: Recorded, window: FailureWindow) -> Panel | None:
    """Anonymous and page-locked memory of the run's processes; shared memory that many map is in no role's sum."""
    import polars as pl

    frame = _processes(trace)
    if frame is None:
        return None
    sums = frame.group_by("at", "role").agg((pl.col("anon") + pl.col("locked")).sum().alias("held"))
    wide = sums.pivot("role", index="at", values="held").sort("at").fill_null(0)
    names = [name for name in wide.columns if name != "at"]
    peaks = {name: wide[name].max() for name in names}
    kept = sorted(names, key=lambda name: -int(peaks[name]))[:_MOST_ROLES]  # type: ignore[arg-type]
    small = [name for name in names if name not in kept]
    columns = {name: wide[name] for name in kept}
    if small:
        rest = wide.select(pl.sum_horizontal(small)).to_series()
        columns["other"] = columns["other"] + rest if "other" in columns else rest
    ordered = sorted(columns, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    levels = _levels(trace, wide["at"], [columns[name] for name in ordered])
    title = say("memory by role: anonymous and page-locked")
    return _with_bounds(
        Panel(kind="role", title=title, stacked=True, names=tuple(map(term, ordered)), bounds=(), levels=levels),
        known_limits(trace, window),
    )


def _with_bounds(panel: Panel, limits: Iterable[tuple[Message, int]]) -> Panel:
    """The panel with those limits that a picture of it can hold."""
    near = tuple(Bound(name=name, bytes=size) for name, size in limits if size <= ABOVE * panel.top_bytes)
    return replace(panel, bounds=near)


def _processes(trace: Recorded) -> polars.DataFrame | None:
    """(at, role, anon, locked) of every process at every sample; the doctor's own left out."""
    import polars as pl

    table = trace.node.tables.get("process")
    if table is None or not table.keys:
        return None
    roles = {
        uid: str(row.get(R.role) or "other")
        for uid, row in trace.known["process"].items()
        if row.get(R.role) != "doctor"
    }
    if not roles:
        return None

    def column(name: str) -> polars.Expr:
        return pl.when(pl.col(name) == NULL).then(0).otherwise(pl.col(name))

    frame = pl.DataFrame(
        {
            "at": pl.Series(table.times_ns),
            "uid": pl.Series(table.keys),
            **{name: pl.Series(table.values[f"{name}_bytes"]) for name in ("rss_anon", "rss_shmem", "locked")},
        }
    ).filter(pl.col("uid").is_in(list(roles)))
    return frame.select(
        "at",
        pl.col("uid").replace_strict(list(roles), list(roles.values()), return_dtype=pl.String).alias("role"),
        column("rss_anon").alias("anon"),
        pl.min_horizontal(column("locked"), column("rss_shmem")).alias("locked"),
    )


def _by_kind(trace: Recorded, window: FailureWindow) -> Panel | None:
    """What the limit's owner holds: anonymous, page-locked, other shared memory, page cache, kernel."""
    import polars as pl

    table = trace.node.tables.get("host" if window.of_node else "cgroup")
    if table is None or not table.keys:
        return None
    wanted = 0
    if not window.of_node:
        wanted = next((int(uid) for uid, row in trace.known["cgroup"].items() if row.get(R.path) == window.limit), 0)
    raw = pl.DataFrame(
        {
            "at": pl.Series(table.times_ns),
            "key": pl.Series(table.keys),
            **{n: pl.Series(v) for n, v in table.values.items()},
        }
    ).filter(pl.col("key") == wanted)
    frame = raw.with_columns(
        pl.when(pl.col(name) == NULL).then(None).otherwise(pl.col(name)).alias(name) for name in table.values
    )
    locked = _processes(trace)
    if locked is not None:
        frame = frame.join(
            locked.group_by("at").agg(pl.col("locked").sum()), on="at", how="left", maintain_order="left"
        )
    else:
        frame = frame.with_columns(pl.lit(0).alias("locked"))
    frame = frame.fill_null(0).sort("at")
    shmem = pl.col("shmem_bytes")
    pinned = pl.min_horizontal("locked", shmem)
    cache = pl.col("cached_bytes") - shmem + pl.col("buffers_bytes") if window.of_node else pl.col("file_bytes") - shmem
    kernel = (
        sum((pl.col(f"{name}_bytes") for name in ("slab", "page_tables", "kernel_stack")), pl.lit(0))
        if window.of_node
        else pl.col("kernel_bytes")
    )
    parts = frame.select(
        "at",
        pl.col("anon_bytes").alias("anonymous"),
        pinned.alias("page-locked"),
        (shmem - pinned).alias("other shared"),
        pl.max_horizontal(cache, 0).alias("page cache"),
        kernel.alias("kernel"),
    )
    names = [name for name in parts.columns if name != "at" and (parts[name] > 0).any()]
    if not names:
        return None
    title = say("the node by kind of memory") if window.of_node else say("the container by kind of memory")
    panel = Panel(
        kind="kind",
        title=title,
        stacked=True,
        names=tuple(map(term, names)),
        bounds=(),
        levels=_levels(trace, parts["at"], [parts[name] for name in names]),
    )
    return _with_bounds(
        panel, [(say_limit("node" if window.of_node else "cgroup"), window.limit_bytes)] if window.limit_bytes else []
    )


def _by_gpu(trace: Recorded) -> Panel | None:
    import polars as pl

    table = trace.node.tables.get("gpu")
    if table is None or not table.keys:
        return None
    frame = pl.DataFrame(
        {"at": pl.Series(table.times_ns), "gpu": pl.Series(table.keys), "used": pl.Series(table.values["used_bytes"])}
    )
    wide = frame.pivot("gpu", index="at", values="used", aggregate_function="max").sort("at").fill_null(-1)
    names = [name for name in wide.columns if name != "at"]
    columns = [wide[name].set(wide[name] < 0, -1) for name in names]
    sizes = {size for gpu in trace.keys("gpu") if (size := trace.last("gpu", gpu, "total_bytes")) is not None}
    bounds = tuple(Bound(name=say("size of the GPU"), bytes=size) for size in sorted(sizes))
    return Panel(
        kind="gpu",
        title=say("GPU memory in use (NVML)"),
        stacked=False,
        names=tuple(say("GPU {number}", number=name) for name in names),
        bounds=bounds,
        levels=_levels(trace, wide["at"], columns),
    )


def _levels(trace: Recorded, at: polars.Series, columns: Sequence[polars.Series]) -> tuple[Level, ...]:
    """From coarse to fine: of each bucket of time the sample with the lowest and that with the highest sum."""
    import polars as pl

    frame = pl.DataFrame({"at": at, **{f"c{n}": column for n, column in enumerate(columns)}}).with_row_index("row")
    names = [f"c{number}" for number in range(len(columns))]
    frame = frame.with_columns(pl.sum_horizontal(names).alias("sum"))
    first, last = int(at[0]), int(at[-1])
    levels = []
    for buckets in (*_BUCKETS, _MOST_POINTS // 2):
        width = max((last - first) // buckets, 1)
        if frame.height <= 2 * buckets:
            levels.append(frame)
            break
        bucket = ((pl.col("at") - first) // width).alias("bucket")
        ends = frame.group_by(bucket).agg(
            pl.col("row").get(pl.col("sum").arg_min()).alias("low"),
            pl.col("row").get(pl.col("sum").arg_max()).alias("high"),
        )
        rows = {*ends["low"].to_list(), *ends["high"].to_list(), 0, frame.height - 1}
        levels.append(frame[sorted(rows)])
    return tuple(
        Level(
            times_s=((level["at"] - min(trace.node.times_ns)) / 1e9).to_list(),
            values=tuple(level[name].cast(pl.Int64).to_list() for name in names),
        )
        for level in levels
    )


def known_limits(trace: Recorded, window: FailureWindow) -> Iterator[tuple[Message, int]]:
    """(name, bytes) of the limits that bound host memory, as they were seen last."""
    seen = {
        say_limit(name): size
        for row in trace.known["limit"].values()
        if (name := limit_of(row.get(R.name))) is not None
        and name in _OF_HOST
        and isinstance(size := row.get(R.limit_bytes), int)
    }
    if window.limit_bytes:
        seen[say_limit("node" if window.of_node else "cgroup")] = window.limit_bytes
    yield from seen.items()
