"""Disks: one that is broken on purpose, and one that is really small."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.trace.store import RING_NAME
from tests.trace.build import Disk, Remote, mount


@pytest.fixture(autouse=True)
def rings() -> Iterator[None]:
    """Closes what a failed test left in memory: a follower finds it by its name among this process's files."""
    yield
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if RING_NAME in str(path.readlink()):
                os.close(int(path.name))


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """A disk that fails on demand: `disk.error = errno.EIO`."""
    return Disk(monkeypatch)


@pytest.fixture
def remote() -> Iterator[Callable[..., Remote]]:
    """Starts writers in processes of their own, and ends them."""
    started: list[Remote] = []

    def start(folder: Path, **options: Any) -> Remote:
        started.append(Remote(folder, **options))
        return started[-1]

    yield start
    for item in started:
        item.end()


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 64 KiB."""
    yield from mount(tmp_path / "tiny", "-t", "tmpfs", "-o", "size=64k", "tmpfs")


@pytest.fixture
def fragile(tmp_path: Path) -> Iterator[Path]:
    """A real ext4 that can be made read-only while files are open: `mount -o remount,abort`."""
    image = tmp_path / "image"
    image.write_bytes(b"\0" * (4 << 20))
    try:
        subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"no ext4 can be made here: {error}")
    yield from mount(tmp_path / "fragile", "-t", "ext4", "-o", "loop", str(image))
