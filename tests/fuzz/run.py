"""Fuzzes every surface: `make fuzz` (python -m tests.fuzz.run [--seconds 600] [--only NAME] [--seed N]).

Each surface gets an equal share of the time in a process of its own, with at most 4 GiB of address space and 20 s of
processor time an input. Inputs are found by coverage (atheris, where a wheel of it is installed) or by mutating the
seeds. A finding is written to `.fuzz/NAME/`; `python -m tests.fuzz.run --input .fuzz/NAME/FILE` shows it again, and
becomes a test where the file is copied to `tests/fuzz/found/NAME/`.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import re
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
FOUND = Path(__file__).resolve().parent / "found"
OUT = ROOT / ".fuzz"
ADDRESS_BYTES = 4 << 30
INPUT_S = 20
_PIECES = (b"\0", b"\xff", b"\n", b"\r", b"9" * 40, b" " * 100, b"%s", b"\x1b[", b"{" * 50, b"NaN", b"1e999", "²".encode(), "密码".encode())


class TooLong(Exception):
    """An input took more than `INPUT_S` of processor time."""


def guarded(check: Callable[[bytes], None], data: bytes) -> None:
    """One input with its time limit."""

    def stop(*_: object) -> None:
        raise TooLong(f"{len(data)} bytes took more than {INPUT_S} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, INPUT_S)
    try:
        check(data)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def mutated(data: bytes, others: list[bytes], chance: random.Random, length: int) -> bytes:
    """Some changes: bits, pieces that are cut, doubled, moved, taken from another input or known to be awkward."""
    text = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        place = chance.randrange(len(text) + 1)
        end = min(len(text), place + chance.choice((1, 2, 4, 8, 64, 512)))
        match chance.randrange(6):
            case 0 if text:
                text[place % len(text)] ^= 1 << chance.randrange(8)
            case 1:
                del text[place:end]
            case 2:
                text[place:place] = bytes(text[place:end]) * chance.choice((1, 3, 50))
            case 3:
                text[place:end] = chance.choice(_PIECES)
            case 4:
                other = chance.choice(others)
                start = chance.randrange(len(other) + 1)
                text[place:end] = other[start : start + chance.choice((4, 32, 256))]
            case _:
                text[place:end] = bytes(chance.randrange(256) for _ in range(end - place))
    return bytes(text[:length])


def inputs(seeds: list[bytes], chance: random.Random, length: int) -> Iterator[bytes]:
    """The seeds, then what becomes of them; what was changed is changed again."""
    yield from seeds
    pool = [*seeds]
    while True:
        fresh = mutated(chance.choice(pool), pool, chance, length)
        if chance.random() < 0.05:
            pool.append(fresh)
            del pool[len(seeds) : -200]
        yield fresh


def fuzz(name: str, seconds: float, seed: int) -> int:
    """Fuzzes one surface in this process; 1 if there is a finding. Prints how many inputs were tried."""
    os.environ["RLHFDOCTOR_DEBUG"] = "1"
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    guide = coverage()
    if guide is None:
        from tests.fuzz.surfaces import SURFACES
    else:
        with guide.instrument_imports(include=["rlhfdoctor"]):
            from tests.fuzz.surfaces import SURFACES
    one = SURFACES[name]
    tried, end, chance = 0, time.monotonic() + seconds, random.Random(seed)

    def check(data: bytes) -> None:
        nonlocal tried
        tried += 1
        try:
            guarded(one.check, data)
        except Exception:
            keep(name, data)
            traceback.print_exc()
            print(f"tried {tried}", flush=True)
            os._exit(1)
        if time.monotonic() > end:
            print(f"tried {tried}", flush=True)
            os._exit(0)

    if guide is None:
        for data in inputs(one.seeds(), chance, one.length):
            check(data)
    corpus = OUT / name / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    for data in one.seeds():
        (corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    options = [f"-seed={seed}", f"-max_len={one.length}", f"-artifact_prefix={OUT / name}/", "-rss_limit_mb=0", "-timeout=60"]
    guide.Setup([sys.argv[0], *options, str(corpus)], check)
    guide.Fuzz()
    return 0


def coverage() -> ModuleType | None:
    """The guide by coverage, where it is installed."""
    try:
        import atheris
    except ImportError:
        return None
    return atheris


def keep(name: str, data: bytes) -> Path:
    """Writes a finding."""
    path = OUT / name / hashlib.sha256(data).hexdigest()[:16]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    print(f"finding: python -m tests.fuzz.run --input {path}", flush=True)
    return path


def each(names: list[str], seconds: float, seed: int) -> int:
    """All surfaces, some at once; the table."""
    at_once = max(len(os.sched_getaffinity(0)), 1)
    share = seconds * at_once / len(names)

    def work(name: str) -> tuple[str, int, str]:
        words = [sys.executable, "-m", "tests.fuzz.run", "--surface", name, "--seconds", str(share), "--seed", str(seed)]
        done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT, errors="replace")
        print(f"{name}: {'clean' if done.returncode == 0 else 'FINDING'}", file=sys.stderr, flush=True)
        return name, done.returncode, done.stdout + done.stderr

    print(f"seed {seed}; {share:.0f} s a surface; {'guided by coverage (atheris)' if coverage() else 'mutations of seeds (atheris is not installed)'}")
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(work, names))
    for name, code, text in found:
        tried = re.findall(r"^tried (\d+)", text, re.M)
        covered = re.findall(r"cov: (\d+)", text)
        print(f"{name:20} {tried[-1] if tried else '?':>9} inputs {'coverage ' + covered[-1] if covered else '':16} {'clean' if code == 0 else 'FINDING'}")
        if code:
            print(text[-3000:])
    return int(any(code for _, code, _ in found))


def main() -> int:
    """Parses the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=600, help="for all surfaces together")
    parser.add_argument("--only", action="append", help="a surface; may be repeated")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 31))
    parser.add_argument("--surface", help=argparse.SUPPRESS)
    parser.add_argument("--input", type=Path, help="a finding, shown again")
    given = parser.parse_args()
    if given.surface:
        return fuzz(given.surface, given.seconds, given.seed)
    from tests.fuzz.surfaces import SURFACES

    if given.input:
        os.environ["RLHFDOCTOR_DEBUG"] = "1"
        guarded(SURFACES[given.input.resolve().parent.name].check, given.input.read_bytes())
        print("clean")
        return 0
    return each(given.only or list(SURFACES), given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
