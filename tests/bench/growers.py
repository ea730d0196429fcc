"""Small programs whose memory grows in a known way, each recorded in a memory cgroup, for forecast.py.

    python -m tests.bench.growers FOLDER [SEED]

Root and a cgroup v1 memory controller are needed. Each takes a minute or so; four run at a time. Another seed than 1
also changes how long the steps are, and how fast memory grows.
"""

from __future__ import annotations

import contextlib
import math
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup/memory")
LIMIT_MIB = 512
BASE_MIB = 100
Part = tuple[float, float]
"""Seconds, and MiB held from then on."""
Course = Callable[[random.Random], Iterator[list[Part]]]
"""Steps, each of some parts; a program without steps has one."""


def leak(each: Callable[[int, random.Random], float], every: Callable[[random.Random], float] = lambda _: 2.0) -> Course:
    """Holds more after each step."""

    def course(noise: random.Random) -> Iterator[list[Part]]:
        held, number = float(BASE_MIB), 0
        while True:
            yield [(every(noise), held)]
            held += each(number, noise)
            number += 1

    return course


def follow(at: Callable[[int, random.Random], list[Part]], steps: int) -> Course:
    """So many steps, which end well unless the limit is met."""
    return lambda noise: (at(number, noise) for number in range(steps))


def without_steps(at: Callable[[float, random.Random], float], seconds: int) -> Course:
    """A program that says nothing; its memory by time."""
    return lambda noise: iter([[(0.25, at(tick / 4, noise)) for tick in range(seconds * 4)]])


COURSES: dict[str, Course] = {
    "even-leak": leak(lambda n, r: 12),
    "uneven-leak": leak(lambda n, r: r.uniform(0, 24), lambda r: r.uniform(1, 3)),
    "leak-each-third-step": leak(lambda n, r: 30 * (n % 3 == 2)),
    "leak-after-warm-up": leak(lambda n, r: 40 / (n + 1) + 8),
    "leak-with-saves": follow(lambda n, r: [(1.2, 120 + 7 * n), (0.8, 120 + 7 * n + 80 * (n % 5 == 4))], 99),
    "healthy-sawtooth": follow(lambda n, r: [(1, 180), (1, 330 + r.gauss(0, 10))], 30),
    "healthy-noise": follow(lambda n, r: [(2, min(460, 300 + r.gauss(0, 40)))], 35),
    "healthy-cache": follow(lambda n, r: [(2, 100 + 330 * (1 - math.exp(-n / 9)))], 35),
    "healthy-doubling": follow(lambda n, r: [(2, 100 + 10 * 2 ** int(math.log2(n + 1)))], 36),
    "healthy-drift": follow(lambda n, r: [(1.5, 200 + 1.5 * n)], 40),
    "healthy-ramp": without_steps(lambda t, r: 50 + 20 * min(t, 19), 60),
    "ramp-killed": without_steps(lambda t, r: 50 + 15 * t, 60),
    "leak-without-steps": without_steps(lambda t, r: 80 + 20 * min(t, 5) + 7 * max(0, t - 15) + r.uniform(0, 3), 90),
    "teeth-without-steps": without_steps(
        lambda t, r: 80 + 20 * min(t, 5) + 4 * max(0, t - 15) + 15 * (t % 4), 90
    ),
}


def run(name: str, seed: int) -> None:
    """The program itself: pages that are touched, in pieces of 1 MiB."""
    from rlhfdoctor import marks

    held: list[bytearray] = []
    slow, steep = _varied(name, seed)
    for number, parts in enumerate(COURSES[name](random.Random(seed))):
        if "ramp" not in name and "without" not in name:
            marks.step(number)
        for seconds, size in parts:
            count = int(BASE_MIB + (size - BASE_MIB) * steep if size > BASE_MIB else size)
            while len(held) < count:
                held.append(bytearray(b"x") * (1 << 20))
            del held[count:]
            time.sleep(seconds * slow)


def _varied(name: str, seed: int) -> tuple[float, float]:
    """By how much the steps are longer and the growth is steeper; what must not meet the limit keeps its growth."""
    noise = random.Random(f"{name} {seed}")
    slow, steep = (noise.uniform(0.6, 1.5), noise.uniform(0.6, 1.5)) if seed > 1 else (1.0, 1.0)
    return slow, 1.0 if "healthy" in name else steep


def record(folder: Path, name: str, seed: int) -> None:
    """One program below the recorder, in a cgroup of its own."""
    cgroup = CGROUPS / f"grower-{name}-{seed}"
    cgroup.mkdir()
    try:
        (cgroup / "memory.limit_in_bytes").write_text(f"{LIMIT_MIB}M")
        program = f"echo $$ > {cgroup}/cgroup.procs; exec {sys.executable} -m tests.bench.growers --run {name} {seed}"
        watch = [sys.executable, "-m", "rlhfdoctor", "watch", "--no-view", "--out", str(folder / name / "run")]
        subprocess.run([*watch, "--", "sh", "-c", program], capture_output=True, check=False)
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                cgroup.rmdir()
                break
            time.sleep(0.1)


def main(folder: Path, seed: int = 1) -> None:
    """Records all of them."""
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda name: record(folder, name, seed), COURSES))


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        run(sys.argv[2], int(sys.argv[3]))
    else:
        main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
