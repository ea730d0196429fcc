"""Torch's memory snapshot summarised as the probe does: whether the frames and the sums are those of the tensors that are held.

On a CPU there is no such snapshot: fixtures/snapshot.json has its structure, written by us after torch's documentation
(torch.cuda.memory._snapshot), and not recorded on a card.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlhfdoctor.probe import _EVERY_S
from rlhfdoctor.snapshot import summarise
from rlhfdoctor.units import MIB
from tests.gpu.step import Device, Figure, Place, Step, about

FIXTURE = Path(__file__).with_name("fixtures") / "snapshot.json"


def hold_large() -> Any:
    """1 GiB in four tensors, by one line."""
    import torch

    return [torch.empty(256 * MIB, dtype=torch.uint8, device="cuda") for _ in range(4)]


def hold_small() -> Any:
    """64 MiB by another."""
    import torch

    return torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")


def snapshot(device: Device) -> Mapping[str, Figure]:
    """The summary's first line, its sums over torch's, and what one takes of the probe's interval."""
    if device == "cpu":
        segments, allocated, reserved = json.loads(FIXTURE.read_text())["segments"], 1088 * MIB, 1104 * MIB
        return _figures(segments, allocated, reserved, time.perf_counter())
    import torch

    torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
    kept = (hold_large(), hold_small())
    begin = time.perf_counter()
    segments = torch.cuda.memory_snapshot()
    found = _figures(segments, torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), begin)
    del kept
    return found


def _figures(segments: Any, allocated: int, reserved: int, begin: float) -> Mapping[str, Figure]:
    found = summarise(segments)
    seconds = time.perf_counter() - begin
    first = found["frames"][0] if found["frames"] else {"frame": "none", "bytes": 0}
    return {
        "first frame": first["frame"].rpartition(" ")[2],
        "first over asked": round(first["bytes"] / (1024 * MIB), 3),
        "held over allocated": round(found["held_bytes"] / allocated, 3),
        "reserved over reserved": round(found["reserved_bytes"] / reserved, 3),
        "without a frame": round(found["unknown_bytes"] / allocated, 3),
        "of the probe's interval": round(seconds / _EVERY_S, 5),
    }


STEPS = (
    Step(
        name="snapshot",
        fact="a memory snapshot names the line that holds most, and its blocks add up to torch's allocated bytes",
        assumed=Place("rlhfdoctor/snapshot.py", "the innermost frame first"),
        run=snapshot,
        expected={
            "first over asked": about(1, 0.02),
            "held over allocated": about(1, 0.01),
            "reserved over reserved": about(1, 0.01),
            "without a frame": about(0, 0.01),
            "of the probe's interval": (0, 0.1),
        },
    ),
)
