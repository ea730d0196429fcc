"""Marks of phases or steps that any trainer may write: standard library only; training is never blocked.

    from rlhfdoctor import marks
    marks.role("actor", rank=3)
    with marks.phase("rollout", step=7):
        ...

Marks go to the folder that RLHFDOCTOR_MARKS names, one file a process; `doctor watch -- COMMAND` sets it.
For a run that the doctor attaches to later, export it before the start. Without it every call does
nothing. Errors are swallowed: a full disk must not end a training run.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator

PROBE = "probe"
"""Kind of the lines that the probe writes beside the marks."""
SNAPSHOT = "snapshot"
"""Kind of its lines about what code holds the GPU."""
_MOST_BYTES = 8 << 20
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_handle: tuple[int, int] | None = None
"""(pid, descriptor): a forked child opens its own file."""
_written = 0


def role(name: str, rank: int | None = None) -> None:
    """Marks the role of this process: actor, critic, reference, reward, rollout engine, driver."""
    _write({"kind": "role", "role": name, "rank": rank, "phase": None, "step": -1})


def step(number: int, **fields: int | str) -> None:
    """Marks the start of a step (one PPO iteration)."""
    _write({"step": number, **fields})


def mark(phase: str, step: int | None = None, edge: str | None = None, **fields: int | str) -> None:
    """Marks that a phase begins (`edge` "start", the default) or ends ("end").

    `phase` is one of load, rollout, score, update, weight_sync, checkpoint, eval.
    """
    _write({"phase": phase, "step": step, "edge": edge, **fields})


@contextlib.contextmanager
def phase(name: str, step: int | None = None, **fields: int | str) -> Iterator[None]:
    """Marks the start and the end of a phase."""
    mark(name, step, "start", **fields)
    try:
        yield
    finally:
        mark(name, step, "end", **fields)


def _write(fields: dict[str, object]) -> None:
    global _handle, _written
    folder = os.environ.get("RLHFDOCTOR_MARKS")
    if not folder or (_written > _MOST_BYTES and _handle is not None and _handle[0] == os.getpid()):
        return
    with contextlib.suppress(OSError, ValueError, TypeError):
        pid = os.getpid()
        if _handle is None or _handle[0] != pid:
            _written = 0
            os.makedirs(folder, exist_ok=True)
            _handle = (pid, os.open(f"{folder}/{pid}.jsonl", _FLAGS, 0o644))
            if not stat.S_ISREG(os.fstat(_handle[1]).st_mode):
                os.close(_handle[1])
                _handle = (pid, -1)  # a pipe or a device: every write fails, none waits
        line = json.dumps(
            {"at_ns": time.time_ns(), **{key: value for key, value in fields.items() if value is not None}}
        )
        _written += os.write(_handle[1], line.encode() + b"\n")
