"""What is left of a trace when its recorder is killed: kernel OOM kills, kill -9 at random moments, truncation.

python tests/bench/survive.py [OOM_KILLS] [KILLS]        (50 and 200; the first needs root and cgroup v1)
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.start import start_recorder
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import KEY, SAMPLE, Frame, Sample, unpack
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import SUFFIX, Writer

MEMORY = Path("/sys/fs/cgroup/memory")
LIMIT_BYTES = 300 << 20
HOG = "blocks = []\nwhile True:\n    blocks.append(bytearray(b'x') * (4 << 20))\n"
JOIN = "import os, sys\nopen(sys.argv[1], 'w').write('0')\nos.execv(sys.executable, [sys.executable, *sys.argv[2:]])\n"
START = """
import sys
from pathlib import Path
from rlhfdoctor.record.recorder_config import read_config
from rlhfdoctor.record.start import start_recorder
start_recorder(Path(sys.argv[1]), read_config(sys.argv[1]))
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was found after one kill."""

    readable: bool
    samples: int
    lost: int
    """Samples that were taken and cannot be read: missing numbers, what a reader saw before, a torn frame."""
    survived: bool
    """The recorder was not the one that was killed."""
    behind_s: float = 0.0
    """From the last sample to the end of the recorder."""
    stall_s: float = 0.0
    """Longest time without a sample."""


def sequences(folder: Path) -> list[int]:
    """The numbers that the recorder gave the samples that can be read."""
    found: list[int] = []
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        found += [item.sequence for item in SegmentReader(str(path)).read([], final=True) if isinstance(item, Sample)]
    return found


def judge(folder: Path, seen: int, survived: bool, ended: float) -> Outcome:
    """Reads what is left; `seen` samples were read by someone before the kill."""
    try:
        node = read_node(folder)
    except Exception as error:  # any error at all is what must not happen
        print(f"\n{folder}: {type(error).__name__}: {error}", file=sys.stderr)
        return Outcome(False, 0, seen, survived)
    numbers = sequences(folder)
    whole = max([seen, *numbers])
    stamps = sorted(node.times_ns)
    stall = max((later - earlier for earlier, later in zip(stamps, stamps[1:])), default=0) / 1e9  # noqa: RUF007
    behind = 0.0 if survived or not stamps else ended - stamps[-1] / 1e9
    return Outcome(True, len(numbers), whole - len(numbers) + len(node.gaps), survived, behind, stall)


def kill_at(delay_s: float, folder: Path, interval_s: float = 0.05) -> Outcome:
    """Records a command, kills the recorder after a time, reads what is left."""
    (folder / "marks").mkdir(parents=True)
    recorder = start_recorder(folder, RecorderConfig(name="kill", command=("sleep", "2"), interval_s=interval_s))
    time.sleep(delay_s)
    seen = sum(isinstance(item, Sample) for item, _ in Follower(str(folder)).read())
    ended = time.time()
    recorder.send_signal(signal.SIGKILL)
    recorder.wait()
    return judge(folder, seen, False, ended)


@contextmanager
def limited(name: str, limit_bytes: int = LIMIT_BYTES) -> Iterator[Path]:
    """A memory cgroup with a limit; what still runs in it in the end is killed."""
    path = MEMORY / f"rlhfdoctor-{name}-{os.getpid()}"
    path.mkdir()
    try:
        (path / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield path
    finally:
        for _ in range(100):
            for pid in (path / "cgroup.procs").read_text().split():
                os.kill(int(pid), signal.SIGKILL)
            try:
                path.rmdir()
                break
            except OSError:
                time.sleep(0.05)


def kill_by_kernel(
    folder: Path, cgroup: Path, *, together: bool, interval_s: float = 0.05, rest_bytes: int = 0
) -> Outcome:
    """Records a command that grows until the kernel kills it; the recorder lives in the same cgroup.

    Args:
        together: the kernel is to take the recorder first, and the command after it.
        rest_bytes: the command stands still at this size for some seconds before it grows on.
    """
    (folder / "marks").mkdir(parents=True)
    rest = f"first = bytearray(b'x') * {rest_bytes}\ntime.sleep(3)\n" if rest_bytes else ""
    hog = f"import time; time.sleep(0.3)\n{rest}{HOG}"
    config = RecorderConfig(name="oom", command=(sys.executable, "-c", hog), interval_s=interval_s)
    (folder / "orders.json").write_text(
        json.dumps({"name": config.name, "command": config.command, "interval_s": interval_s})
    )
    words = [sys.executable, "-c", JOIN, str(cgroup / "cgroup.procs"), "-c", START, str(folder)]
    subprocess.run(words, check=True, cwd=Path(__file__).resolve().parent.parent.parent)
    follower, seen, ready = Follower(str(folder)), 0, False
    while not ready:
        items = [item for item, _ in follower.read()]
        seen += sum(isinstance(item, Sample) for item in items)
        ready = any(isinstance(item, dict) and item["kind"] == "recorder.start" for item in items)
        time.sleep(0.005)
    recorder = int(follower.header["pid"])
    if together:  # by now the recorder has protected itself
        expose(recorder)
    while running(recorder):
        seen += sum(isinstance(item, Sample) for item, _ in follower.read())
        time.sleep(0.01)
    ended = time.time()
    return judge(folder, seen, ended_by_itself(folder), ended)


def expose(pid: int) -> None:
    """Makes a process the first that the kernel takes."""
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text("1000")
    except OSError:
        pass  # it is gone already


def running(pid: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ended_by_itself(folder: Path) -> bool:
    """Whether the recorder's last word is in the trace."""
    try:
        return read_node(folder).events[-1]["kind"] == "recorder.end"
    except Exception:
        return False


def small_store(folder: Path, samples: int = 12) -> Path:
    """A segment with some samples."""
    writer = Writer(str(folder), {"node": "x"})
    for index in range(samples):
        writer.sample(index * 10**9, index * 10**9, {"recorder": ([0], [[index * column] for column in range(7)])})
        writer.event({"kind": "mark", "wall_ns": index * 10**9, "mono_ns": 0})
    writer.close()
    return next(folder.glob(f"*{SUFFIX}"))


def cut_everywhere(path: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Cuts a segment off at each byte and reads it."""
    data = path.read_bytes()
    ends = [item.end for item in unpack(data) if isinstance(item, Frame) and item.kind in (KEY, SAMPLE)]
    begins = [item.offset for item in unpack(data) if isinstance(item, Frame) and item.kind in (KEY, SAMPLE)]
    found = []
    for size in range(len(data), -1, -1):
        os.truncate(path, size)
        try:
            count = len(read_node(path.parent).times_ns)
        except Exception as error:
            say(f"{size} bytes: {error}")
            found.append(Outcome(False, 0, 0, False))
            continue
        begun = sum(begin < size for begin in begins)
        found.append(Outcome(count == sum(end <= size for end in ends), count, begun - count, False))
    return found


def flip_everywhere(path: Path, say: Callable[[str], None]) -> list[Outcome]:
    """Flips one bit of each byte of a segment in turn and reads it: what is lost of its samples, and of nothing else."""
    data = path.read_bytes()
    whole = len(read_node(path.parent).times_ns)
    found = []
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << place % 8
        path.write_bytes(flipped)
        try:
            count = len(read_node(path.parent).times_ns)
        except Exception as error:
            say(f"bit {place % 8} of byte {place}: {error}")
            found.append(Outcome(False, 0, 0, False))
            continue
        found.append(Outcome(True, count, whole - count, False))
    path.write_bytes(data)
    return found


def show(name: str, found: list[Outcome]) -> None:
    """One line of the table."""
    good = [outcome for outcome in found if outcome.readable]
    behind = max((outcome.behind_s for outcome in good), default=0.0)
    stall = max((outcome.stall_s for outcome in good), default=0.0)
    print(
        f"{name:34} {len(found):6} {len(found) - len(good):11} {max(outcome.lost for outcome in found):12}"
        f" {sum(outcome.samples for outcome in found):8} {sum(outcome.survived for outcome in found):9}"
        f" {behind * 1e3:10.0f} {stall * 1e3:10.0f}"
    )


def main() -> None:
    """Runs all of it and prints a table."""
    oom_kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    table: dict[str, list[Outcome]] = {}

    def say(text: str) -> None:
        print(f"{text:60}", end="\r", file=sys.stderr, flush=True)

    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        if os.geteuid() == 0 and (MEMORY / "memory.limit_in_bytes").exists():
            for title, together in (
                ("OOM kill, recorder in the cgroup", False),
                ("OOM kill of recorder and job", True),
            ):
                table[title] = []
                for index in range(oom_kills):
                    with limited(f"survive-{index}") as cgroup:
                        table[title].append(kill_by_kernel(base / f"{together}-{index}", cgroup, together=together))
                    say(f"{title}: {index + 1} of {oom_kills}")
        else:
            print("OOM kills are left out: they need root and the cgroup v1 memory controller")
        random.seed(7)
        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(kill_at, random.uniform(0.0, 0.8), base / f"kill-{index}") for index in range(kills)]
            table["kill -9 at a random moment"] = []
            for index, job in enumerate(jobs):
                table["kill -9 at a random moment"].append(job.result())
                say(f"kill -9: {index + 1} of {kills}")
        (base / "cut").mkdir()
        store = small_store(base / "cut")
        table["a bit of every byte flipped"] = flip_everywhere(store, say)
        table["cut off at every byte"] = cut_everywhere(store, say)
    print(
        f"{'':34} {'runs':>6} {'unreadable':>11} {'most lost':>12} {'samples':>8} {'survived':>9}"
        f" {'behind ms':>10} {'stall ms':>10}"
    )
    for title, found in table.items():
        show(title, found)


if __name__ == "__main__":
    main()
