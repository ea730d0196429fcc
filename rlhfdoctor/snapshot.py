"""Lines of code that hold the most of a GPU: torch's memory snapshot, cut down to what fits in one mark.

torch.cuda.memory_snapshot() gives the allocator's segments, each with its blocks, each of those with the stack that
allocated it, the innermost frame first; frames are there only where torch.cuda.memory._record_memory_history was called
before (documented at torch.cuda.memory._snapshot, torch 2.1 and later). Standard library only; torch is never imported.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

OUT_OF_MEMORY = "out of memory"
FULL_RATIO = 0.95
"""Of a card in use, from which on a summary is taken: where the recorder's alarm stands, too."""
MOST_FRAMES = 20
_GROWTH = 1.05
"""By how much a process must hold more than at its last summary for the next one."""
_MOST_FAILURES = 50
_PAUSE_S = 1.0
_MOST_CHARACTERS = 120
_IN_USE = ("active_allocated", "active_awaiting_free")
_OWN = ("/torch/", "<frozen ")
"""Frames of torch itself say how, not who; the nearest one outside counts."""


class Snapshots:
    """Takes a summary where the card is full, and where torch runs out of it: at that moment, before it raises."""

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self._records = False
        self._held = 0
        self._failures = 0
        self._last_s = 0.0

    def look(self) -> None:
        """Once every few seconds. Makes no CUDA context; records stacks from the first call on that finds one."""
        torch = sys.modules.get("torch")
        if torch is None or not torch.cuda.is_available() or not torch.cuda.is_initialized():
            return
        if not self._records:
            self._records = True  # whatever comes of it: a torch that cannot is not asked again
            torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
            torch._C._cuda_attach_out_of_memory_observer(self._ran_out)
        free, total = torch.cuda.mem_get_info()
        held = torch.cuda.memory_allocated()
        if total - free >= FULL_RATIO * total and held > self._held * _GROWTH:
            self._held = held
            self._take(torch, "full")

    def _ran_out(self, _device: int, asked: int, _total: int, _free: int) -> None:
        """Torch calls it without its allocator's lock (c10/cuda/CUDACachingAllocator.cpp, malloc)."""
        if self._failures < _MOST_FAILURES and time.monotonic() - self._last_s >= _PAUSE_S:
            self._failures += 1
            self._last_s = time.monotonic()
            with contextlib.suppress(Exception):  # an exception from here would take the place of torch's own
                self._take(sys.modules["torch"], OUT_OF_MEMORY, asked_bytes=asked)

    def _take(self, torch: Any, why: str, **more: int) -> None:
        self._write({"why": why, **more, **summarise(torch.cuda.memory_snapshot())})


def summarise(segments: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Bytes by the line that allocated them, the most first, and how many there are besides.

    `held_bytes` is what tensors use, `reserved_bytes` what the allocator has of the card; blocks without a stack (older
    than the history, or none is kept) count in `unknown_bytes`, lines beyond the 20 largest in `other_bytes`.

    >>> frame = {"filename": "/a/b/c/d.py", "line": 7, "name": "f"}
    >>> block = {"state": "active_allocated", "size": 512, "frames": [frame]}
    >>> summarise([{"total_size": 2048, "blocks": [block, block, {"state": "inactive", "size": 1024}]}])["frames"]
    [{'frame': 'b/c/d.py:7 f', 'bytes': 1024, 'count': 2}]
    """
    sums: dict[str, tuple[int, int]] = {}
    reserved = held = unknown = 0
    for segment in segments:
        reserved += segment.get("total_size", 0)
        for block in segment.get("blocks", ()):
            if block.get("state") not in _IN_USE:
                continue
            size = block.get("size", 0)
            held += size
            frame = _who(block.get("frames") or ())
            if frame is None:
                unknown += size
            else:
                before = sums.get(frame, (0, 0))
                sums[frame] = before[0] + size, before[1] + 1
    ranked = sorted(sums.items(), key=lambda item: (-item[1][0], item[0]))
    frames = [{"frame": name, "bytes": size, "count": count} for name, (size, count) in ranked[:MOST_FRAMES]]
    return {
        "held_bytes": held,
        "reserved_bytes": reserved,
        "unknown_bytes": unknown,
        "other_bytes": sum(size for _, (size, _) in ranked[MOST_FRAMES:]),
        "frames": frames,
    }


def _who(frames: Sequence[Mapping[str, Any]]) -> str | None:
    """The innermost frame that is not torch's own, else the innermost; the file by the end of its path."""
    if not frames:
        return None
    chosen = next((f for f in frames if not any(own in str(f.get("filename")) for own in _OWN)), frames[0])
    file = "/".join(str(chosen.get("filename", "?")).split("/")[-3:])
    return f"{file}:{chosen.get('line', 0)} {chosen.get('name', '?')}"[:_MOST_CHARACTERS]
