"""What wakes the recorder: deadlines, descriptors, thresholds that cannot be set, descriptors that are gone."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.sources.cgroupfs import Hierarchy
from rlhfdoctor.units import GIB
from tests.bench.survive import MEMORY, limited
from tests.fake_tree import FakeTree

NOW = 0.0
"""A deadline that has passed."""
FAR_S = 20.0


@pytest.fixture
def notifier() -> Iterator[Notifier]:
    """A notifier that is closed afterwards."""
    made = Notifier()
    yield made
    made.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Both ends of a pipe."""
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        try:
            os.close(fd)
        except OSError:
            continue


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    """An empty tree."""
    return FakeTree(tmp_path)


def test_deadline(notifier: Notifier) -> None:
    """Without an event it sleeps until the deadline and nothing has woken it; a deadline in the past is no sleep."""
    deadline = time.monotonic() + 0.05
    woken = notifier.wait(deadline)
    assert (set(), True) == (woken, time.monotonic() >= deadline)
    assert notifier.wait(NOW) == set()


def test_descriptor(notifier: Notifier, pipe: tuple[int, int]) -> None:
    """A descriptor that can be read wakes it by its name, until it was read."""
    notifier.add(pipe[0], "kmsg")
    quiet = notifier.wait(NOW)
    os.write(pipe[1], b"x")
    once, twice = notifier.wait(time.monotonic() + FAR_S), notifier.wait(NOW)
    os.read(pipe[0], 1)
    assert (set(), {"kmsg"}, {"kmsg"}, set()) == (quiet, once, twice, notifier.wait(NOW))


def test_two_descriptors(notifier: Notifier, pipe: tuple[int, int]) -> None:
    """All that happened is named."""
    event = os.eventfd(1)
    notifier.add(pipe[0], "kmsg")
    notifier.add(event, "orders")
    os.write(pipe[1], b"x")
    woken = notifier.wait(time.monotonic() + FAR_S)
    notifier.remove(event)
    os.close(event)
    assert woken == {"kmsg", "orders"}


def test_removed(notifier: Notifier, pipe: tuple[int, int]) -> None:
    """A descriptor that was removed does not wake it, and may be removed twice."""
    notifier.add(pipe[0], "kmsg")
    os.write(pipe[1], b"x")
    notifier.remove(pipe[0])
    notifier.remove(pipe[0])
    assert notifier.wait(NOW) == set()


def test_other_end_is_gone(notifier: Notifier, pipe: tuple[int, int]) -> None:
    """A descriptor whose other end is closed wakes it once and is forgotten, so that it does not spin."""
    notifier.add(pipe[0], "kmsg")
    os.close(pipe[1])
    assert ({"kmsg"}, set()) == (notifier.wait(NOW), notifier.wait(NOW))


def test_closed_descriptor(notifier: Notifier, pipe: tuple[int, int]) -> None:
    """A descriptor that its owner closed is forgotten."""
    notifier.add(pipe[0], "kmsg")
    os.close(pipe[0])
    assert ({"kmsg"}, set()) == (notifier.wait(NOW), notifier.wait(NOW))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("limit", [None, 0, GIB])
def test_level_that_is_not_there(notifier: Notifier, tree: FakeTree, version: int, limit: int | None) -> None:
    """A cgroup that is gone or shows no files is left out, and leaves no descriptor."""
    before = os.listdir("/proc/self/fd")
    notifier.watch_level(Hierarchy(version, tree.root, "/"), f"{tree.root}/none", limit)
    notifier.watch_level(Hierarchy(version, tree.root, "/"), tree.root, limit)
    assert (before, set()) == (os.listdir("/proc/self/fd"), notifier.wait(NOW))


V1_FILES: dict[str, str | int] = {
    "memory.usage_in_bytes": 5,
    "memory.oom_control": "oom_kill 0",
    "cgroup.event_control": "",
}


def test_v1_without_rights(notifier: Notifier, tree: FakeTree) -> None:
    """Where events cannot be registered (a container's read-only cgroup) none are, and no descriptor is left."""
    folder = tree.add_folder(
        "m", {name: text for name, text in V1_FILES.items() if "control" not in name or "oom" in name}
    )
    before = os.listdir("/proc/self/fd")
    notifier.watch_level(Hierarchy(1, folder, "/"), folder, GIB)
    assert before == os.listdir("/proc/self/fd")


@pytest.mark.parametrize(("limit", "count"), [(GIB, 5), (None, 1)], ids=["limit", "no limit"])
def test_v1_registers(notifier: Notifier, tree: FakeTree, limit: int | None, count: int) -> None:
    """Four thresholds need a limit, OOM needs none; each has a descriptor of its own, which is given back."""
    folder = tree.add_folder("m", V1_FILES)
    before = os.listdir("/proc/self/fd")
    notifier.watch_level(Hierarchy(1, folder, "/"), folder, limit)
    during = len(os.listdir("/proc/self/fd"))
    woken = notifier.wait(NOW)
    notifier.close()
    assert (len(before) + count, set(), before) == (during, woken, os.listdir("/proc/self/fd"))


def test_v1_order(notifier: Notifier, tree: FakeTree) -> None:
    """The kernel is reported the event's descriptor, the watched file's, and nothing more for OOM."""
    folder = tree.add_folder("m", V1_FILES)
    notifier.watch_level(Hierarchy(1, folder, "/"), folder, None)
    event, target, rest = (tree.folder / "m/cgroup.event_control").read_text().split(" ")
    assert (os.readlink(f"/proc/self/fd/{event}"), target.isdigit(), rest) == ("anon_inode:[eventfd]", True, "")


def test_signal_with_a_handler(notifier: Notifier) -> None:
    """It ends the wait, however far the deadline is, and only once."""
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        notifier.watch_signals()
        os.kill(os.getpid(), signal.SIGUSR1)
        assert (notifier.wait(time.monotonic() + FAR_S), notifier.wait(NOW)) == ({"signal"}, set())
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_end_of_a_process(notifier: Notifier) -> None:
    """It wakes once, and its descriptor is given back."""
    before = os.listdir("/proc/self/fd")
    with subprocess.Popen(["sleep", "60"]) as process:
        notifier.watch_end(process.pid)
        assert notifier.wait(NOW) == set()
        process.kill()
        assert notifier.wait(time.monotonic() + FAR_S) == {"end"}
    assert (notifier.wait(NOW), os.listdir("/proc/self/fd")) == (set(), before)


def test_levels_are_counted(notifier: Notifier, tree: FakeTree) -> None:
    """Whoever makes very many cgroups takes no more descriptors than those of 32."""
    before = len(os.listdir("/proc/self/fd"))
    for number in range(40):
        folder = tree.add_folder(f"m{number}", V1_FILES)
        notifier.watch_level(Hierarchy(1, folder, "/"), folder, GIB)
    assert len(os.listdir("/proc/self/fd")) - before == 32 * 5


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup")
@pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller")
def test_v1_of_a_cgroup_that_is_removed(notifier: Notifier) -> None:
    """The kernel signals all events of a cgroup that goes: that is no OOM, and their descriptors are given back."""
    before = os.listdir("/proc/self/fd")
    with limited("notify-removed") as cgroup:
        notifier.watch_level(Hierarchy(1, str(MEMORY), "/"), str(cgroup), 300 << 20)
        during = len(os.listdir("/proc/self/fd"))
    woken: set[str] = set()
    for _ in range(50):
        woken |= notifier.wait(time.monotonic() + 0.1)
        if os.listdir("/proc/self/fd") == before:
            break
    assert (during, woken, before) == (len(before) + 5, set(), os.listdir("/proc/self/fd"))


def test_v2_of_a_cgroup_that_is_removed(notifier: Notifier) -> None:
    """Its file cannot be read any more, and is readable for ever: it is closed, or the recorder would never sleep."""
    read, write = os.pipe()  # pread of a pipe fails, as it does there
    notifier._add_event(read, "/gone", "memory.events", select.POLLIN)
    os.write(write, b"x")
    woken = notifier.wait(NOW)
    with pytest.raises(OSError):
        os.fstat(read)
    os.close(write)
    assert woken == set()


def test_v2_events(notifier: Notifier, tree: FakeTree) -> None:
    """On version 2 the events file is watched and given back; an ordinary file never wakes it."""
    folder = tree.add_folder("m", {"memory.events": "oom 0\noom_kill 0"})
    before = os.listdir("/proc/self/fd")
    notifier.watch_level(Hierarchy(2, folder, "/"), folder, GIB)
    during = len(os.listdir("/proc/self/fd"))
    woken = notifier.wait(NOW)
    notifier.close()
    assert (len(before) + 1, set(), before) == (during, woken, os.listdir("/proc/self/fd"))


def test_pressure_that_is_not_there(notifier: Notifier, tree: FakeTree) -> None:
    """A kernel without PSI is passed over."""
    before = os.listdir("/proc/self/fd")
    notifier.watch_pressure(f"{tree.root}/memory.pressure")
    assert (before, set()) == (os.listdir("/proc/self/fd"), notifier.wait(NOW))


def test_close(pipe: tuple[int, int]) -> None:
    """Descriptors of others are left open, and closing twice is fine."""
    notifier = Notifier()
    notifier.add(pipe[0], "kmsg", select.POLLIN)
    notifier.close()
    notifier.close()
    assert os.write(pipe[1], b"x") == 1
    assert os.read(pipe[0], 1) == b"x"
