"""Optional probe inside a worker: torch's allocators, page-locked host memory, a few numbers every two seconds.

For Ray workers, before ray.init connects:

    ray.init(runtime_env={"worker_process_setup_hook": "rlhfdoctor.probe.start"})

elsewhere `import rlhfdoctor.probe; rlhfdoctor.probe.start()`. It writes where RLHFDOCTOR_MARKS says and
never imports torch itself: a worker that does not use torch stays as small as it was. A thread that
holds the interpreter for microseconds is all that the trainer sees of it.

With RLHFDOCTOR_SNAPSHOTS=1 torch also keeps the stack of each allocation (some 2 us each, says torch/cuda/memory.py),
and what lines of code hold the GPU is written when it is full, and when torch runs out of it (`snapshot`).
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from typing import Any

from rlhfdoctor import marks
from rlhfdoctor.snapshot import Snapshots

_EVERY_S = 2.0
_started = 0


def start() -> None:
    """Starts the probe's thread, once a process; without RLHFDOCTOR_MARKS it does nothing."""
    global _started
    if not os.environ.get("RLHFDOCTOR_MARKS") or _started == os.getpid():
        return
    _started = os.getpid()
    threading.Thread(target=_loop, name="rlhfdoctor probe", daemon=True).start()


def _loop() -> None:
    sent: dict[str, Any] = {}
    snapshots = None
    if os.environ.get("RLHFDOCTOR_SNAPSHOTS", "0") not in ("", "0"):
        snapshots = Snapshots(lambda found: marks._write({"kind": marks.SNAPSHOT, **found}))
    while True:
        with contextlib.suppress(Exception):  # training continues, whatever a half-initialised torch raises
            fresh = read()
            if fresh != sent:
                marks._write({"kind": marks.PROBE, **fresh})
                sent = fresh
        if snapshots is not None:
            with contextlib.suppress(Exception):  # a torch without a snapshot, or one that changed
                snapshots.look()
        time.sleep(_EVERY_S)


def read() -> dict[str, Any]:
    """What torch and Ray say of this process now; empty where neither is loaded."""
    found: dict[str, Any] = {}
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        device = torch.cuda.memory_stats()
        found["cuda_allocated_bytes"] = device.get("allocated_bytes.all.current", 0)
        found["cuda_reserved_bytes"] = device.get("reserved_bytes.all.current", 0)
        found["cuda_peak_bytes"] = device.get("allocated_bytes.all.peak", 0)
        if hasattr(torch.cuda, "host_memory_stats"):  # torch 2.6 and later
            host = torch.cuda.host_memory_stats()
            found["pinned_allocated_bytes"] = host.get("allocated_bytes.current", 0)
            found["pinned_active_bytes"] = host.get("active_bytes.current", 0)
            found["pinned_peak_bytes"] = host.get("allocated_bytes.peak", 0)
    rank = os.environ.get("RANK")
    if rank is not None and rank.isdecimal():
        found["rank"] = int(rank)
    return found
