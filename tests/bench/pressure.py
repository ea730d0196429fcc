"""What a job's step takes while its cgroup is full, with and without `doctor watch`: python -m tests.bench.pressure [PAIRS].

A program in a memory cgroup of 400 MiB holds 300 MiB, and in each step reads a file of 200 MiB and touches all that it
holds, so that the kernel reclaims all the time. Watched and unwatched runs follow each other in turn; the recorder and
`doctor watch` are in the cgroup, too, as in a container. Needs root and the cgroup v1 memory controller.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.bench.speed import shown
from tests.bench.survive import JOIN, limited

LIMIT_BYTES = 400 << 20
STEPS = 30
JOB = """
import sys, time
held = [bytearray(b"x") * (1 << 20) for _ in range(300)]
for step in range(int(sys.argv[3])):
    start = time.perf_counter()
    with open(sys.argv[1], "rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
    for block in held:
        for place in range(0, len(block), 4096):
            block[place] = step & 255
    with open(sys.argv[2], "a") as out:
        print(time.perf_counter() - start, file=out)
"""


def steps(folder: Path, name: str, watched: bool) -> tuple[float, int]:
    """Median seconds of a step, and how often the cgroup was at its limit."""
    times = folder / f"{name}.txt"
    job = ["-c", JOB, str(folder / "file"), str(times), str(STEPS)]
    watch = ["-m", "rlhfdoctor", "watch", "--no-view", "--out", str(folder / name), "--", sys.executable]
    with limited(f"pressure-{name}", LIMIT_BYTES) as cgroup:
        words = [sys.executable, "-c", JOIN, str(cgroup / "cgroup.procs"), *(watch if watched else []), *job]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        full = int((cgroup / "memory.failcnt").read_text())
    return statistics.median(float(line) for line in times.read_text().split()[2:]), full


def main() -> int:
    """Measures the pairs."""
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 8
    ratios, plain = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "file").write_bytes(b"y" * (200 << 20))
        for number in range(pairs):
            order = (False, True) if number % 2 else (True, False)
            found = {watched: steps(folder, f"{number}-{watched}", watched) for watched in order}
            ratios.append(found[True][0] / found[False][0])
            plain.append(found[False][0])
            print(f"pair {number + 1}: {found}", file=sys.stderr, flush=True)
    print(f"step with the doctor / without: {shown(ratios, 'x')}; a step without: {shown(plain)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
