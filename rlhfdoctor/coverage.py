"""What was read of a run, by kind of source; what was not given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

SourceKind: TypeAlias = Literal["trace", "kernel log", "Ray's logs", "job log", "configuration"]
SOURCE_KINDS: tuple[SourceKind, ...] = get_args(SourceKind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Covered:
    """Sources of one kind that were read."""

    kind: SourceKind
    count: int
    """Files, or recordings."""
    hosts: tuple[str, ...] = ()
    """Nodes, as far as they are named."""
    from_s: float | None = None
    until_s: float | None = None
    """First and last stamp, Unix seconds; None if no line that was recognised bears one."""


@dataclass(frozen=True, slots=True)
class Coverage:
    """All that was read."""

    read: tuple[Covered, ...] = ()
    runs: tuple[str, ...] = ()
    """A path for each, where what was read seems to be of several runs."""

    def has(self, *kinds: SourceKind) -> bool:
        """Whether a source of one of these kinds was read."""
        return any(covered.kind in kinds for covered in self.read)

    @property
    def missing(self) -> tuple[SourceKind, ...]:
        """Kinds of which nothing was given; a recording has the kernel's log with it."""
        return tuple(kind for kind in SOURCE_KINDS if not self.has(kind))
