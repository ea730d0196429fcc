"""Start-up against bare Python in one run, median of nine: `python tests/bench/start.py`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def clock(*words: str) -> float:
    """Median seconds of a whole process, after one run that is not counted."""
    times = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=False)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    """Prints milliseconds and the ratio to bare Python."""
    anchor = clock("-c", "pass")
    print(f"python -c pass                {anchor * 1000:6.0f} ms")
    for name, words in {
        "doctor --help": ("-m", "rlhfdoctor", "--help"),
        "doctor analyze, small folder": ("-m", "rlhfdoctor", "analyze", "samples/ray-segfault/run"),
    }.items():
        took = clock(*words)
        print(f"{name:29} {took * 1000:6.0f} ms   {took / anchor:5.1f} x bare Python")


if __name__ == "__main__":
    main()
