"""What recording costs: CPU beside a psutil sweep of the same processes, memory, disk, and the target's mmap latency.

    python tests/bench/record.py [SECONDS [ROUNDS [COUNT ...]]]

Processes are 64, 200, 2,000 and 5,000 that wake up every 1 to 6 s and take 0.3 MB (from 1,000 on 30 kB, since memory is finite);
measured from 65 s on, since a new process is asked more often. Both sweeps run at 1 Hz at the same time, each in a process of its own that sleeps in between, with cold caches as
in real life. The target of the second part is a C program that maps, touches and unmaps a page over and over; rounds
unwatched, at 1 Hz and at 10 Hz follow each other in turn, so that noise hits all of them.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.start import start_recorder
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.store import SUFFIX

WARM_S = 65.0
COUNTS = (64, 200, 2000, 5000)
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOAD = """
import os, random, signal, sys, time
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        random.seed(os.getpid())
        blocks = []
        while True:
            time.sleep(random.uniform(1.0, 6.0))
            blocks = blocks[-8:] + [bytearray(b"x") * int(sys.argv[2])]
print("ready", flush=True)
signal.pause()
"""
SWEEP = """
import sys, time, psutil
parent = psutil.Process(int(sys.argv[1]))
processes = parent.children(recursive=True) + [parent]
print("ready", flush=True)
due = time.monotonic()
while True:
    for process in processes:
        with process.oneshot():
            process.cpu_times(), process.memory_info(), process.num_threads()
    due += 1.0
    time.sleep(max(0.0, due - time.monotonic()))
"""
TARGET = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
static long now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}
static int order(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int count, char **words) {
    size_t held = strtoull(words[1], 0, 10) << 20, most = 8 << 20;
    char *block = mmap(0, held, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int *took = malloc(most * sizeof *took);
    if (block == MAP_FAILED || !took) return 1;
    memset(block, 1, held);
    memset(took, 1, most * sizeof *took);
    puts("ready"); fflush(stdout);
    int ms;
    while (scanf("%d", &ms) == 1) {
        size_t n = 0;
        for (long end = now() + ms * 1000000L, before = now(); before < end && n < most; n++) {
            char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            *page = 1;
            munmap(page, 4096);
            long after = now();
            took[n] = after - before;
            before = after;
        }
        qsort(took, n, sizeof *took, order);
        printf("%d %d %d %d %zu\n", took[n / 2], took[n * 99 / 100], took[n * 999 / 1000], took[n - 1], n);
        fflush(stdout);
    }
}
"""


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def exact_cpu_s(pid: int) -> float:
    """The same of the scheduler, to the nanosecond, over all threads; where it is not there, in ticks."""
    try:
        return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    except (OSError, ValueError, IndexError):
        return cpu_s(pid)


def rss_mib(pid: int) -> float:
    """Resident memory of a process."""
    rows = Path(f"/proc/{pid}/status").read_text().split("\n")
    return next(int(row.split()[1]) for row in rows if row.startswith("VmRSS")) / 1024


def start(*words: str) -> subprocess.Popen[str]:
    """A helper process that has said that it is ready."""
    child = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout is not None
    child.stdout.readline()
    return child


def watch(folder: Path, pid: int, interval_s: float) -> subprocess.Popen[bytes]:
    """A recorder of that process and its children."""
    (folder / "marks").mkdir(parents=True)
    return start_recorder(folder, RecorderConfig(name="bench", pids=(pid,), interval_s=interval_s))


def size_of(folder: Path) -> int:
    """Bytes of all segments."""
    return sum(path.stat().st_size for path in folder.glob(f"*{SUFFIX}"))


def overhead(base: Path, count: int, seconds: float) -> None:
    """One line: the recorder beside psutil, for so many processes."""
    load = start(sys.executable, "-c", LOAD, str(count), "300000" if count < 1000 else "30000")
    sweep = start(sys.executable, "-c", SWEEP, str(load.pid))
    folder = base / f"overhead-{count}"
    recorder = watch(folder, load.pid, 1.0)
    try:
        time.sleep(WARM_S)
        before, size = (exact_cpu_s(recorder.pid), exact_cpu_s(sweep.pid)), size_of(folder)
        began = time.monotonic()
        time.sleep(seconds)
        ended = {"recorder": recorder.poll(), "psutil": sweep.poll(), "load": load.poll()}
        if any(code is not None for code in ended.values()):
            sys.exit(f"something ended too early: {ended}; {(folder / 'recorder.log').read_text()[-2000:]}")
        took = time.monotonic() - began
        after, grown = (exact_cpu_s(recorder.pid), exact_cpu_s(sweep.pid)), size_of(folder) - size
        mine, anchor = ((b - a) / took * 100 for a, b in zip(before, after))
        rss = rss_mib(recorder.pid), rss_mib(sweep.pid)
    finally:
        os.killpg(load.pid, signal.SIGKILL)
        sweep.kill()
        recorder.terminate()
        recorder.wait()
    own = read_node(folder).tables["recorder"].values
    sweep_ms = statistics.median(own["sweep_us"]) / 1000
    print(
        f"{count:4} processes   recorder {mine:5.2f} % of a core   psutil {anchor:5.2f} %   ratio {mine / anchor:5.2f}"
        f"   RSS {rss[0]:.1f} MiB (psutil's {rss[1]:.1f})   {grown / took / (count + 1):5.1f} bytes a process and tick"
        f"   sweep {sweep_ms:.1f} ms",
        flush=True,
    )


def measure(target: subprocess.Popen[str], ms: int) -> list[int]:
    """p50, p99, p99.9, the longest (ns), and how many."""
    assert target.stdin is not None
    assert target.stdout is not None
    target.stdin.write(f"{ms}\n")
    target.stdin.flush()
    return [int(word) for word in target.stdout.readline().split()]


def latency(base: Path, rounds: int) -> None:
    """The target's mmap latency: medians of the rounds, and ratios to the unwatched rounds."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print("mmap latency is left out: there is no C compiler")
        return
    (base / "target.c").write_text(TARGET)
    subprocess.run([compiler, "-O2", "-o", str(base / "target"), str(base / "target.c")], check=True)
    target = start(str(base / "target"), "1024")
    found: dict[str, list[list[int]]] = {"unwatched": [], "1 Hz": [], "10 Hz": []}
    try:
        for index in range(rounds):
            for name, interval_s in (("unwatched", 0.0), ("1 Hz", 1.0), ("10 Hz", 0.1)):
                recorder = watch(base / f"latency-{index}-{name}", target.pid, interval_s) if interval_s else None
                time.sleep(1.0)  # the recorder's start is not what is measured
                found[name].append(measure(target, 2000))
                if recorder is not None:
                    recorder.terminate()
                    recorder.wait()
            print(f"mmap latency: round {index + 1} of {rounds}", end="\r", file=sys.stderr, flush=True)
    finally:
        target.kill()
    anchor = [statistics.median(row[column] for row in found["unwatched"]) for column in range(4)]
    print(f"\nmmap, touch, munmap of a page beside 1 GiB, {rounds} rounds of 2 s: median (ratio; least..most)")
    for name, rows in found.items():
        figures = [statistics.median(row[column] for row in rows) for column in range(4)]
        spread = [f"{min(row[column] for row in rows)}..{max(row[column] for row in rows)}" for column in range(3)]
        words = (
            f"{label} {figure:.0f} ns ({figure / base:.3f}; {around})"
            for label, figure, base, around in zip(("p50", "p99", "p99.9"), figures, anchor, spread)
        )
        print(f"  {name:10} {'   '.join(words)}   longest {figures[3] / 1000:.0f} us")


def main() -> None:
    """Prints the cost for each number of processes, and the latency."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 40.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 7
    with tempfile.TemporaryDirectory() as name:
        for count in list(map(int, sys.argv[3:])) or COUNTS:
            overhead(Path(name), count, seconds)
        if rounds:
            latency(Path(name), rounds)


if __name__ == "__main__":
    main()
