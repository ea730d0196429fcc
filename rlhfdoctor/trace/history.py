"""What every sample of a trace says of memory: sums by role, the owner of a limit by kind, GPUs.

A verdict needs all columns of few samples, a picture a few columns of all of them: this reads the segments once more,
decodes what is drawn, and keeps one number for each sample and line, regardless of how many processes there were.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Generic, TypeVar

from rlhfdoctor.trace.frames import Rows, Sample
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import SUFFIX

OF_NODE = (
    "anon_bytes",
    "shmem_bytes",
    "cached_bytes",
    "buffers_bytes",
    "slab_bytes",
    "page_tables_bytes",
    "kernel_stack_bytes",
)
OF_CGROUP = ("anon_bytes", "shmem_bytes", "file_bytes", "kernel_bytes")
LOCKED = "locked"
"""Page-locked shared memory of all processes, among the columns of a limit's owner."""
_OF_PROCESS = ("rss_anon_bytes", "rss_shmem_bytes", "locked_bytes")
_NOTHING: Rows = ([], [])
Name = TypeVar("Name", bound=Hashable)


@dataclass(slots=True)
class Lines(Generic[Name]):
    """One number for each sample and line."""

    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Wall clock, ascending."""
    values: dict[Name, array[int]] = field(default_factory=dict)

    def add(self, at_ns: int, row: Mapping[Name, int], missing: int) -> None:
        """A sample; lines that are not in it are `missing` there."""
        if row.keys() != self.values.keys():
            for name in row:
                if name not in self.values:
                    self.values[name] = array("q", [missing]) * len(self.times_ns)
            row = {name: row.get(name, missing) for name in self.values}
        self.times_ns.append(at_ns)
        for name, line in self.values.items():
            line.append(row[name])

    def sort(self) -> None:
        """By time, where a clock that was set back put samples out of order."""
        order = sorted(range(len(self.times_ns)), key=self.times_ns.__getitem__)
        self.times_ns = array("q", map(self.times_ns.__getitem__, order))
        self.values = {name: array("q", map(line.__getitem__, order)) for name, line in self.values.items()}


@dataclass(slots=True)
class History:
    """The memory of one node over a run."""

    times_ns: array[int] = field(default_factory=lambda: array("q"))
    """Of every sample, ascending."""
    roles: Lines[str] = field(default_factory=Lines)
    """Role -> anonymous and page-locked bytes of its processes; 0 while there is none."""
    owner: Lines[str] = field(default_factory=Lines)
    """Column of the limit's owner -> bytes, `NULL` where unknown; and `LOCKED`."""
    gpus: Lines[int] = field(default_factory=Lines)
    """GPU -> bytes in use, `NULL` where unknown."""
    clock_was_set_back: bool = False


def read_history(folder: str | Path, roles: Mapping[int, str], cgroup: int | None) -> History:
    """What the segments in a folder hold of it; what is damaged is left out, as `read_node` reports.

    Args:
        roles: of each process to count, by its number in the trace.
        cgroup: number of the cgroup whose limit counts; None for the node.
    """
    owner, columns = ("host", OF_NODE) if cgroup is None else ("cgroup", OF_CGROUP)
    only = {"process": _OF_PROCESS, owner: columns, "gpu": ("used_bytes",)}
    found = History()
    held = _Held(roles)
    for name in sorted(Path(folder).glob(f"*{SUFFIX}")):
        last: Sample | None = None
        try:
            for item in SegmentReader(str(name), only).read([], final=True):
                if not isinstance(item, Sample):
                    continue
                found.clock_was_set_back |= (
                    last is not None and item.wall_ns < last.wall_ns and item.mono_ns > last.mono_ns
                )
                last = item
                _add(found, item, held, owner, cgroup or 0)
        except OSError:
            continue
    lines: tuple[Lines[str] | Lines[int], ...] = (found.roles, found.owner, found.gpus)
    if any(one > two for one, two in zip(found.times_ns, found.times_ns[1:])):
        found.times_ns = array("q", sorted(found.times_ns))
        for each in lines:
            each.sort()
    return found


def _add(found: History, sample: Sample, held: _Held, owner: str, key: int) -> None:
    at_ns = sample.wall_ns
    found.times_ns.append(at_ns)
    keys, columns = sample.tables.get("process", _NOTHING)
    by_role, locked = held.sums(keys, columns) if keys else ({}, 0)
    if by_role:
        found.roles.add(at_ns, by_role, 0)
    keys, columns = sample.tables.get(owner, _NOTHING)
    if key in keys:
        place = keys.index(key)
        names = OF_NODE if owner == "host" else OF_CGROUP
        found.owner.add(at_ns, {**{n: column[place] for n, column in zip(names, columns)}, LOCKED: locked}, NULL)
    keys, columns = sample.tables.get("gpu", _NOTHING)
    if keys:
        found.gpus.add(at_ns, dict(zip(keys, columns[0])), NULL)


class _Held:
    """Sums over the processes of each role."""

    def __init__(self, roles: Mapping[int, str]) -> None:
        self._roles = roles
        self._keys: Sequence[int] = ()
        self._rows_of: dict[str, Callable[[Sequence[int]], Sequence[int]]] = {}
        """Role -> takes the rows of its processes out of a column, as long as the processes are the same."""
        self._shared: tuple[Sequence[int], ...] = ()
        self._pinned: Sequence[int] | None = None
        """Page-locked bytes of each row, as long as these columns are the same; None where there are none."""

    def sums(self, keys: Sequence[int], columns: Sequence[Sequence[int]]) -> tuple[dict[str, int], int]:
        """Anonymous and page-locked bytes of each role, and page-locked bytes of all of them."""
        if keys is not self._keys:
            places: dict[str, list[int]] = {}
            for place, key in enumerate(keys):
                if key in self._roles:
                    places.setdefault(self._roles[key], []).append(place)
            self._keys = keys
            self._rows_of = {role: _taker(here) for role, here in places.items()}
        anon, *shared = columns
        if not self._shared or any(one is not two for one, two in zip(shared, self._shared)):
            shmem, locked = map(_known, shared)
            self._shared, self._pinned = tuple(shared), list(map(min, locked, shmem)) if any(locked) else None
        sums = self._sums(_known(anon))
        if self._pinned is None:
            return sums, 0
        added = self._sums(self._pinned)
        return {role: size + added[role] for role, size in sums.items()}, sum(added.values())

    def _sums(self, column: Sequence[int]) -> dict[str, int]:
        return {role: sum(rows_of(column)) for role, rows_of in self._rows_of.items()}


def _taker(places: Sequence[int]) -> Callable[[Sequence[int]], Sequence[int]]:
    """Takes these rows out of a column."""
    return itemgetter(*places) if len(places) > 1 else itemgetter(slice(places[0], places[0] + 1))


def _known(column: Sequence[int]) -> Sequence[int]:
    """0 for what is unknown."""
    return column if min(column) != NULL else [0 if value == NULL else value for value in column]
