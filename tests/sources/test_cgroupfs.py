"""cgroup memory: where it is mounted, which folder is a process's, what its chain of limits says."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.sources.cgroupfs import (
    Hierarchy,
    Level,
    find_chain,
    find_hierarchy,
    find_path,
    list_processes,
    read_level,
)
from rlhfdoctor.units import MIB
from tests.fake_tree import FakeTree

V2 = "31 23 0:27 {top} {mount} rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = "35 31 0:32 {top} {mount} rw,nosuid,relatime shared:14 - cgroup cgroup rw,{controllers}\n"
OTHERS = "22 27 0:21 / /proc rw,relatime - proc proc rw\n31 23 0:28 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
CG = "/sys/fs/cgroup"
POD = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1f2e.slice/cri-containerd-2a3b.scope"
STEP = "/slurm/uid_0/job_7/step_0"
DOCKER = "/docker/4be1f09c"


def v2(top: str = "/", mount: str = CG) -> str:
    """Mounts of a machine with version 2."""
    return OTHERS + V2.format(top=top, mount=mount)


def v1(top: str = "/", mount: str = f"{CG}/memory", controllers: str = "memory") -> str:
    """Mounts of a machine with version 1."""
    return (
        OTHERS
        + V1.format(top="/", mount=f"{CG}/cpu", controllers="cpu")
        + V1.format(top=top, mount=mount, controllers=controllers)
    )


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    """An empty tree."""
    return FakeTree(tmp_path)


MACHINES = {  # mounts, /proc/7/cgroup, folders that exist below the root -> version, mount, chain below the mount
    "v2 host": (
        v2(),
        "0::/user.slice/run-4.scope\n",
        ["user.slice/run-4.scope"],
        (2, CG),
        ["/user.slice/run-4.scope", "/user.slice", ""],
    ),
    "v2 in a container with a namespace": (v2(), "0::/\n", ["init.scope"], (2, CG), [""]),
    "v2 in a pod, seen from the host": (
        v2(),
        f"0::{POD}\n",
        [POD[1:]],
        (2, CG),
        [POD, POD.rsplit("/", 1)[0], POD.rsplit("/", 2)[0], "/kubepods.slice", ""],
    ),
    "v2 behind a bind mount": (v2(POD), f"0::{POD}/worker\n", ["worker"], (2, CG), ["/worker", ""]),
    "v2 elsewhere": (v2(mount="/cg2"), "0::/a\n", ["a"], (2, "/cg2"), ["/a", ""]),
    "v1": (v1(), "4:memory:/job\n1:cpu:/other\n0::/\n", ["job", "other"], (1, f"{CG}/memory"), ["/job", ""]),
    "v1 at the top": (v1(), "4:memory:/\n", [], (1, f"{CG}/memory"), [""]),
    "v1 docker": (v1(DOCKER), f"4:memory:{DOCKER}\n", [], (1, f"{CG}/memory"), [""]),
    "v1 docker with cgroups of its own": (
        v1(DOCKER),
        f"4:memory:{DOCKER}/a/b\n",
        ["a/b"],
        (1, f"{CG}/memory"),
        ["/a/b", "/a", ""],
    ),
    "v1 slurm": (
        v1(),
        f"4:memory:{STEP}/task_0\n",
        [f"{STEP[1:]}/task_0"],
        (1, f"{CG}/memory"),
        [f"{STEP}/task_0", STEP, "/slurm/uid_0/job_7", "/slurm/uid_0", "/slurm", ""],
    ),
    "hybrid, v2 first": (
        OTHERS + V2.format(top="/", mount=f"{CG}/unified") + v1(),
        "4:memory:/job\n0::/system.slice\n",
        ["job"],
        (1, f"{CG}/memory"),
        ["/job", ""],
    ),
    "hybrid, v1 first": (
        v1() + V2.format(top="/", mount=f"{CG}/unified"),
        "4:memory:/job\n0::/system.slice\n",
        ["job"],
        (1, f"{CG}/memory"),
        ["/job", ""],
    ),
    "mounted with others": (
        v1(mount=f"{CG}/cpuset,memory", controllers="cpuset,memory"),
        "4:cpuset,memory:/job\n",
        ["job"],
        (1, f"{CG}/cpuset,memory"),
        ["/job", ""],
    ),
    "colons": (v1(), "4:memory:/a:b/c:1\n", ["a:b/c:1"], (1, f"{CG}/memory"), ["/a:b/c:1", "/a:b", ""]),
    "blanks in the path": (
        v1(),
        "4:memory:/my job/x\n",
        ["my job/x"],
        (1, f"{CG}/memory"),
        ["/my job/x", "/my job", ""],
    ),
    "escapes in mount and top": (
        v1("/my\\040jobs\\134x", "/mnt/a\\040b\\011c/memory"),
        "4:memory:/my jobs\\x/y\n",
        ["y"],
        (1, "/mnt/a b\tc/memory"),
        ["/y", ""],
    ),
    "a path of which a tail is there": (
        v1(),
        f"4:memory:/outer{STEP}\n",
        [STEP[1:]],
        (1, f"{CG}/memory"),
        [STEP, "/slurm/uid_0/job_7", "/slurm/uid_0", "/slurm", ""],
    ),
    "the longest tail, not the last name": (v2(), "0::/x/a/b\n", ["a/b", "b"], (2, CG), ["/a/b", "/a", ""]),
    "a path of which nothing is there": (v2(), f"0::{POD}\n", ["init.scope"], (2, CG), [""]),
    "outside of the namespace": (v2(), "0::/../../neighbour\n", [], (2, CG), [""]),
    "no optional fields": (
        "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        "4:memory:/job\n",
        ["job"],
        (1, f"{CG}/memory"),
        ["/job", ""],
    ),
}


@pytest.mark.parametrize(("mounts", "cgroup", "folders", "where", "chain"), MACHINES.values(), ids=MACHINES)
def test_machine(
    tree: FakeTree, mounts: str, cgroup: str, folders: list[str], where: tuple[int, str], chain: list[str]
) -> None:
    """The memory controller is found, the process's own folder, and all levels above it up to the mount."""
    version, mount = where
    tree.write("proc/self/mountinfo", mounts)
    tree.write("proc/7/cgroup", cgroup)
    tree.add_folder(f"{CG[1:]}/unified", {"cgroup.controllers": ""})
    tree.add_folder(mount[1:], {"cgroup.controllers": "cpuset cpu io memory pids"})
    tree.add_folders(mount[1:], folders)
    hierarchy = find_hierarchy(tree.root)
    assert hierarchy is not None
    assert (version, f"{tree.root}{mount}") == (hierarchy.version, hierarchy.mount)
    folder = find_path(hierarchy, tree.root, 7)
    assert folder is not None
    assert [f"{tree.root}{mount}{part}" for part in chain] == find_chain(hierarchy, folder)


def test_hierarchy_of_another_process(tree: FakeTree) -> None:
    """The mounts are those that the named process sees."""
    tree.write("proc/self/mountinfo", v1())
    tree.write("proc/7/mountinfo", v1("/docker/a", "/other"))
    assert Hierarchy(1, f"{tree.root}/other", "/docker/a") == find_hierarchy(tree.root, 7)


@pytest.mark.parametrize(
    ("mounts", "controllers"),
    [
        ("", "memory"),
        (OTHERS, "memory"),
        (v2(), "cpuset cpu io"),
        (v2(), "memory_recursiveprot"),
        (v1(controllers="cpu"), ""),
        (v1(controllers="memorylike"), ""),
        (
            "\0\xff\n - \n35 31 0:32 / - cgroup cgroup rw,memory\n35 31 0:32 / /x rw - cgroup\n - cgroup cgroup rw,memory\n",
            "",
        ),
        (v2()[:60], "memory"),
    ],
    ids=[
        "empty",
        "no cgroups",
        "v2 without memory",
        "like memory",
        "v1 without memory",
        "like v1 memory",
        "garbage",
        "cut off",
    ],
)
def test_no_hierarchy(tree: FakeTree, mounts: str, controllers: str) -> None:
    """Without a mounted memory controller there is none, and damaged lines are passed over."""
    tree.write("proc/self/mountinfo", mounts)
    tree.add_folder(CG[1:], {"cgroup.controllers": controllers})
    assert find_hierarchy(tree.root) is None


def test_no_proc(tree: FakeTree) -> None:
    """Without mountinfo there is no hierarchy, and without a process no path."""
    assert find_hierarchy(tree.root) is None
    assert find_path(Hierarchy(2, f"{tree.root}{CG}", "/"), tree.root, 7) is None


@pytest.mark.parametrize(
    ("version", "cgroup"),
    [(1, "0::/a\n"), (1, ""), (2, "4:memory:/a\n"), (1, "garbage\n"), (2, "0::/a\n")],
    ids=["v1 without a line", "empty", "v2 without a line", "garbage", "mount is not there"],
)
def test_no_path(tree: FakeTree, version: int, cgroup: str) -> None:
    """A process without a line of the hierarchy, or a mount that is not there, has no folder."""
    tree.write("proc/7/cgroup", cgroup)
    assert find_path(Hierarchy(version, f"{tree.root}/nowhere", "/"), tree.root, 7) is None


def test_top_whose_name_begins_the_same(tree: FakeTree) -> None:
    """What is mounted ends at a whole name: a neighbour whose name begins the same is not below it."""
    tree.write("proc/7/cgroup", f"0::{DOCKER}/a\n")
    mount = tree.add_folder(CG[1:])
    tree.add_folder(f"{CG[1:]}/f09c/a")
    assert mount == find_path(Hierarchy(2, mount, "/docker/4be1"), tree.root, 7)


STAT_V2 = """\
anon 700000
file 250000
kernel 40000
kernel_stack 3000
slab 30000
shmem 60000
file_mapped 5000
inactive_anon 0
active_anon 700000
inactive_file 100000
active_file 90000
unevictable 7000
anon_thp 999
"""
FILES_V2: dict[str, str | int] = {
    "memory.current": 1000000,
    "memory.max": 2000000,
    "memory.high": 1800000,
    "memory.peak": 1500000,
    "memory.stat": STAT_V2,
    "memory.swap.current": 4096,
    "memory.oom.group": 1,
    "memory.events": "low 0\nhigh 5\nmax 6\noom 3\noom_kill 2\noom_group_kill 1",
}
LEVEL_V2 = {
    "current_bytes": 1000000,
    "max_bytes": 2000000,
    "high_bytes": 1800000,
    "peak_bytes": 1500000,
    "anon_bytes": 700000,
    "file_bytes": 250000,
    "shmem_bytes": 60000,
    "kernel_bytes": 40000,
    "inactive_file_bytes": 100000,
    "active_file_bytes": 90000,
    "unevictable_bytes": 7000,
    "swap_bytes": 4096,
    "oom_count": 3,
    "oom_kill_count": 2,
    "oom_group": True,
}
STAT_V1 = """\
cache 10
rss 20
shmem 30
inactive_file 40
active_file 50
swap 60
hierarchical_memory_limit 2000000
total_cache 250000
total_rss 700000
total_rss_huge 600000
total_shmem 60000
total_swap 4096
total_inactive_file 100000
total_active_file 90000
total_unevictable 7000
"""
FILES_V1: dict[str, str | int] = {
    "memory.usage_in_bytes": 1000000,
    "memory.limit_in_bytes": 2000000,
    "memory.max_usage_in_bytes": 1500000,
    "memory.soft_limit_in_bytes": 1,
    "memory.kmem.usage_in_bytes": 40000,
    "memory.failcnt": 3,
    "memory.stat": STAT_V1,
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2",
}
LEVEL_V1 = {**LEVEL_V2, "high_bytes": None, "oom_group": None}
ABSENT = dict.fromkeys(LEVEL_V2)
STAT_NONE = dict.fromkeys(
    ("anon_bytes", "file_bytes", "shmem_bytes", "inactive_file_bytes", "active_file_bytes", "unevictable_bytes")
)
LEVELS = {
    "v2": (2, FILES_V2, LEVEL_V2),
    "v2 no limits": (
        2,
        {**FILES_V2, "memory.max": "max", "memory.high": "max"},
        {**LEVEL_V2, "max_bytes": None, "high_bytes": None},
    ),
    "v2 limit of zero": (2, {**FILES_V2, "memory.max": 0}, {**LEVEL_V2, "max_bytes": 0}),
    "v2 not killed together": (2, {**FILES_V2, "memory.oom.group": 0}, {**LEVEL_V2, "oom_group": False}),
    "v2 before 5.18, no kernel row": (
        2,
        {**FILES_V2, "memory.stat": STAT_V2.replace("kernel 40000\n", "")},
        {**LEVEL_V2, "kernel_bytes": 30000},
    ),
    "v2 before 5.19, no peak": (
        2,
        {k: v for k, v in FILES_V2.items() if k != "memory.peak"},
        {**LEVEL_V2, "peak_bytes": None},
    ),
    "v2 without swap": (2, {k: v for k, v in FILES_V2.items() if "swap" not in k}, {**LEVEL_V2, "swap_bytes": None}),
    "v2 root": (2, {"memory.stat": STAT_V2}, {**ABSENT, **{k: LEVEL_V2[k] for k in [*STAT_NONE, "kernel_bytes"]}}),
    "v2 nothing": (2, {}, ABSENT),
    "v2 empty files": (2, dict.fromkeys(FILES_V2, ""), ABSENT),
    "v2 garbage": (2, dict.fromkeys(FILES_V2, "\0\xff -5 many\nanon\nanon x\noom_kill -1"), ABSENT),
    "v1": (1, FILES_V1, LEVEL_V1),
    "v1 no limit": (1, {**FILES_V1, "memory.limit_in_bytes": 9223372036854771712}, {**LEVEL_V1, "max_bytes": None}),
    "v1 no limit with pages of 64 KiB": (
        1,
        {**FILES_V1, "memory.limit_in_bytes": 9223372036854710272},
        {**LEVEL_V1, "max_bytes": None},
    ),
    "v1 before 4.13, no kills": (
        1,
        {**FILES_V1, "memory.oom_control": "oom_kill_disable 0\nunder_oom 0"},
        {**LEVEL_V1, "oom_kill_count": None},
    ),
    "v1 without swap": (
        1,
        {**FILES_V1, "memory.stat": STAT_V1.replace("total_swap 4096\n", "")},
        {**LEVEL_V1, "swap_bytes": None},
    ),
    "v1 nothing": (1, {}, ABSENT),
    "v1 empty files": (1, dict.fromkeys(FILES_V1, ""), ABSENT),
    "v1 garbage": (1, dict.fromkeys(FILES_V1, "\0\xff -5 many\ntotal_rss\ntotal_rss x\noom_kill -1"), ABSENT),
}


@pytest.mark.parametrize(("version", "files", "expected"), LEVELS.values(), ids=LEVELS)
def test_level(
    tree: FakeTree, version: int, files: dict[str, str | int], expected: dict[str, int | bool | None]
) -> None:
    """A level has the same names in both versions, the cgroups below it included; what is not there is None."""
    folder = tree.add_folder("m/a", files)
    level = read_level(Hierarchy(version, f"{tree.root}/m", "/"), folder)
    assert {"path": folder, **expected} == dataclasses.asdict(level)


@pytest.mark.parametrize(
    ("version", "files", "seldom"),
    [
        (2, FILES_V2, {"max_bytes", "high_bytes", "peak_bytes", "swap_bytes", "oom_group"}),
        (1, FILES_V1, {"max_bytes", "peak_bytes", "kernel_bytes", "oom_count"}),
    ],
    ids=["v2", "v1"],
)
def test_level_with_last(tree: FakeTree, version: int, files: dict[str, str | int], seldom: set[str]) -> None:
    """With the last reading at hand, what changes seldom is taken from there and the rest is read."""
    hierarchy = Hierarchy(version, f"{tree.root}/m", "/")
    last = Level(path="-", **{name: True if name == "oom_group" else 17 for name in LEVEL_V2})  # type: ignore[arg-type]
    now, full = read_level(hierarchy, tree.add_folder("m/a", files), last), read_level(hierarchy, f"{tree.root}/m/a")
    assert {name: getattr(last if name in seldom else full, name) for name in LEVEL_V2} == {
        name: getattr(now, name) for name in LEVEL_V2
    }


@pytest.mark.parametrize(
    ("current", "inactive", "active", "expected"),
    [
        (1000, 300, 200, 500),
        (1000, None, 200, 800),
        (1000, None, None, 1000),
        (1000, 900, 200, 0),
        (None, 300, 200, None),
        (0, 0, 0, 0),
    ],
    ids=["both", "one", "unknown", "more cache than all", "no usage", "zero"],
)
def test_used(
    tree: FakeTree, current: int | None, inactive: int | None, active: int | None, expected: int | None
) -> None:
    """What counts against the limit is without page cache, for the kernel drops that before it kills."""
    level = read_level(Hierarchy(2, tree.root, "/"), tree.root)
    assert (
        expected
        == dataclasses.replace(
            level, current_bytes=current, inactive_file_bytes=inactive, active_file_bytes=active
        ).used_bytes
    )


def test_used_counts_shmem(tree: FakeTree) -> None:
    """Shared memory is among the cache and cannot be dropped."""
    folder = tree.add_folder(
        "m", {"memory.current": 900, "memory.stat": "file 800\nshmem 700\ninactive_file 60\nactive_file 40\n"}
    )
    assert read_level(Hierarchy(2, folder, "/"), folder).used_bytes == 800


def test_limit_of_an_ancestor(tree: FakeTree) -> None:
    """A limit that stands two levels up is in the chain, and the levels without one say so."""
    tree.write("proc/self/mountinfo", v2())
    tree.write("proc/7/cgroup", "0::/pod/box/worker\n")
    tree.add_folder(CG[1:], {"cgroup.controllers": "memory"})
    tree.add_folder(f"{CG[1:]}/pod", {"memory.max": 8 * MIB, "memory.current": 5 * MIB})
    tree.add_folder(f"{CG[1:]}/pod/box", {"memory.max": "max", "memory.current": 4 * MIB})
    tree.add_folder(f"{CG[1:]}/pod/box/worker", {"memory.max": "max", "memory.current": 3 * MIB})
    hierarchy = find_hierarchy(tree.root)
    assert hierarchy is not None
    levels = [
        read_level(hierarchy, folder) for folder in find_chain(hierarchy, find_path(hierarchy, tree.root, 7) or "")
    ]
    assert [(x.current_bytes, x.max_bytes) for x in levels] == [
        (3 * MIB, None),
        (4 * MIB, None),
        (5 * MIB, 8 * MIB),
        (None, None),
    ]


def test_list_processes(tree: FakeTree) -> None:
    """Processes of a cgroup and of all below it; damaged lines and folders without the file are passed over."""
    tree.add_folder("m", {"cgroup.procs": "7\n8"})
    tree.add_folder("m/a", {"cgroup.procs": "9\nx\n"})
    tree.add_folder("m/a/b", {"cgroup.procs": ""})
    tree.add_folder("m/c/d", {"cgroup.procs": "10"})
    assert sorted(list_processes(f"{tree.root}/m")) == [7, 8, 9, 10]
    assert list_processes(f"{tree.root}/none") == []


ON_V1 = [
    pytest.mark.live,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup"),
    pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/memory/cgroup.procs", os.W_OK),
        reason="needs a writable cgroup v1 memory controller",
    ),
]
LIMIT_BYTES = 96 * MIB


def live(test: Callable[..., None]) -> Callable[..., None]:
    """Marks of a test that needs the real controller."""
    for mark in ON_V1:
        test = mark(test)
    return test


def wait_for(notifier: Notifier, name: str, most_s: float = 20) -> set[str]:
    """Everything that woke the notifier until `name` did or the time was over."""
    deadline, woken = time.monotonic() + most_s, set[str]()
    while name not in woken and time.monotonic() < deadline:
        woken |= notifier.wait(deadline)
    return woken


@live
def test_live_level(live_cgroup: Path, hog: Callable[[Path], subprocess.Popen[str]], grow: Callable[..., None]) -> None:
    """The real controller shows what a child allocated in it, and its limit."""
    child = hog(live_cgroup)
    grow(child, 40)
    hierarchy = find_hierarchy()
    assert hierarchy is not None
    folder = find_path(hierarchy, "", child.pid)
    level = read_level(hierarchy, str(live_cgroup))
    assert (1, str(live_cgroup), [child.pid]) == (hierarchy.version, folder, list_processes(str(live_cgroup)))
    assert [str(live_cgroup), hierarchy.mount] == find_chain(hierarchy, str(live_cgroup))
    assert (level.max_bytes, level.oom_kill_count) == (LIMIT_BYTES, 0)
    assert 40 * MIB <= (level.anon_bytes or 0) < 80 * MIB
    assert 40 * MIB <= (level.used_bytes or 0) <= (level.current_bytes or 0) < LIMIT_BYTES
    assert read_level(hierarchy, hierarchy.mount).max_bytes is None


@live
def test_live_threshold_and_kill(
    live_cgroup: Path, hog: Callable[[Path], subprocess.Popen[str]], grow: Callable[..., None]
) -> None:
    """The notifier wakes at a threshold and at the kill, and the kill is counted."""
    hierarchy = Hierarchy(1, "/sys/fs/cgroup/memory", "/")
    notifier = Notifier()
    notifier.watch_level(hierarchy, str(live_cgroup), LIMIT_BYTES)
    child = hog(live_cgroup)
    quiet = notifier.wait(time.monotonic())
    grow(child, 80)
    crossed = wait_for(notifier, "threshold 80%")
    level = read_level(hierarchy, str(live_cgroup))
    grow(child, 80, answers=False)
    killed = wait_for(notifier, "oom")
    code = child.wait(20)
    notifier.close()
    assert (set(), {"threshold 80%"}) == (quiet, crossed - {"threshold 90%"})
    assert {"oom"} <= killed
    assert (level.oom_kill_count, code, read_level(hierarchy, str(live_cgroup)).oom_kill_count) == (
        0,
        -signal.SIGKILL,
        1,
    )
