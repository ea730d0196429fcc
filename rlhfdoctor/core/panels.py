"""Panels of a chart: the memory of one recorded node by role, by kind, by GPU."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from operator import add, sub

from rlhfdoctor.charts import Bound, Level, Panel
from rlhfdoctor.evidence.window import FailureWindow
from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.history import LOCKED, History, read_history
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import LimitName, limit_of, say_limit

_BUCKETS = (500, 4000)
"""Of the coarse levels; each bucket keeps its lowest and its highest sample."""
_MOST_POINTS = 100_000
_MOST_ROLES = 9
_NO_CGROUP = -1
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


def make_panels(trace: Recorded, window: FailureWindow, history: History) -> list[Panel]:
    """The panels for which the trace has figures."""
    panels = (_by_role(trace, window, history), _by_kind(window, history), _by_gpu(trace, history))
    return [panel for panel in panels if panel is not None]


def history_of(trace: Recorded, window: FailureWindow) -> History:
    """Every sample of what the panels show; the doctor's own processes are left out."""
    roles = {
        int(uid): str(row.get(R.role) or "other")
        for uid, row in trace.known["process"].items()
        if row.get(R.role) != "doctor"
    }
    paths = {str(row.get(R.path)): int(uid) for uid, row in trace.known["cgroup"].items()}
    return read_history(trace.node.path, roles, None if window.of_node else paths.get(window.limit, _NO_CGROUP))


def _by_role(trace: Recorded, window: FailureWindow, history: History) -> Panel | None:
    """Anonymous and page-locked memory of the run's processes; shared memory that many map is in no role's sum."""
    roles = history.roles.values
    if not roles:
        return None
    kept = sorted(roles, key=lambda name: -max(roles[name]))[:_MOST_ROLES]
    columns: dict[str, Sequence[int]] = {name: roles[name] for name in kept}
    small = [roles[name] for name in roles if name not in kept]
    if small:
        columns["other"] = list(map(sum, zip(*small, *([columns["other"]] if "other" in columns else []))))
    ordered = sorted(columns, key=lambda name: _ORDER.index(name) if name in _ORDER else len(_ORDER))
    levels = _levels(history, history.roles.times_ns, [columns[name] for name in ordered])
    title = say("memory by role: anonymous and page-locked")
    return _with_bounds(
        Panel(kind="role", title=title, stacked=True, names=tuple(map(term, ordered)), bounds=(), levels=levels),
        known_limits(trace, window),
    )


def _with_bounds(panel: Panel, limits: Iterable[tuple[Message, int]]) -> Panel:
    """The panel with those limits that a picture of it can hold."""
    near = tuple(Bound(name=name, bytes=size) for name, size in limits if size <= ABOVE * panel.top_bytes)
    return replace(panel, bounds=near)


def _by_kind(window: FailureWindow, history: History) -> Panel | None:
    """What the limit's owner holds: anonymous, page-locked, other shared memory, page cache, kernel."""
    owner = history.owner.values
    if not owner:
        return None

    def column(name: str) -> list[int]:
        return [max(value, 0) for value in owner[name]]

    shmem = column("shmem_bytes")
    pinned = list(map(min, column(LOCKED), shmem))
    if window.of_node:
        cache = list(map(add, column("cached_bytes"), column("buffers_bytes")))
        kernel = list(map(sum, zip(*(column(f"{name}_bytes") for name in ("slab", "page_tables", "kernel_stack")))))
    else:
        cache, kernel = column("file_bytes"), column("kernel_bytes")
    parts = {
        term("anonymous"): column("anon_bytes"),
        term("page-locked"): pinned,
        term("other shared"): list(map(sub, shmem, pinned)),
        term("page cache"): [max(size - shared, 0) for size, shared in zip(cache, shmem)],
        term("kernel"): kernel,
    }
    shown = {name: values for name, values in parts.items() if any(values)}
    if not shown:
        return None
    title = say("the node by kind of memory") if window.of_node else say("the container by kind of memory")
    panel = Panel(
        kind="kind",
        title=title,
        stacked=True,
        names=tuple(shown),
        bounds=(),
        levels=_levels(history, history.owner.times_ns, list(shown.values())),
    )
    return _with_bounds(
        panel, [(say_limit("node" if window.of_node else "cgroup"), window.limit_bytes)] if window.limit_bytes else []
    )


def _by_gpu(trace: Recorded, history: History) -> Panel | None:
    gpus = history.gpus.values
    if not gpus:
        return None
    sizes = {size for gpu in trace.keys("gpu") if (size := trace.last("gpu", gpu, "total_bytes")) is not None}
    bounds = tuple(Bound(name=say("size of the GPU"), bytes=size) for size in sorted(sizes))
    return Panel(
        kind="gpu",
        title=say("GPU memory in use (NVML)"),
        stacked=False,
        names=tuple(say("GPU {number}", number=str(number)) for number in gpus),
        bounds=bounds,
        levels=_levels(history, history.gpus.times_ns, [[max(v, -1) for v in line] for line in gpus.values()]),
    )


def _levels(history: History, times_ns: Sequence[int], columns: Sequence[Sequence[int]]) -> tuple[Level, ...]:
    """From coarse to fine: of each bucket of time the sample with the lowest and that with the highest sum."""
    sums = list(map(sum, zip(*columns)))
    levels = []
    for buckets in (*_BUCKETS, _MOST_POINTS // 2):
        whole = len(sums) <= 2 * buckets
        rows = range(len(sums)) if whole else _extremes(times_ns, sums, buckets)
        levels.append(
            Level(
                times_s=[(times_ns[row] - history.times_ns[0]) / 1e9 for row in rows],
                values=tuple([column[row] for row in rows] for column in columns),
            )
        )
        if whole:
            break
    return tuple(levels)


def _extremes(times_ns: Sequence[int], sums: Sequence[int], buckets: int) -> list[int]:
    """The rows with the lowest and the highest sum of each bucket of time, the first one and the last one."""
    first = times_ns[0]
    width = max((times_ns[-1] - first) // buckets, 1)
    rows = {0, len(sums) - 1}
    begin = 0
    while begin < len(sums):
        end = bisect_left(times_ns, first + ((times_ns[begin] - first) // width + 1) * width, begin)
        rows.add(min(range(begin, end), key=sums.__getitem__))
        rows.add(max(range(begin, end), key=sums.__getitem__))
        begin = end
    return sorted(rows)


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
