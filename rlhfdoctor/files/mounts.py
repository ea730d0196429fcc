"""Mounts whose server does not answer: a program that looks at a file there waits for ever, even through Ctrl-C."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import threading
import time
from pathlib import Path

PATIENCE_S = 5.0
_KNOWN_S, _MOUNTED_S = 60.0, 5.0
_LOCAL = frozenset(
    (
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "zfs",
        "overlay",
        "tmpfs",
        "ramfs",
        "rootfs",
        "proc",
        "sysfs",
        "devtmpfs",
        "devpts",
        "cgroup",
        "cgroup2",
        "mqueue",
    )
)
"""Types of file systems that no server or program answers for."""
_ESCAPE = re.compile(r"\\([0-7]{3})")


def is_silent(path: str | os.PathLike[str]) -> bool:
    """Whether a path says neither what it is nor that it is missing."""
    answer, until_s = _ask(os.fspath(path), _now(_KNOWN_S))
    return not answer.wait(max(until_s - time.monotonic(), 0))


def find_silent(folder: str | os.PathLike[str]) -> frozenset[str]:
    """Mounts below a folder that answers, of those that may be silent, as `walk` names them."""
    mounts = _foreign_mounts(_now(_MOUNTED_S))
    if not mounts:
        return frozenset()
    top, below = os.fspath(folder).rstrip("/"), os.path.realpath(folder).rstrip("/") + "/"
    inner = [place for place in mounts if place.startswith(below)]
    for place in inner:  # all at once
        _ask(place, _now(_KNOWN_S))
    return frozenset(f"{top}/{place[len(below) :]}" for place in inner if is_silent(place))


def is_silent_mount(folder: str | os.PathLike[str]) -> bool:
    """The same of a folder whose parent answers."""
    path = Path(folder)
    place = f"{os.path.realpath(path.parent).rstrip('/')}/{path.name}"
    return place in _foreign_mounts(_now(_MOUNTED_S)) and is_silent(place)


def _now(every_s: float) -> int:
    """A number that changes so often: what was found is known for so long."""
    return int(time.monotonic() / every_s)


@functools.lru_cache(maxsize=64)
def _ask(path: str, _now: int) -> tuple[threading.Event, float]:
    """Set once the path has answered, and until when that is waited for; the thread ends with the process."""
    answered = threading.Event()

    def ask() -> None:
        with contextlib.suppress(OSError, ValueError):
            Path(path).stat()
        answered.set()

    threading.Thread(target=ask, daemon=True).start()
    return answered, time.monotonic() + PATIENCE_S


@functools.lru_cache(maxsize=1)
def _foreign_mounts(_now: int) -> frozenset[str]:
    """Where a server's or a program's file systems are mounted (proc_pid_mountinfo(5)); blanks there are octal."""
    found = set[str]()
    with contextlib.suppress(OSError), open("/proc/self/mountinfo", "rb") as lines:
        for line in os.fsdecode(lines.read()).splitlines():
            before, mark, after = line.partition(" - ")
            fields = before.split(" ")
            if mark and len(fields) > 4 and after.split(" ")[0] not in _LOCAL:
                found.add(_ESCAPE.sub(lambda match: chr(int(match[1], 8)), fields[4]))
    return frozenset(found)
