"""Processes that stand still are read more rarely, until memory moves that those that were read do not explain."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from rlhfdoctor.record.followed import _DUE_EVERY_S, _SETTLED_S, _STILL_EVERY_S, Followed
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.units import KIB, MIB
from tests.fake_tree import FakeTree

PIDS = range(8, 16)


class Silent:
    """Stands for the other collaborators of `Followed`; their calls are ignored, each event has the time 0."""

    names: dict[int, str] = {}

    def __getattr__(self, name: str) -> object:
        return lambda *_args: defaultdict(int)


class Node:
    """A driver with eight children, sampled tick by tick."""

    def __init__(self, folder: Path) -> None:
        self.tree = FakeTree(folder)
        self.tree.add_process(7)
        for pid in PIDS:
            self.tree.add_process(pid, 7)
        self.target = Target(self.tree.root, pids=[7])
        silent = Silent()
        self.followed = Followed(self.target, silent, silent, silent, silent)  # type: ignore[arg-type]
        self.host = {"anon_bytes": 100 * MIB, "shmem_bytes": MIB}
        self.tick = 0
        self.read: list[int] = []

    def step(self, *, every: bool = False) -> list[Process]:
        """One tick; `read` has the pids that were read in it."""
        self.tick += 1
        self.read = []
        for process in self.target.processes.values():
            process.reader = Spy(process.reader, partial(self.read.append, process.pid))  # type: ignore[assignment]
        gone = self.followed.sweep(self.tick, 1.0, every=every)
        gone += self.followed.sweep_rest(self.host)
        for process in gone:
            self.target.drop(process)
        return gone

    def settle(self) -> None:
        """Until every process counts as still."""
        for _ in range(6):
            self.step()

    def process(self, pid: int) -> Process:
        """By pid."""
        return self.target.processes[pid]


class Spy:
    """A reader that says when it is asked for sizes."""

    def __init__(self, inner: object, asked: partial[None]) -> None:
        self.inner, self.asked = getattr(inner, "inner", inner), asked

    def __getattr__(self, name: str) -> object:
        return getattr(self.inner, name)

    def statm(self) -> bytes:
        """As the reader gives it."""
        self.asked()
        return self.inner.statm()  # type: ignore[attr-defined, no-any-return]


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A node whose processes stand still."""
    node = Node(tmp_path)
    node.settle()
    return node


def test_still_ones_take_turns(node: Node) -> None:
    """Each is read in one of four ticks, and where it is due; the watched command itself in each."""
    turns = []
    for _ in range(4):
        node.step()
        turns += node.read
    assert (set(turns), turns.count(7)) == ({7, *PIDS}, 4)
    assert len(turns) <= 4 + 2 * len(PIDS)


def test_one_that_moves_is_read_at_every_tick(node: Node) -> None:
    """From the turn on in which it is seen to move; it is left alone again when it has stood still for three reads."""
    read = []
    for size in range(1, 9):
        node.tree.change(8, anon_kb=3000 + 1000 * min(size, 5))
        node.step()
        read.append(8 in node.read)
    first = read.index(True)
    assert (first < 4, read[first : first + 4]) == (True, [True] * 4)
    assert node.process(8).rss_bytes == (3000 + 5000 + 1500) * KIB


def test_unexplained_memory_is_looked_for(node: Node) -> None:
    """A still process that takes 50 MiB is in the sample of the same tick, whoever's turn it is."""
    node.step()
    node.tree.change(11, anon_kb=3000 + 50 * 1024)
    node.host["anon_bytes"] += 50 * MIB
    node.step()
    assert (node.process(11).rss_bytes, sorted(set(node.read))) == ((4500 + 50 * 1024) * KIB, [7, *PIDS])


def test_memory_that_is_explained_is_not_looked_for(node: Node) -> None:
    """What the watched command takes it is known to have taken; shared pages count as well."""
    node.step()
    node.tree.change(7, anon_kb=3000 + 50 * 1024)
    node.host |= {"anon_bytes": node.host["anon_bytes"] + 30 * MIB, "shmem_bytes": node.host["shmem_bytes"] + 20 * MIB}
    node.step()
    assert len(set(node.read)) < 5


def test_one_takes_what_another_gives(node: Node) -> None:
    """The node holds as much as before, and the one that was read took 50 MiB: another process gave them back."""
    node.step()
    node.tree.change(7, anon_kb=3000 + 50 * 1024)
    node.tree.change(11, anon_kb=1000)
    node.step()
    assert node.process(11).rss_bytes == 2500 * KIB


def test_an_end_is_seen_by_its_memory(node: Node) -> None:
    """A large process that is gone is missed at once, a small one within four ticks."""
    node.step()
    node.tree.end_process(11)
    node.host["anon_bytes"] -= 20 * MIB
    at_once = [process.pid for process in node.step()]
    node.tree.end_process(12)
    later = [process.pid for _ in range(4) for process in node.step()]
    assert (at_once, later) == ([11], [12])


def test_near_a_limit_all_are_read(node: Node) -> None:
    """While the recorder samples faster than asked, no process is skipped."""
    node.step(every=True)
    assert sorted(node.read) == [7, *PIDS]


def test_without_meminfo_all_are_read(node: Node) -> None:
    """Where the node's memory is unknown, nothing says that the others stood still."""
    node.host.clear()
    node.step()
    assert sorted(node.read) == [7, *PIDS]


def test_a_settled_process_is_due_more_rarely(node: Node) -> None:
    """Its title and CPU time are read every 30 s instead of every 10 s, once it is a minute old and stands still."""
    process = node.process(8)
    while node.tick < 3 * _SETTLED_S:
        node.step()
    seen = []
    for _ in range(int(2 * _STILL_EVERY_S)):
        before = process.due
        node.step()
        seen += [node.tick] if process.due != before else []
    assert [later - one for one, later in pairwise(seen)] == [_STILL_EVERY_S] * (len(seen) - 1)
    assert len(seen) == 2 and _STILL_EVERY_S > _DUE_EVERY_S
