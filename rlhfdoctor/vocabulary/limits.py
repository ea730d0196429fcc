"""The limits that a run may reach: those that the recorder follows, those that an estimate is held against."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from rlhfdoctor.i18n.message import Message, quoted, say

LimitName: TypeAlias = Literal["cgroup", "node", "ray", "shm", "gpu"]
LIMITS: Mapping[LimitName, str] = {
    "cgroup": "unreclaimable memory of a cgroup against its memory.max",
    "node": "memory of the node that is not available against all of it",
    "ray": "what Ray's memory monitor counts against its threshold",
    "shm": "use of /dev/shm against its size",
    "gpu": "memory in use on a GPU against all of it",
}
"""What each limit of a recording compares."""


_SAID: Mapping[LimitName, Message] = {
    "cgroup": say("container limit"),
    "node": say("node memory"),
    "ray": say("Ray's threshold"),
    "shm": quoted("/dev/shm"),
}


def say_limit(name: LimitName, level: str = "") -> Message:
    """A limit of a recording for people.

    Args:
        level: of a GPU, its number.

    >>> str(say_limit("cgroup", "/job")), str(say_limit("gpu", "3"))
    ('container limit', 'GPU 3')
    """
    return say("GPU {number}", number=level) if name == "gpu" else _SAID[name]


def limit_of(word: object) -> LimitName | None:
    """The limit that a trace names; None if this version does not know it."""
    return next((name for name in LIMITS if name == word), None)


NODE: Final = "node"
"""In place of a cgroup's path: the node itself, as a level of a kill counter or of a failure."""

BoundName: TypeAlias = Literal["container", "node", "/dev/shm", "GPU"]
"""The limits of an estimate, in its own words: cgroup, node, shm and gpu of a recording, before there is one."""

ProcessLimit: TypeAlias = Literal["open files", "processes or threads", "pids cgroup"]
"""Limits that are no memory, the values of `limit.kind` for rules.

They are RLIMIT_NOFILE, RLIMIT_NPROC or threads-max, and pids.max.
"""
