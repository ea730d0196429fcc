"""Speed of reading against `grep -c ''` (a plain pass over the bytes) in one run: ratios, not absolute speeds.

python tests/bench/scan.py [MEGABYTES]
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rlhfdoctor.core.session import Session
from rlhfdoctor.logs.events import PATTERNS

LINE = "(ActorModelRayActor pid={pid}, ip=10.0.0.{ip}) [2025-04-21 18:02:32,{ms:03d}] [INFO] [logging.py:128:log_dist] [Rank {rank}] step={step} lr=1e-6 loss=0.{ms}\n"


def write_log(path: Path, megabytes: int) -> None:
    """A log of that size, with every pattern's sample line once per 25 MB."""
    block = "".join(LINE.format(pid=i % 9999, ip=i % 9, ms=i % 1000, rank=i % 8, step=i) for i in range(200_000))
    with path.open("w") as handle:
        while handle.tell() < megabytes * 1_000_000:
            handle.write(block)
            handle.writelines(pattern.sample + "\n" for pattern in PATTERNS)


def clock(action: object) -> float:
    """Seconds of the best of three."""
    times = []
    for _ in range(3):
        start = time.perf_counter()
        action()  # type: ignore[operator]
        times.append(time.perf_counter() - start)
    return min(times)


def read_all(path: Path, engine: str = "auto") -> None:
    """One pass over a log."""
    with Session([str(path)], engine=engine):
        pass


def main() -> None:
    """Prints MB/s of both engines and of the anchor, their ratio, and the peak memory."""
    megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "driver.log")
        write_log(path, megabytes)
        anchor = clock(lambda: subprocess.run(["grep", "-c", "", str(path)], check=True, capture_output=True))
        mine = clock(lambda: read_all(path))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"grep -c ''      {megabytes / anchor:8.0f} MB/s")
        print(
            f"read, hyperscan {megabytes / mine:8.0f} MB/s   {mine / anchor:6.1f} x the anchor's time   peak {peak:.0f} MiB"
        )
        write_log(path, megabytes // 10)
        small = clock(lambda: subprocess.run(["grep", "-c", "", str(path)], check=True, capture_output=True))
        slow = clock(lambda: read_all(path, "re"))
        print(f"read, re        {megabytes / 10 / slow:8.0f} MB/s   {slow / small:6.1f} x the anchor's time")


if __name__ == "__main__":
    main()
