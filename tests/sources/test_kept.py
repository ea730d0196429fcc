"""Files that are read again and again through one descriptor: real ones of /proc and of a memory cgroup."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlhfdoctor.sources.kept import KeptFiles
from rlhfdoctor.sources.procfs import read_file

CGROUP = Path("/sys/fs/cgroup/memory")


def descriptors() -> int:
    """How many this process has."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("name", ["meminfo", "vmstat", "zoneinfo", "loadavg", "self/status"])
def test_a_file_of_the_kernel_is_read_whole_each_time(name: str) -> None:
    """As much as a fresh descriptor gives, also where the kernel gives a page a read."""
    kept = KeptFiles()
    lines = [len((kept.read(f"/proc/{name}") or b"").split(b"\n")) for _ in range(3)]
    assert lines == [len((read_file(f"/proc/{name}") or b"").split(b"\n"))] * 3
    kept.close()


def test_what_changes_is_seen(tmp_path: Path) -> None:
    """The file as it is now, and not longer than was asked for."""
    path, kept = tmp_path / "file", KeptFiles()
    path.write_text("one\n")
    first = kept.read(str(path))
    path.write_text("two and more\n")
    assert (first, kept.read(str(path)), kept.read(str(path), 3)) == (b"one\n", b"two and more\n", b"two")
    kept.close()


def test_one_descriptor_a_file(tmp_path: Path) -> None:
    """However often it is read; given back at the end."""
    path, kept = tmp_path / "file", KeptFiles()
    path.write_text("one\n")
    before = descriptors()
    for _ in range(50):
        kept.read(str(path))
    during = descriptors()
    kept.close()
    assert (during, descriptors()) == (before + 1, before)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    """None, without a descriptor; when it comes, it is read."""
    path, kept = tmp_path / "file", KeptFiles()
    before = descriptors()
    first = [kept.read(str(path)), kept.read(str(tmp_path))]
    counted = descriptors()
    path.write_text("here\n")
    assert (first, counted - before, kept.read(str(path))) == ([None, None], 0, b"here\n")
    kept.close()


@pytest.mark.skipif(os.geteuid() != 0 or not CGROUP.is_dir(), reason="needs root and the cgroup v1 memory controller")
def test_a_cgroup_that_is_removed_and_made_again() -> None:
    """A removed one is None, not its last figure; a new one of the same name is read."""
    folder, kept = CGROUP / f"rlhfdoctor-kept-{os.getpid()}", KeptFiles()
    name = str(folder / "memory.limit_in_bytes")
    folder.mkdir()
    try:
        first = kept.read(name)
        folder.rmdir()
        gone = kept.read(name)
        folder.mkdir()
        (folder / "memory.limit_in_bytes").write_text(str(1 << 26))
        assert (first is not None, gone, kept.read(name)) == (True, None, b"%d\n" % (1 << 26))
    finally:
        kept.close()
        folder.rmdir()
