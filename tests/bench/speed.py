"""Speed and memory of `doctor analyze` beside ripgrep's in the same run: `make speed` (python -m tests.bench.speed [--write]).

The corpus is corpus.py's. ripgrep (https://github.com/BurntSushi/ripgrep, found on PATH or by RG=/path/to/rg) looks for the same messages
with `--no-unicode --json -j1 -f`; characters beyond ASCII are given to it as bytes, since with Unicode on it takes minutes. Both get one core.
Every figure is the median of paired runs, with the least and the most; seconds are of this machine, ratios are what counts.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import zstandard

from rlhfdoctor.logs.events import PATTERNS, read_events
from rlhfdoctor.logs.open import find_sources
from rlhfdoctor.logs.scan import Scanner
from tests.bench.corpus import write
from tests.bench.day import write_day
from tests.bench.table import Table

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "tests" / "bench" / "RESULTS.md"
RUNS = 5
MANY = 1_000_000
CASES = sorted(path for path in (ROOT / "rules").glob("*/*/*") if path.is_dir() and path.parent.name in ("fires", "silent"))
LINES = 2_000_000
Runs = list[tuple[float, int]]
"""Seconds and peak memory in KiB of each run."""


def run(command: Sequence[str], cores: str = "0") -> tuple[float, int]:
    """Seconds and peak resident memory (KiB) of a command on these cores.

    Raises:
        CalledProcessError: it failed; 1 and 3 are verdicts, and 1 a search that found nothing.
    """
    start = time.perf_counter()
    with subprocess.Popen(["taskset", "-c", cores, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1, 3):
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, used.ru_maxrss


def pair(one: Callable[[], tuple[float, int]], other: Callable[[], tuple[float, int]], runs: int = RUNS) -> tuple[Runs, Runs]:
    """Both in turn."""
    found: tuple[Runs, Runs] = ([], [])
    for _ in range(runs):
        found[0].append(one())
        found[1].append(other())
    return found


def shown(values: Sequence[float], unit: str = "s") -> str:
    """Median, least and most."""
    return f"{statistics.median(values):.2f} {unit} ({min(values):.2f} to {max(values):.2f})"


def ratio(ones: Runs, others: Runs) -> str:
    """How many times as long the first of each pair took."""
    return shown([one[0] / other[0] for one, other in zip(ones, others)], "x")


def doctor(*words: str) -> list[str]:
    """The command as a user starts it."""
    return [str(Path(sys.executable).with_name("doctor")), *words]


def patterns_for_ripgrep(folder: Path) -> Path:
    """The expressions of all messages as ripgrep takes them."""
    plain = (re.sub(r"\?P<\w+>", "?:", pattern.regex) for pattern in PATTERNS)
    path = folder / "patterns.txt"
    path.write_text("".join("".join(c if c.isascii() else "".join(f"\\x{b:02x}" for b in c.encode()) for c in p) + "\n" for p in plain))
    return path


def first_pass(folder: Path) -> float:
    """Seconds of finding the places of all patterns in every file, and nothing else."""
    scanner = Scanner(PATTERNS)
    start = time.perf_counter()
    for source in find_sources([str(folder)], []):
        for _ in scanner.places(source.stream()):
            pass
    return time.perf_counter() - start


def with_hits(folder: Path, every: int) -> tuple[float, float]:
    """Seconds for two million lines with a hit in so many of them, and for as many without."""
    hit, line = b"step:12 - actor/lr:1e-06\n", b"nothing of note stands on this line of a log, which is as long as they are\n"
    seconds = []
    for first in (hit, line):
        path = folder / "hits.log"
        with path.open("wb") as handle:
            for _ in range(LINES // every):
                handle.write(first + line * (every - 1))
        start = time.perf_counter()
        for source in find_sources([str(path)], []):
            for _ in read_events(source, Scanner(PATTERNS), []):
                pass
        seconds.append(time.perf_counter() - start)
        path.unlink()
    return seconds[0], seconds[1]


def main() -> int:
    """Measures all of it and prints the table."""
    rg = os.environ.get("RG") or shutil.which("rg")
    if rg is None:
        sys.stderr.write("ripgrep is not installed: give its path as RG\n")
        return 1
    table = Table()
    add = table.add
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        patterns = str(patterns_for_ripgrep(folder))
        search = [rg, "--no-unicode", "--json", "-j1", "-f", patterns]
        small, large = write(folder / "small", 100), write(folder / "large", 1000)
        run(doctor("analyze", str(large)))  # compiles the patterns, fills the page cache
        found, mine = pair(lambda: run([*search, str(large)]), lambda: run(doctor("analyze", str(large))))
        add("ripgrep's time / `analyze`'s, 1 GB, one core", f"{ratio(found, mine)}; {shown([s for s, _ in mine])}", "2 x")
        add("peak memory of it", shown([kib / 1024 for _, kib in mine], "MiB"), "150 MiB")
        passes = [first_pass(large) for _ in range(RUNS)]
        add("ripgrep's time / the first pass alone", shown([statistics.median(s for s, _ in found) / s for s in passes], "x"), "3 x")
        one, two = pair(lambda: run(doctor("analyze", str(large))), lambda: run(doctor("analyze", str(large)), "0,1"))
        add("one core's time / two cores'", ratio(one, two), "1.7 x")
        tenth, whole = pair(lambda: run(doctor("analyze", str(small))), lambda: run(doctor("analyze", str(large))))
        add("seconds a GB, 1 GB / 0.1 GB", shown([b[0] / 10 / a[0] for a, b in zip(tenth, whole)], "x"), "0.85 to 1.15 x")
        if "--ten" in sys.argv:
            shutil.rmtree(small)
            huge = write(folder / "huge", 10_000)
            ten, one = pair(lambda: run(doctor("analyze", str(huge))), lambda: run(doctor("analyze", str(large))), 3)
            add("seconds a GB, 10 GB / 1 GB, 3 runs", shown([a[0] / 10 / b[0] for a, b in zip(ten, one)], "x"), "0.85 to 1.15 x")
            add("peak memory at 10 GB", shown([kib / 1024 for _, kib in ten], "MiB"), "150 MiB")
            shutil.rmtree(huge)
        for ending, pack in (("gz", gzip.compress), ("zst", zstandard.ZstdCompressor().compress)):
            packed = folder / ending
            packed.mkdir()
            for path in sorted(large.rglob("*.*")):
                if path.is_file() and path.stat().st_size < 70_000_000:
                    (packed / f"{path.name}.{ending}").write_bytes(pack(path.read_bytes()))
            found, mine = pair(lambda at=str(packed): run([*search, "-z", at]), lambda at=str(packed): run(doctor("analyze", at)), 3)  # type: ignore[misc]
            add(f"`rg -z`'s time / `analyze`'s, .{ending}, 3 runs", ratio(found, mine), "3 x")
        million = folder / "million.log"
        million.write_bytes(b"step:12 - actor/pg_loss:0.1 - actor/lr:1e-06\n" * MANY)
        add("a million hits of one pattern", shown([run(doctor("analyze", str(million)))[0] for _ in range(RUNS)]), "3 s")
        for every in (1, 100, 10_000, 1_000_000):
            pairs = [with_hits(folder, every) for _ in range(RUNS)]
            cost = shown([(one - other) / (LINES // every) * 1e6 for one, other in pairs], "µs") + "; " if every <= 100 else ""
            add(f"a hit, one in {every:,} lines", f"{cost}{shown([one / other for one, other in pairs], 'x')} the time without", "-")
        day = write_day(folder / "day")
        pages = [run(doctor("report", str(day), "--out", str(folder / "day.html"))) for _ in range(RUNS)]
        add("report of a day of 64 processes", shown([s for s, _ in pages]), "4 s")
        add("peak memory of it", shown([kib / 1024 for _, kib in pages], "MiB"), "-")
        runs = [str(folder / f"run-{copy}" / case.parent.parent.name / case.parent.name / case.name) for copy in range(4) for case in CASES]
        for target, case in zip(runs, CASES * 4):
            shutil.copytree(case, target)
        fleets = [run(doctor("analyze", "--each", *runs, "--out", str(folder / "fleet.jsonl")), "0,1") for _ in range(RUNS)]
        add(f"fleet of {len(runs)} small incidents, two cores", shown([len(runs) / s for s, _ in fleets], "a second"), "50")
    sample = str(ROOT / "samples" / "openrlhf-save-kill" / "run")
    add("small folder, from the shell", shown([run(doctor("analyze", sample))[0] for _ in range(2 * RUNS)]), "0.25 s")
    add("`--help`", shown([run(doctor("--help"))[0] for _ in range(2 * RUNS)]), "0.1 s")
    add("`python -c pass`, the anchor of both", shown([run([sys.executable, "-c", "pass"])[0] for _ in range(2 * RUNS)]), "-")
    if "--write" in sys.argv:
        head = (__doc__ or "").partition("\n\n")[2].strip()
        table.write(RESULTS, f"# Speed\n\n`make speed`; {len(PATTERNS)} patterns.\n\n{head}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
