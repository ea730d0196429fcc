"""A Ray session folder of any size, mixed after what real ones hold: `python -m tests.bench.corpus FOLDER MEGABYTES`.

State dumps, vLLM's engine statistics, verl's step metrics, bars that are redrawn with carriage returns, NCCL INFO, warnings with
tracebacks, Ray's JSON events; one line of 10,000 is a failure. The same arguments give the same bytes.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from rlhfdoctor.logs.events import PATTERNS

FAILURES = tuple(p.sample for p in PATTERNS if p.kind.scope in ("kernel", "ray", "torch", "nccl", "vllm", "deepspeed"))
EVERY = 10_000
"""Lines for one failure."""
CHUNK_BYTES = 4_000_000
"""Text that is made once for each kind of file and then repeated behind a line that says which repetition it is."""
SHARES = {
    "raylet.out": 0.10,
    "debug_state.txt": 0.08,
    "events/event_RAYLET.log": 0.06,
    "worker-{id}-01000000-{pid}.out": 0.28,
    "worker-{id}-01000000-{pid}.err": 0.18,
    "job-driver-raysubmit.log": 0.30,
}
"""Kinds of files, and their share of the bytes."""
MOST_BYTES = 100_000_000
"""Of one file; Ray rotates at such a size."""
Lines = Iterator[str]


def stamp(second: int) -> str:
    """A time of the day as logging prints it."""
    return f"2026-03-02 {second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def raylet(dice: random.Random) -> Lines:
    """Glog-like lines of Ray's daemon."""
    for second in range(10**9):
        yield f"[{stamp(second)},{dice.randrange(1000):03d} I 1893 1893] (raylet) node_manager.cc:{dice.randrange(400, 999)}: Sending a lease reply, queue {dice.randrange(90)}, spillback {dice.randrange(4)}"
        if not second % 7:
            yield f"[{stamp(second)},{dice.randrange(1000):03d} I 1893 1921] (raylet) object_store.cc:35: Object store current usage {dice.randrange(90) / 10} / 9.3 GB."


def state(dice: random.Random) -> Lines:
    """What the raylet dumps every ten seconds."""
    for second in range(0, 10**9, 10):
        yield f"[{stamp(second)},000 I 1893 1893] (raylet) node_manager.cc:517: [state-dump] NodeManager:"
        for name in ("InitialConfigResources", "ClusterResources", "WorkerPool", "PullManager", "ObjectManager"):
            yield f"[state-dump] {name}: {{CPU: {dice.randrange(640000)}, GPU: {dice.randrange(80000)}, memory: {dice.getrandbits(40)}, object_store_memory: {dice.getrandbits(38)}}}"
        for index in range(30):
            yield f"[state-dump] \tNodeManagerService.grpc_server.Method{index} - {dice.randrange(10**6)} total ({dice.randrange(4)} active), Execution time: mean = {dice.random():.3f} ms, total = {dice.random() * 100:.3f} s"


def events(dice: random.Random) -> Lines:
    """Ray's JSON events."""
    for second in range(10**9):
        yield json.dumps(
            {
                "timestamp": 1_772_000_000 + second,
                "severity": "INFO",
                "label": "",
                "event_id": f"{dice.getrandbits(144):036x}",
                "source_type": "RAYLET",
                "message": f"worker {dice.getrandbits(112):028x} is idle for {dice.randrange(900)} s",
                "host_name": "node-3",
                "pid": "1893",
            }
        )


def worker(dice: random.Random) -> Lines:
    """Standard output of a worker: engine statistics, NCCL, DeepSpeed."""
    for second in range(10**9):
        yield (
            f"INFO 03-02 {stamp(second)[11:]} [loggers.py:111] Engine 000: Avg prompt throughput: {dice.random() * 9000:.1f} tokens/s, Avg generation throughput: {dice.random() * 9000:.1f} tokens/s, "
            f"Running: {dice.randrange(256)} reqs, Waiting: {dice.randrange(9)} reqs, GPU KV cache usage: {dice.random() * 90:.1f}%, Prefix cache hit rate: {dice.random() * 90:.1f}%"
        )
        for channel in range(3):
            yield f"node-3:{7000 + channel}:{7100 + channel} [{channel}] NCCL INFO Channel {dice.randrange(32):02d}/0 : {channel}[{channel}] -> {channel + 1}[{channel + 1}] via P2P/CUMEM/read"
        if not second % 5:
            yield f"[{stamp(second)},{dice.randrange(1000):03d}] [INFO] [logging.py:128:log_dist] [Rank 0] step={second // 5}, skipped=0, lr=[1e-06], mom=[(0.9, 0.95)]"
        if not second % 40:
            yield f"[{stamp(second)},117] [INFO] [stage3.py:1944:step] Offloading states took {dice.random():.3f} s"


def errors(dice: random.Random) -> Lines:
    """Standard error of a worker: bars and warnings with tracebacks."""
    for step in range(10**9):
        yield "\r".join(
            f"Processed prompts: {done:3d}%|{'#' * (done // 10):<10}| {done * 10}/1024 [00:{done // 2:02d}<00:{50 - done // 2:02d}, {dice.random() * 30:.2f}it/s]"
            for done in range(0, 101, 10)
        )
        if not step % 12:
            yield f"/usr/lib/python3.11/site-packages/torch/utils/checkpoint.py:{dice.randrange(90, 999)}: UserWarning: the default value of use_reentrant will change"
            yield "Traceback (most recent call last):"
            for depth in range(6):
                yield f'  File "/usr/lib/python3.11/site-packages/verl/workers/module_{depth}.py", line {dice.randrange(900)}, in method_{depth}'
                yield f"    result = self.call_{depth}(batch, index={dice.randrange(99)})"
            yield f"ValueError: cannot parse answer {dice.getrandbits(64):x}"


def driver(dice: random.Random) -> Lines:
    """What the job prints: steps with metrics, and lines of its actors."""
    names = ("actor/pg_loss", "actor/kl_loss", "actor/grad_norm", "critic/vf_loss", "critic/rewards/mean", "response_length/mean", "perf/max_memory_allocated_gb", "timing_s/gen", "timing_s/update_actor")
    for step in range(10**9):
        metrics = " - ".join(f"{name}:{dice.random() * 10:.3f}" for name in names for _ in (0,))
        yield f"(TaskRunner pid=4417) step:{step} - global_seqlen/min:{dice.randrange(9000)} - {metrics}"
        for rank in range(8):
            yield f"(WorkerDict pid={5000 + rank}, ip=10.0.0.{rank % 4}) [rank{rank}] INFO:{stamp(step * 60)}:[Rank {rank}] micro batch {dice.randrange(64)} of 64, tokens {dice.randrange(8192)}, padding {dice.random():.3f}"
        yield f"\r(TaskRunner pid=4417) Training Progress: {step % 100:3d}%|{'#' * (step % 10):<10}| {step}/10000 [{step % 60:02d}:00<10:00, 61.{step % 10}s/it]"


KINDS: dict[str, Callable[[random.Random], Lines]] = dict(
    zip(SHARES, (raylet, state, events, worker, errors, driver), strict=True)
)


def chunk(kind: str, seed: int = 0) -> bytes:
    """A piece of such a file, with its failures."""
    dice = random.Random(f"{kind}{seed or ''}")
    text, size = [], 0
    for count, line in enumerate(KINDS[kind](dice), 1):
        if not count % EVERY:
            text.append(FAILURES[dice.randrange(len(FAILURES))])
        text.append(line)
        size += len(line) + 1
        if size > CHUNK_BYTES:
            break
    return ("\n".join(text) + "\n").encode()


def write(folder: Path, megabytes: int, seed: int = 0) -> Path:
    """The folder, with about that many million bytes; another seed gives other figures in as many lines."""
    logs = folder / "session_2026-03-02" / "logs"
    (logs / "events").mkdir(parents=True, exist_ok=True)
    for kind, share in SHARES.items():
        text = chunk(kind, seed)
        left, number = int(megabytes * 1_000_000 * share), 0
        while left > 0:
            number += 1
            name = kind.format(id=f"{number:056x}", pid=5000 + number)
            path = logs / (name if "{" in kind or number == 1 else f"{name}.{number - 1}")
            size = min(left, MOST_BYTES)
            with path.open("wb") as handle:
                while handle.tell() < size:
                    handle.write(b"# part %d of file %d\n" % (handle.tell() // len(text), number))
                    handle.write(text[: size - handle.tell()])
            left -= size
    return folder


if __name__ == "__main__":
    write(Path(sys.argv[1]), int(sys.argv[2]))
