"""Processes by kind: their sizes, their usual size, one that is larger than its peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median

from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary.run import OTHER

_APART = 1.12
"""From this ratio on the largest does more than its peers, such as rank 0 that gathers; measured ranks of a kind differ
by less."""
_FAR = 0.5
"""Unnamed processes are of one kind as long as each has at least this share of the next larger one."""
_LEAST_RATIO = 0.01
"""A peer has at least this share of the largest unnamed process."""
SMALL_BYTES = 64 * MIB
"""A smaller process is not explained."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """One process with what it held, file pages left out where that is known."""

    role: str | None
    name: str
    pid: int
    bytes: int
    shmem_bytes: int | None = None
    """Page-locked or shared memory among them; None if unknown."""


@dataclass(frozen=True)
class Group:
    """Processes of one kind on a node."""

    role: str
    name: str
    sizes: tuple[int, ...]
    """Bytes of each, the largest first."""
    shmem_bytes: int | None = None
    """Of the usual process; None if unknown."""

    @cached_property
    def bytes(self) -> int:
        """Of all together."""
        return sum(self.sizes)

    @cached_property
    def special(self) -> int | None:
        """The largest, where it stands apart from its peers."""
        return self.sizes[0] if len(self.sizes) > 1 and self.sizes[0] > _APART * self.sizes[1] else None

    @cached_property
    def usual(self) -> int:
        """What one of them holds, one that stands apart left out."""
        return int(median(self.sizes[1:] if self.special is not None else self.sizes))


def group(holders: Sequence[Holder]) -> list[Group]:
    """Kinds of processes, the largest first; small unnamed ones are one kind, `other`.

    >>> [g.sizes for g in group([Holder(role=None, name="python", pid=n, bytes=n * 10**9) for n in (90, 9, 8)])]
    [(90000000000, 9000000000, 8000000000)]
    """
    roles: dict[str, list[Holder]] = {}
    unnamed: dict[str, list[Holder]] = {}
    for holder in holders:
        (unnamed if holder.role is None else roles).setdefault(holder.role or holder.name, []).append(holder)
    found = [_make(role, rows) for role, rows in roles.items()]
    others: list[Holder] = []
    for rows in unnamed.values():
        kind = list(_alike(sorted(rows, key=lambda row: -row.bytes)))
        rest = [row for row in rows if row not in kind]
        if kind[0].bytes >= SMALL_BYTES and kind[0].bytes >= _LEAST_RATIO * max(h.bytes for h in holders):
            found.append(_make(OTHER, kind))
        else:
            rest = rows
        others += rest
    if others:
        found.append(Group(OTHER, "", tuple(sorted((row.bytes for row in others), reverse=True))))
    return sorted(found, key=lambda one: -one.bytes)


def _alike(rows: Sequence[Holder]) -> Iterator[Holder]:
    """The largest process, and those of about one size that follow; a single largest one may stand apart."""
    yield rows[0]
    for number, (before, row) in enumerate(pairwise(rows)):
        apart = number == 0 and row.bytes >= _LEAST_RATIO * before.bytes
        if row.bytes < _FAR * before.bytes and not apart:
            return
        yield row


def _make(role: str, rows: Sequence[Holder]) -> Group:
    ordered = sorted(rows, key=lambda row: -row.bytes)
    known = [(row.shmem_bytes, row.bytes) for row in ordered if row.shmem_bytes is not None]
    sizes = tuple(row.bytes for row in ordered)
    one = Group(role, ordered[0].name, sizes)
    shmem = round(median(part / max(whole, 1) for part, whole in known) * one.usual) if known else None
    return Group(role, ordered[0].name, sizes, shmem)
