"""The recorder beside a GPU job: the time of its steps with and without `doctor watch`, in pairs.

The runs take turns, watched first in every second pair, so that a card that grows warm or slow tells of neither.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.gpu.step import ROOT, Device, Figure, Place, Step, Unknown

_JOB = """
import json, sys, time, torch
device, size, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
a = torch.randn(size, size, device=device, dtype=torch.bfloat16 if device == "cuda" else torch.float32)
host = torch.empty(1 << 20, pin_memory=device == "cuda")
wait = torch.cuda.synchronize if device == "cuda" else lambda: None
for _ in range(5):
    b = a @ a
wait()
taken, end = [], time.perf_counter() + seconds
while time.perf_counter() < end or len(taken) < 8:
    begin = time.perf_counter()
    for _ in range(4):
        b = a @ a
        host.copy_(b.flatten()[: 1 << 20].float() if device == "cuda" else host, non_blocking=True)
    wait()
    taken.append(time.perf_counter() - begin)
json.dump(taken, open(sys.argv[4], "w"))
"""


def step_seconds(watched: bool, device: Device, seconds: float, size: int) -> float:
    """The median time of a step of one run."""
    with tempfile.TemporaryDirectory(prefix="rlhfdoctor-gpu-") as name:
        folder = Path(name)
        (folder / "job.py").write_text(_JOB)
        command = [sys.executable, str(folder / "job.py"), device, str(size), str(seconds), str(folder / "taken.json")]
        if watched:
            watch = [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--out", str(folder / "run"), "--"]
            command = [*watch, *command]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        if not (folder / "taken.json").is_file():
            last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
            raise Unknown(f"the {'watched ' if watched else ''}job did not end well: {last}")
        return statistics.median(json.loads((folder / "taken.json").read_text())[3:])


def paired(device: Device) -> Mapping[str, Figure]:
    """The ratio of watched to unwatched of each pair: their median and range."""
    pairs, seconds, size = (8, 6.0, 8192) if device == "cuda" else (2, 1.0, 256)
    ratios = []
    for pair in range(pairs):
        first = pair % 2 == 0
        times = {watched: step_seconds(watched, device, seconds, size) for watched in (first, not first)}
        ratios.append(times[True] / times[False])
    return {
        "watched over unwatched": round(statistics.median(ratios), 4),
        "lowest": round(min(ratios), 4),
        "highest": round(max(ratios), 4),
        "pairs": pairs,
    }


STEPS = (
    Step(
        name="recorder-beside",
        fact="steps of a GPU job take no longer while it is recorded",
        assumed=Place("README.md", "recorder"),
        run=paired,
        expected={"watched over unwatched": (0.98, 1.02)},
        limit_s=240,
    ),
)
