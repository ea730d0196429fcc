"""`doctor analyze --ray`: three raylets against one reading here, and 1,000 nodes by what one of them costs.

`python -m tests.bench.cluster [--write]`; the corpus is corpus.py's. Three real raylets on this machine have a gigabyte each in their own
session's folder; the same three folders are read here, in turn, on the same two cores. For 1,000 nodes one node's reading of 5 GB is
measured (seconds, memory, bytes that travel), and its answer is then taken 1,000 times by the asking side, each under a host and with
times of its own; what is not measured is Ray's own work with 1,000 nodes.
"""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from rlhfdoctor.core.cluster import share_of_events
from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.file_read import FileRead
from rlhfdoctor.core.node_logs import NodeLogs, NodeOrder
from rlhfdoctor.core.session import Session
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.read import Reading
from rlhfdoctor.logs.window import Window
from rlhfdoctor.types import Gap
from tests.bench.corpus import write
from tests.bench.speed import RUNS, doctor, pair, ratio, run, shown
from tests.bench.table import Table
from tests.live.test_cluster_logs import CLUSTER
from tests.live.test_watch import environment

RESULTS = Path(__file__).with_name("CLUSTER.md")
NODES = 1000
NODE_MEGABYTES = 5000


@contextmanager
def three_raylets(home: Path) -> Iterator[tuple[str, list[Path]]]:
    """The address, and the folders of three raylets."""
    command = [sys.executable, "-c", CLUSTER, str(home)]
    with subprocess.Popen(command, env=environment(RAY_worker_niceness="0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, _, folders, _ = next(json.loads(line) for line in process.stdout if line.startswith("["))
        yield address, list(map(Path, folders))
        process.communicate("\n", timeout=60)


class Copies:
    """A node's answer, as if many nodes had given it."""

    names = ("copies",)

    def __init__(self, answer: bytes, count: int) -> None:
        self._answer, self._count = answer, count

    def __enter__(self) -> Copies:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read(self, _gaps: list[Gap], _window: Window) -> Iterator[tuple[Source, Reading | None]]:
        """Each file of each node."""
        for number in range(self._count):
            host = f"10.{number // 250}.0.{number % 250}"
            files: list[FileRead] = pickle.loads(self._answer)
            for file in files:
                name = file.name.replace("node", f"{host}-abcdef", 1)
                events = [
                    replace(e, origin=replace(e.origin, file=name, host=host), time=None if e.time is None else e.time + number / 1000)
                    for e in file.reading.events
                ]
                reading = replace(file.reading, events=events)
                yield Source(name, lambda: iter(()), reading.byte_count, file.modified), reading

    def missing(self, _events: object) -> tuple[Gap, ...]:
        """None of them is gone."""
        return ()


def read_node(folder: Path) -> tuple[float, bytes]:
    """Seconds of one node's reading on one core, and its answer as it travels."""
    order = NodeOrder(
        node="node", host="10.0.0.1", folder=str(folder), kernel_since_s=None, shared=(), window=Window(), utc_offset_s=0, cores=1, most_events=share_of_events(NODES)
    )
    os.sched_setaffinity(0, {0})
    start = time.perf_counter()
    files = NodeLogs().read(order)
    return time.perf_counter() - start, pickle.dumps(files)


def judge(answer: bytes, count: int) -> tuple[float, float, int, float]:
    """Seconds of taking and of judging many nodes' answers, how many events they are, peak memory in MiB; in a process of its own."""
    there, here = os.pipe()
    if os.fork() == 0:
        start = time.perf_counter()
        with Session([], elsewhere=Copies(answer, count)) as session:
            taken = time.perf_counter()
            make_incident(session)
            said = [taken - start, time.perf_counter() - taken, len(session.events), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]
        os.write(here, json.dumps(said).encode())
        os._exit(0)
    os.close(here)
    with os.fdopen(there) as pipe:
        found = json.load(pipe)
    os.wait()
    return found[0], found[1], found[2], found[3]


def main() -> int:
    """Measures all of it and prints the table."""
    table = Table()
    add = table.add
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER", "/tmp")) as name:
        home = Path(name)
        with three_raylets(home) as (address, folders):
            for number, folder in enumerate(folders):
                write(folder, 1000, number)
            words = list(map(str, folders))
            run(doctor("analyze", *words), "0,1")
            there, here = pair(lambda: run(doctor("analyze", "--ray", address), "0,1"), lambda: run(doctor("analyze", *words), "0,1"))
            add("three raylets with 1 GB each / one reading of the 3 GB here, two cores", ratio(there, here), "1.15 x")
            add("seconds of the first", shown([s for s, _ in there]))
            add("memory of the asking side", shown([kib / 1024 for _, kib in there], "MiB"))
        shutil.rmtree(home / "0"), shutil.rmtree(home / "1"), shutil.rmtree(home / "2")
        large = write(home / "node", NODE_MEGABYTES)
        nodes = [read_node(large) for _ in range(3)]
        answer = nodes[0][1]
        add(f"one node of {NODES}: {NODE_MEGABYTES / 1000:.0f} GB on one core", shown([s for s, _ in nodes]))
        add("what travels from it", f"{len(answer) / 1024:.0f} KiB")
        for count in (1, 10, 100, NODES):
            taken, judged, events, peak = judge(answer, count)
            add(f"{count} such answers", f"{events} events; {taken:.1f} s to take them, {judged:.1f} s to judge; {peak:.0f} MiB")
        seconds = statistics.median(s for s, _ in nodes) + taken + judged
        add(f"{NODES} nodes of {NODE_MEGABYTES / 1000:.0f} GB, on paper: a node's reading, then the answers", f"{seconds:.0f} s")
    if "--write" in sys.argv:
        text = (__doc__ or "").partition("\n\n")[2].strip()
        table.write(RESULTS, f"# A cluster\n\n{text}\nMedians of {RUNS} paired runs, the least and the most beside.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
