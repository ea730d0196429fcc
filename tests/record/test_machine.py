"""What a tick reads besides processes: host, cgroups and their kill counters, /dev/shm, titles."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.record.columns import number, thousandths
from rlhfdoctor.record.machine import Machine
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.trace.record import RecordEvent, StoredEvent
from rlhfdoctor.trace.schema import NULL, TABLES
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record
from tests.bench.survive import HOG, MEMORY, limited
from tests.fake_tree import FakeTree

MOUNTS = {
    1: "35 31 0:32 / /cg rw shared:14 - cgroup cgroup rw,memory\n",
    2: "35 31 0:32 / /cg rw shared:14 - cgroup2 cgroup2 rw\n",
}
NO_LIMIT = 9223372036854771712


def keep(events: list[StoredEvent], kind: Record, fields: RecordEvent) -> RecordEvent:
    """Keeps an event in a list."""
    events.append({R.kind: kind, **fields})
    return events[-1]


class Room:
    """A machine of files with the process 7 in the cgroup /job/worker, which has no limit; /job has one of 8 GiB."""

    def __init__(self, folder: Path, version: int = 1) -> None:
        self.version = version
        self.tree = FakeTree(folder)
        self.tree.write("proc/self/mountinfo", MOUNTS[version])
        self.tree.write("cg/cgroup.controllers", "cpu memory\n")
        self.tree.write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 50331648 kB\nShmem: 1024 kB\n")
        self.tree.add_process(7, command="ray::ActorModelRayActor")
        self.tree.write("proc/7/cgroup", "4:memory:/job/worker\n0::/job/worker\n")
        self.tree.add_folder("dev/shm")
        self.level("job/worker", GIB, NO_LIMIT)
        self.level("job", 2 * GIB, 8 * GIB)
        self.count(node=0)
        self.events: list[StoredEvent] = []
        self.target = Target(self.tree.root, pids=[7])
        self.machine = Machine(self.target, partial(keep, self.events), self.tree.root)
        (self.process,) = self.meet()

    def meet(self) -> list[Process]:
        """Processes that are new."""
        found = self.target.discover()
        for process in found:
            self.machine.add_process(process)
        return found

    def entitle(self, titles: Sequence[str]) -> list[dict[str, Any]]:
        """The marks of process 7 with these titles, one after the other."""
        for self.process.command in titles:
            self.machine.title(self.process)
        return [event for event in self.events if event["kind"] == "mark"]

    def level(self, path: str, used: int, limit: int) -> None:
        """A cgroup with its files."""
        two: dict[str, str | int] = {
            "memory.current": used,
            "memory.max": "max" if limit == NO_LIMIT else limit,
            "memory.stat": f"anon {used}",
        }
        one: dict[str, str | int] = {
            "memory.usage_in_bytes": used,
            "memory.limit_in_bytes": limit,
            "memory.stat": f"total_rss {used}",
        }
        self.tree.add_folder(f"cg/{path}", two if self.version == 2 else one)
        self.count(**{path: 0})

    def count(self, **kills: int) -> None:
        """Kill counters: of the node, or of a level."""
        for where, count in kills.items():
            if where == "node":
                self.tree.write("proc/vmstat", f"nr_free_pages 1\noom_kill {count}\n")
            else:
                name = "memory.events" if self.version == 2 else "memory.oom_control"
                self.tree.write(f"cg/{where}/{name}", f"oom_kill_disable 0\nunder_oom 0\noom_kill {count}\n")

    def path(self, level: str) -> str:
        """The folder of a level."""
        return f"{self.tree.root}/cg/{level}"

    def read(self, ticks: int = 1) -> dict[str, Any]:
        """So many ticks; the rows of the last one."""
        return [self.machine.read() for _ in range(ticks)][-1]

    def kills(self) -> list[tuple[str, int]]:
        """Level and count of the kills that were stored."""
        return [(e["level"].removeprefix(self.path("")), e["count"]) for e in self.events if e["kind"] == "oom_kill"]

    def look(self) -> list[tuple[Any, ...]]:
        """Looks into /dev/shm once; what is stored: new or grown objects with owners and orphans, and those gone."""
        before = len(self.events)
        self.machine._take_objects(self.machine._read_objects()[0])
        return [
            (e["kind"], Path(e["path"]).name, *([e["owners"], e["orphaned"]] if "owners" in e else []))
            for e in self.events[before:]
        ]

    def share(self, name: str, size: int, age_s: float = 0.0) -> Path:
        """An object in /dev/shm, last written some seconds ago."""
        path = Path(self.tree.root, "dev", "shm", name)
        path.write_bytes(b"x" * size)
        os.utime(path, (time.time() - age_s,) * 2)
        return path


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def room(tmp_path: Path, request: pytest.FixtureRequest) -> Room:
    """A machine of each version of cgroups."""
    return Room(tmp_path, request.param)


@pytest.fixture
def v1(tmp_path: Path) -> Room:
    """A machine with version 1."""
    return Room(tmp_path)


def column(tables: dict[str, Any], table: str, name: str) -> list[int]:
    """A column of a tick's rows."""
    return list(tables[table][1][TABLES[table].index(name)])


def test_host(v1: Room) -> None:
    """The host's row has what the kernel tells, and NULL for what it does not."""
    names = ("total_bytes", "available_bytes", "shmem_bytes", "swap_free_bytes", "oom_kill_count")
    tables = v1.read()
    assert [column(tables, "host", name) for name in names] == [[64 * GIB], [48 * GIB], [MIB], [NULL], [0]]


def test_levels_are_stored(room: Room) -> None:
    """The cgroup of a process is stored with its ancestors below the mount; the mount itself is the node."""
    found = [(e["uid"], e["path"], e["version"], e["own"]) for e in room.events if e["kind"] == "cgroup.seen"]
    assert found == [(1, room.path("job/worker"), room.version, True), (2, room.path("job"), room.version, False)]


def test_levels_are_stored_once(v1: Room) -> None:
    """A second process in the same cgroup brings no new level, one in another cgroup does."""
    before = len(v1.events)
    v1.tree.add_process(8, 7)
    v1.tree.write("proc/8/cgroup", "4:memory:/job/worker\n")
    v1.tree.add_process(9, 7)
    v1.tree.write("proc/9/cgroup", "4:memory:/job/other\n")
    v1.level("job/other", 1, NO_LIMIT)
    v1.meet()
    assert [(event["uid"], event["path"]) for event in v1.events[before:]] == [(3, v1.path("job/other"))]


def test_levels_are_read(room: Room) -> None:
    """Each level has a row with its use and its limit; none is NULL."""
    tables = room.read(3)
    assert tables["cgroup"][0] == [1, 2]
    assert (column(tables, "cgroup", "used_bytes"), column(tables, "cgroup", "max_bytes")) == (
        [GIB, 2 * GIB],
        [NULL, 8 * GIB],
    )


def test_level_that_is_removed(room: Room) -> None:
    """A cgroup that is gone has no row any more."""
    room.read()
    room.tree.remove_folder(Path(room.path("job/worker")).relative_to(room.tree.folder).as_posix())
    assert room.read(10)["cgroup"][0] == [2]


def test_limit_that_changes(room: Room) -> None:
    """A limit that is changed while the job runs is seen within ten ticks."""
    room.read()
    room.level("job", 2 * GIB, 16 * GIB)
    assert column(room.read(10), "cgroup", "max_bytes")[1] == 16 * GIB


def test_process_that_is_moved(v1: Room) -> None:
    """A process that its launcher puts into another cgroup brings that one along."""
    v1.level("other", 1, GIB)
    v1.tree.write("proc/7/cgroup", "4:memory:/other\n")
    v1.machine.place(v1.process)
    assert [event["path"] for event in v1.events if event["kind"] == "cgroup.seen"][-1] == v1.path("other")


def test_cgroup_that_is_removed(v1: Room) -> None:
    """It is forgotten with its number, which no other one gets; one that a launcher makes a task costs nothing for ever."""
    v1.level("other", 1, GIB)
    v1.tree.write("proc/7/cgroup", "4:memory:/other\n")
    v1.machine.place(v1.process)
    v1.read()
    seen = {event["path"]: event["uid"] for event in v1.events if event["kind"] == "cgroup.seen"}
    shutil.rmtree(v1.path("other"))
    v1.machine._kept.close()  # of a real cgroup's file nothing can be read any more
    v1.read()
    assert v1.machine.levels.take_gone() == [seen[v1.path("other")]]
    assert v1.path("other") not in [level.path for level in v1.machine.levels.all]
    v1.level("other", 1, GIB)
    v1.machine.place(v1.process)
    again = [event["uid"] for event in v1.events if event["kind"] == "cgroup.seen"][-1]
    assert (again in seen.values(), v1.machine.levels.take_gone()) == (False, [])


def test_machine_without_cgroups(tmp_path: Path) -> None:
    """Without the memory controller the other rows are there."""
    tree = FakeTree(tmp_path)
    tree.write("proc/meminfo", "MemTotal: 1024 kB\n")
    machine = Machine(Target(tree.root), lambda kind, **fields: fields, tree.root)
    assert (list(machine.read()), machine.levels.hierarchy) == (["host"], None)


def test_kill_in_the_cgroup(room: Room) -> None:
    """A kill counter that rises is stored with its level, how often, its use and its limit."""
    room.read()
    room.count(job=2)
    room.read(3)
    events = [event for event in room.events if event["kind"] == "oom_kill"]
    assert events == [
        {"kind": "oom_kill", "level": room.path("job"), "count": 2, "used_bytes": 2 * GIB, "max_bytes": 8 * GIB}
    ]


def test_kills_before_the_start(room: Room) -> None:
    """Kills from before the first sample are nobody's."""
    room.count(job=5, node=9)
    room.read(12)
    assert room.kills() == []


def test_kill_of_the_node(room: Room) -> None:
    """A kill that no cgroup counted is the node's."""
    room.read()
    room.count(node=1)
    room.read(3)
    assert room.kills() == [("node", 1)]


def test_kill_is_not_stored_twice(room: Room) -> None:
    """The node counts a cgroup's kill as well: it is stored at the cgroup only."""
    room.read()
    room.count(job=1, node=1)
    room.read(3)
    assert room.kills() == [("job", 1)]


def test_kill_is_not_stored_twice_in_one_tick(room: Room) -> None:
    """The same where node and cgroup are read in one tick."""
    room.read(3)
    room.count(job=1, node=1)
    room.read()
    assert room.kills() == [("job", 1)]


def test_kill_below_another_level(tmp_path: Path) -> None:
    """A kill that version 2 counts at a cgroup and all its ancestors is stored once, where it happened."""
    room = Room(tmp_path, 2)
    room.read()
    room.count(**{"job/worker": 1, "job": 1})
    room.read(3)
    assert room.kills() == [("job/worker", 1)]


@pytest.mark.live
@pytest.mark.usefixtures("kernel_alone")
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup")
@pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller")
def test_real_kill() -> None:
    """The kernel's own counter tells a kill at the cgroup, once, with the limit."""
    events: list[StoredEvent] = []
    with limited("machine", 64 << 20) as cgroup:
        script = (
            f"import sys; open('{cgroup}/cgroup.procs', 'w').write('0'); print(flush=True); sys.stdin.readline()\n{HOG}"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None and child.stdout is not None
            child.stdout.readline()
            target = Target("", pids=[child.pid])
            machine = Machine(target, partial(keep, events))
            machine.add_process(target.discover()[0])
            machine.read()
            child.stdin.close()
            child.wait(timeout=60)
            machine.read()
            machine.read()
        assert [(e["level"], e["count"], e["max_bytes"]) for e in events if e["kind"] == "oom_kill"] == [
            (str(cgroup), 1, 64 << 20)
        ]


def test_new_object(v1: Room) -> None:
    """An object in /dev/shm is stored when it is new; while it stays as it is, it is stored no more."""
    v1.read()
    v1.share("a", 4096)
    assert (v1.look(), v1.look()) == ([("shm.object", "a", (), False)], [])


def test_object_that_grows(v1: Room) -> None:
    """An object is stored again when it has grown by more than a quarter."""
    v1.read()
    v1.share("a", 40960)
    first = v1.look()
    v1.share("a", 45056)
    second = v1.look()
    v1.share("a", 81920)
    assert [len(events) for events in (first, second, v1.look())] == [1, 0, 1]


def test_object_that_is_gone(v1: Room) -> None:
    """An object that is removed is stored with the size that it had."""
    v1.read()
    path = v1.share("a", 4096)
    v1.look()
    path.unlink()
    assert (v1.look(), v1.events[-1]["size_bytes"]) == ([("shm.gone", "a")], 4096)


USER = """
import mmap, sys
handle = open(sys.argv[1], "r+b")
shared = mmap.mmap(handle.fileno(), 0)
shared[0]
print(flush=True)
sys.stdin.read()
"""


def look_at(machine: Machine, target: Target, path: Path, events: list[StoredEvent]) -> list[tuple[Any, ...]]:
    """Looks into the real /dev/shm once; what is stored for one object: kind, owners, whether it is an orphan, size."""
    for process in target.sweep(lambda process: True):
        target.drop(process)
    events.clear()
    machine.read()
    machine._take_objects(machine._read_objects()[0])
    return [
        (e["kind"], e.get("owners"), e.get("orphaned"), e["size_bytes"]) for e in events if e.get("path") == str(path)
    ]


def test_owner_and_orphan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real object is stored with the followed process that maps it, and as an orphan when that process is gone."""
    monkeypatch.setattr(
        "rlhfdoctor.record.machine._MOST_OBJECTS", 100_000
    )  # whatever else lies in this machine's /dev/shm
    path = Path(f"/dev/shm/rlhfdoctor-test-{os.getpid()}")
    events: list[StoredEvent] = []
    try:
        path.write_bytes(b"x" * (2 << 20))
        os.utime(path, (time.time() - 100,) * 2)
        words = [sys.executable, "-c", USER, str(path)]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdin is not None and child.stdout is not None
            child.stdout.readline()
            target = Target("", pids=[child.pid])
            machine = Machine(target, partial(keep, events))
            target.discover()
            owned, again = look_at(machine, target, path, events), look_at(machine, target, path, events)
            child.stdin.close()
            child.wait(timeout=60)
        lost = look_at(machine, target, path, events)
    finally:
        path.unlink()
    gone = look_at(machine, target, path, events)
    size = 2 << 20
    assert (owned, again, lost) == ([("shm.object", (child.pid,), False, size)], [], [("shm.object", (), True, size)])
    assert gone == [("shm.gone", None, None, size)]


def test_bytes_of_orphans(v1: Room) -> None:
    """What no process has mapped and nobody wrote to for a minute counts as orphaned in the host's row."""
    v1.read()
    v1.share("old", 8192, age_s=100)
    v1.share("new", 4096)
    events, tables = v1.look(), v1.read()
    assert events == [("shm.object", "old", (), True), ("shm.object", "new", (), False)]
    assert column(tables, "host", "shm_orphaned_bytes") == [8192]


def test_object_that_becomes_an_orphan(v1: Room) -> None:
    """An object that lost its owner within a minute of its last write is stored as an orphan as soon as it is one."""
    v1.read()
    path = v1.share("a", 8192)
    v1.look()
    os.utime(path, (time.time() - 100,) * 2)
    assert v1.look() == [("shm.object", "a", (), True)]


@pytest.mark.parametrize(
    ("titles", "phases"),
    [
        (["ray::ActorModelRayActor"], []),
        (
            ["ray::WorkerDict.actor_rollout_generate_sequences", "ray::WorkerDict.actor_rollout_update_actor"],
            ["rollout", "update"],
        ),
        (["ray::A.generate", "ray::A.generate", "ray::A", "ray::A.generate"], ["rollout"]),
        (["python generate.py"], []),
    ],
)
def test_title(v1: Room, titles: list[str], phases: list[str]) -> None:
    """The title of a Ray worker marks a phase when it tells another one than before."""
    marks = v1.entitle(titles)
    assert ([event["phase"] for event in marks], {event["basis"] for event in marks} <= {"process title"}) == (
        phases,
        True,
    )


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e300, 2**62, -(2**62)], ids=str)
def test_numbers_beyond_what_is_stored(value: float) -> None:
    """A figure that the store has no room for is unknown, and never the end of a tick."""
    assert number(value) == NULL


def test_numbers() -> None:
    """Values as the store keeps them: unknown is NULL, times are thousandths, and a century is out of sight."""
    assert (number(None), number(1.9), thousandths(None), thousandths(1.5), thousandths(4e9)) == (
        NULL,
        1,
        None,
        1500.0,
        None,
    )
