"""A real memory cgroup and a child that allocates in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

LIMIT_BYTES = 96 << 20
HOG = """
import sys
kept = []
print("up", flush=True)
for line in sys.stdin:
    kept.append(b"x" * (int(line) << 20))
    print("grown", flush=True)
"""


def remove(path: Path) -> None:
    """Kills what is left in a cgroup and removes it."""
    for _ in range(100):
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        try:
            path.rmdir()
            return
        except OSError:
            time.sleep(0.05)


@pytest.fixture
def live_cgroup(kernel_alone: None) -> Iterator[Path]:
    """A child of the v1 memory controller with a limit of 96 MiB, removed afterwards; what is killed in it stands in everybody's kernel log."""
    path = Path("/sys/fs/cgroup/memory") / f"rlhfdoctor-test-{uuid.uuid4().hex}"
    path.mkdir()
    (path / "memory.limit_in_bytes").write_text(str(LIMIT_BYTES))
    with contextlib.suppress(OSError):  # where swap is accounted, it is limited too
        (path / "memory.memsw.limit_in_bytes").write_text(str(LIMIT_BYTES))
    yield path
    remove(path)


@pytest.fixture
def hog() -> Iterator[Callable[[Path], subprocess.Popen[str]]]:
    """Starts a child in a cgroup that allocates as many MiB as its input says."""
    children: list[subprocess.Popen[str]] = []

    def start(cgroup: Path) -> subprocess.Popen[str]:
        code = f"open('{cgroup}/cgroup.procs', 'w').write('0')\n{HOG}"
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        child.stdout.readline()
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill()
        with contextlib.suppress(BrokenPipeError):
            child.communicate()


@pytest.fixture
def grow() -> Callable[..., None]:
    """Lets such a child allocate, and waits until it has unless it is to die of it."""

    def ask(child: subprocess.Popen[str], mib: int, *, answers: bool = True) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(f"{mib}\n")
        child.stdin.flush()
        if answers:
            child.stdout.readline()

    return ask
