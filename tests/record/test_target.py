"""What is followed: trees, orphans, respawns, cgroups, reused pids; names and roles and what they rest on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.units import KIB
from tests.fake_tree import FakeTree

SCRIPT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: orphans come to this process

def fork(run):
    pid = os.fork()
    if pid == 0:
        run()
        signal.pause()
        os._exit(0)
    return pid

def fork_below(end):
    read, write = os.pipe()
    def run():
        os.write(write, b"%d" % fork(lambda: None))
        if end:
            os._exit(0)
    pid = fork(run)
    inner = int(os.read(read, 32))
    if end:
        os.waitpid(pid, 0)
    return pid, inner

def set_name(name):
    with open("/proc/self/comm", "w") as comm:
        comm.write(name)

print("up", flush=True)
for line in sys.stdin:
    what, *rest = line.split()
    if what == "fork":
        print(fork(lambda: None), flush=True)
    elif what == "named":
        read, write = os.pipe()
        print(fork(lambda: (set_name(rest[0]), os.write(write, b"x"))), os.read(read, 1), flush=True)
    elif what == "deep":
        print(*fork_below(False), flush=True)
    elif what == "orphan":
        print(*fork_below(True), flush=True)
    elif what == "collect":
        print(os.waitpid(int(rest[0]), 0)[0], flush=True)
"""


@pytest.fixture
def tree(tmp_path: Path) -> FakeTree:
    """An empty tree."""
    return FakeTree(tmp_path)


@pytest.fixture
def command() -> Iterator[subprocess.Popen[str]]:
    """A real process that forks as its input says and adopts its orphans; it ends with all its descendants."""
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert child.stdout is not None
    child.stdout.readline()
    yield child
    os.killpg(child.pid, signal.SIGKILL)
    child.communicate()


@pytest.fixture
def ask(command: subprocess.Popen[str]) -> Callable[[str], list[int]]:
    """Tells that process to do something; gives the pids that it answers."""

    def run(line: str) -> list[int]:
        assert command.stdin is not None
        assert command.stdout is not None
        command.stdin.write(line + "\n")
        command.stdin.flush()
        return [int(word) for word in command.stdout.readline().split() if word.isdigit()]

    return run


def always(process: Process) -> bool:
    """Every process is due."""
    return True


def never(process: Process) -> bool:
    """No process is due."""
    return False


def pids(processes: list[Process]) -> list[int]:
    """Their pids in order."""
    return sorted(process.pid for process in processes)


def test_tree(tree: FakeTree) -> None:
    """Descendants of a root are followed, whatever their pids; others are not."""
    tree.add_process(500)
    tree.add_process(300, 500)
    tree.add_process(100, 300)
    tree.add_process(600, 100)
    tree.add_process(700, 1)
    target = Target(tree.root, pids=[500])
    assert pids(target.discover()) == [100, 300, 500, 600]
    assert pids(target.discover()) == []
    assert {1, 2, 3, 4} == {process.uid for process in target.processes.values()}


def test_process(tree: FakeTree) -> None:
    """A new process has its identity and its command."""
    tree.add_process(7, 3, command="python train.py --lr 1", start=99)
    (process,) = Target(tree.root, pids=[7]).discover()
    assert (
        process.pid,
        process.ppid,
        process.start_ticks,
        process.uid,
        process.command,
        process.rss_bytes,
    ) == (7, 3, 99, 1, "python train.py --lr 1", 0)


def test_two_roots_and_one_more(tree: FakeTree) -> None:
    """Several trees are followed, and one that is named later, though it was passed over before."""
    tree.set_last_pid(30)
    tree.add_process(10)
    tree.add_process(20)
    tree.add_process(30)
    target = Target(tree.root, pids=[10, 20])
    first = pids(target.discover())
    target.add_root(30)
    assert (first, pids(target.discover())) == ([10, 20], [30])


def test_children_of_a_root_that_is_named_later(tree: FakeTree) -> None:
    """A tree that is named later is followed with the children that it already has."""
    tree.add_process(30)
    tree.add_process(31, 30)
    target = Target(tree.root, pids=[10])
    target.discover()
    target.add_root(30)
    assert pids(target.discover()) == [30, 31]


def test_nothing_to_follow(tmp_path: Path) -> None:
    """Without /proc, and with a root that is gone, nothing is found and nothing fails."""
    target = Target(str(tmp_path), pids=[7])
    assert (target.discover(), target.sweep(always)) == ([], [])


def test_damaged_process(tree: FakeTree) -> None:
    """A process whose files are damaged or absent is passed over, and is found when they are there."""
    tree.add_process(7)
    tree.write("proc/8/stat", b"\xff")
    tree.write("proc/9/stat", "9 (x) S 7 " + "0 " * 40)
    target = Target(tree.root, pids=[7, 8])
    first = pids(target.discover())
    tree.add_process(8)
    tree.add_process(9, 7)
    assert (first, pids(target.discover())) == ([7], [8, 9])


def test_ignored(tree: FakeTree) -> None:
    """The recorder is not followed although it is a child, and neither are its own children."""
    tree.add_process(7)
    tree.add_process(8, 7)
    tree.add_process(9, 8)
    assert pids(Target(tree.root, pids=[7], ignore=[8]).discover()) == [7]


def test_orphan_comes_to_the_recorder(tree: FakeTree) -> None:
    """A process whose parent ended unseen is followed by its new parent."""
    tree.add_process(7)
    tree.add_process(9, 50)
    assert pids(Target(tree.root, pids=[7], adopt=50, ignore=[50]).discover()) == [7, 9]


def test_orphan_of_a_followed_parent(tree: FakeTree) -> None:
    """A followed process stays followed when its parent ends, and so do its later children."""
    tree.add_process(7)
    tree.add_process(8, 7)
    tree.add_process(9, 8)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.end_process(8)
    (gone,) = target.sweep(always)
    target.drop(gone)
    tree.add_process(9, 1)
    tree.add_process(10, 9)
    assert (8, [10], {7, 9, 10}) == (gone.pid, pids(target.discover()), set(target.processes))


def test_respawn(tree: FakeTree) -> None:
    """What is started anew in the place of a dead process is a new process."""
    tree.add_process(7)
    tree.add_process(8, 7)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.end_process(8)
    tree.add_process(9, 7)
    (gone,) = target.sweep(always)
    target.drop(gone)
    (new,) = target.discover()
    assert (gone.pid, new.pid, new.uid) == (8, 9, 3)


def test_reused_pid(tree: FakeTree) -> None:
    """A pid that has a new owner since the last tick is another process with a uid of its own."""
    tree.add_process(7)
    tree.add_process(8, 7, start=100)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.end_process(8)
    tree.add_process(8, 7, start=200, command="python other.py")
    (gone,) = target.sweep(never)
    target.drop(gone)
    (new,) = target.discover()
    assert (gone.uid, gone.start_ticks, new.uid, new.start_ticks, new.command) == (2, 100, 3, 200, "python other.py")


def test_reused_pid_of_a_root(tree: FakeTree) -> None:
    """The next owner of a dead root's pid is a stranger."""
    tree.add_process(7, start=100)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.end_process(7)
    tree.add_process(7, start=200)
    (gone,) = target.sweep(never)
    target.drop(gone)
    assert (gone.pid, target.discover()) == (7, [])


def test_children_of_a_reused_pid(tree: FakeTree) -> None:
    """Between two ticks a stranger may get the pid of a followed process and have children."""
    tree.add_process(7)
    tree.add_process(8, 7, start=4800)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.end_process(8)
    tree.add_process(8, 1, start=5000)
    tree.add_process(9, 8, start=5001)
    assert pids(target.discover()) == []


@pytest.mark.parametrize(("start", "found"), [(4000, [7]), (4712, [])])
def test_a_pid_that_was_named_before(tree: FakeTree, start: int, found: list[int]) -> None:
    """Who got the pid after it was named is another process."""
    tree.add_process(7, start=start)
    assert pids(Target(tree.root, pids=[7], named_ticks=4711).discover()) == found


def test_scan_is_spared(tree: FakeTree) -> None:
    """While the newest pid of the system is the same nothing is looked for, but once in a while all the same."""
    tree.set_last_pid(7)
    tree.add_process(7)
    target = Target(tree.root, pids=[7])
    first = pids(target.discover())
    tree.add_process(8, 7)
    spared = [pids(target.discover()) for _ in range(58)]
    assert (first, spared, pids(target.discover())) == ([7], [[]] * 58, [8])


def test_new_pid_is_looked_for(tree: FakeTree) -> None:
    """A new pid of the system leads to a scan at once."""
    tree.set_last_pid(7)
    tree.add_process(7)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.add_process(8, 7)
    tree.set_last_pid(8)
    assert pids(target.discover()) == [8]


def test_stranger_is_looked_at_again(tree: FakeTree) -> None:
    """A pid that was none of ours is looked at again once in a while, for it may have a new owner."""
    tree.add_process(7)
    tree.add_process(8, 1)
    target = Target(tree.root, pids=[7])
    target.discover()
    tree.add_process(8, 7, start=200)
    later = [pids(target.discover()) for _ in range(59)]
    assert (later[:58], later[58]) == ([[]] * 58, [8])


def test_cgroup(tree: FakeTree) -> None:
    """All processes of a cgroup and of those below it are followed, and their children wherever they are."""
    folder = tree.add_folder("cg/a", {"cgroup.procs": "7"})
    tree.add_folder("cg/a/b", {"cgroup.procs": "8"})
    tree.add_process(7)
    tree.add_process(8)
    tree.add_process(9)
    tree.add_process(10, 8)
    target = Target(tree.root, cgroup=folder)
    first = pids(target.discover())
    tree.add_process(11)
    tree.add_folder("cg/a/b", {"cgroup.procs": "8\n11"})
    assert (first, pids(target.discover())) == ([7, 8, 10], [11])


def test_process_that_enters_the_cgroup(tree: FakeTree) -> None:
    """A process that was started elsewhere and is moved into the cgroup is followed from then on."""
    folder = tree.add_folder("cg", {"cgroup.procs": ""})
    tree.add_process(9)
    target = Target(tree.root, cgroup=folder)
    target.discover()
    tree.add_folder("cg", {"cgroup.procs": "9"})
    assert pids(target.discover()) == [9]


ROLES = {
    "actor's title": (
        "ray::ActorModelRayActor",
        "ray::ActorModel",
        None,
        "ray::ActorModelRayActor",
        "actor",
        "its title ray::ActorModelRayActor",
    ),
    "actor's name": (
        "python default_worker.py",
        "python",
        "CriticModelRayActor",
        "CriticModelRayActor",
        "critic",
        "Ray names it CriticModelRayActor",
    ),
    "title says more than the name": (
        "ray::ActorModelRayActor.fit",
        "ray::ActorModel",
        "ActorModelRayActor",
        "ray::ActorModelRayActor.fit",
        "actor",
        "Ray names it ActorModelRayActor",
    ),
    "name without a role": ("ray::IDLE", "ray::IDLE", "helper", "helper", None, ""),
    "title without a role": ("ray::IDLE", "ray::IDLE", None, "ray::IDLE", None, ""),
    "engine": (
        "VLLM::EngineCore_0",
        "VLLM::EngineCor",
        None,
        "VLLM::EngineCore_0",
        "rollout engine",
        "its title VLLM::EngineCore_0",
    ),
    "other engine": (
        "sglang::scheduler_TP0",
        "sglang::scheduler",
        None,
        "sglang::scheduler_TP0",
        "rollout engine",
        "its title sglang::scheduler_TP0",
    ),
    "data loader": (
        "python train.py",
        "pt_data_worker",
        None,
        "pt_data_worker",
        "data loader",
        "torch names its thread pt_data_worker",
    ),
    "forked loader": ("python train.py", "my_loader", None, "my_loader", "data loader", "a forked copy of its parent"),
    "forked": ("python train.py", "python", None, "python", "worker", "a forked copy of its parent"),
    "reward worker": ("python reward_worker.py", "python", None, "python", "reward worker", "its command line"),
    "reward worker's title": (
        "ray::RewardLoopWorker",
        "ray::RewardLoop",
        None,
        "ray::RewardLoopWorker",
        "reward worker",
        "its title ray::RewardLoopWorker",
    ),
    "raylet": ("/x/raylet/raylet --node_id=1", "raylet", None, "raylet", "raylet", "its command line"),
    "another program": ("sleep 5", "sleep", None, "sleep", None, ""),
    "no command": ("", "sh", None, "sh", None, ""),
}


@pytest.mark.parametrize(("command", "comm", "ray_name", "name", "role", "basis"), ROLES.values(), ids=ROLES)
def test_role(
    tree: FakeTree, command: str, comm: str, ray_name: str | None, name: str, role: str | None, basis: str
) -> None:
    """A process has a name, a role where something tells it, and what that rests on."""
    tree.add_process(7)
    tree.add_process(8, 7, command=command, comm=comm)
    target = Target(tree.root, pids=[7])
    target.discover()
    target.sweep(always)
    process = target.processes[8]
    target.name(process, ray_name)
    assert (name, role, basis) == (process.name, process.role, process.basis)


@pytest.mark.parametrize(
    ("command", "role", "basis"),
    [
        ("python train.py", "driver", "the command that is watched"),
        ("bash run.sh", "driver", "the command that is watched"),
        ("/x/raylet/raylet --node_id=1", "raylet", "its command line"),
        ("ray::ActorModelRayActor", "actor", "its title ray::ActorModelRayActor"),
    ],
)
def test_role_of_a_root(tree: FakeTree, command: str, role: str, basis: str) -> None:
    """The watched command is the driver, unless it is a part of Ray."""
    tree.add_process(7, command=command)
    (process,) = Target(tree.root, pids=[7]).discover()
    assert (role, basis) == (process.role, process.basis)


def test_role_stays(tree: FakeTree) -> None:
    """A role that is known is not lost to a title that says nothing, and one from the probe is not changed."""
    tree.add_process(7)
    tree.add_process(8, 7, command="ray::IDLE")
    tree.add_process(9, 7, command="ray::ActorModelRayActor")
    target = Target(tree.root, pids=[7])
    target.discover()
    known, probed = target.processes[8], target.processes[9]
    target.name(known, "CriticModelRayActor")
    probed.role, probed.basis = "reference", "probe"
    assert (target.name(known), target.name(probed)) == (True, False)
    assert (known.role, known.name, probed.role, probed.basis) == ("critic", "ray::IDLE", "reference", "probe")


def test_name_changes(tree: FakeTree) -> None:
    """Whether a name changed is said, once."""
    tree.add_process(7)
    tree.add_process(8, 7, command="python default_worker.py")
    target = Target(tree.root, pids=[7])
    target.discover()
    process = target.processes[8]
    assert (target.name(process, "WorkerDict"), target.name(process, "WorkerDict")) == (True, False)


def test_sweep_reads_what_moved(tree: FakeTree) -> None:
    """A process that stands still is not read in full, one that grew by half a MiB is."""
    tree.add_process(7, anon_kb=3000)
    target = Target(tree.root, pids=[7])
    (process,) = target.discover()
    target.sweep(never)
    first = process.rss_bytes
    tree.change(7, anon_kb=3000 + 127 * 4)
    target.sweep(never)
    still = process.rss_bytes
    tree.change(7, anon_kb=3000 + 128 * 4)
    target.sweep(never)
    assert (first, still, process.rss_bytes) == (4500 * KIB, 4500 * KIB, 5012 * KIB)


def test_sweep_reads_what_is_due(tree: FakeTree) -> None:
    """A process that is due is read in full with its CPU time and faults; bytes of storage stay as they were."""
    tree.add_process(7, cpu=60)
    target = Target(tree.root, pids=[7])
    (process,) = target.discover()
    process.slow, process.row = (1, 2, 3, 4), (9, 9)
    target.sweep(never)
    before = process.slow
    tree.change(7, anon_kb=3004)
    target.sweep(always)
    assert (before, process.slow, process.rss_bytes) == ((1, 2, 3, 4), (60, 12, 3, 4), 4504 * KIB)
    assert len(process.row) == 0


@pytest.mark.parametrize("state", ["Z", "X"])
def test_zombie_is_gone(tree: FakeTree, state: str) -> None:
    """A zombie is gone, with the last status that it had while it lived."""
    tree.add_process(7, anon_kb=9000)
    target = Target(tree.root, pids=[7])
    (process,) = target.discover()
    target.sweep(never)
    tree.change(7, state=state, memory=False)
    assert ([process], 10500 * KIB) == (target.sweep(never), process.rss_bytes)


def test_ending_process_is_not_gone_yet(tree: FakeTree) -> None:
    """A process that has given its memory back and still runs keeps its last status and is followed on."""
    tree.add_process(7, anon_kb=9000)
    target = Target(tree.root, pids=[7])
    (process,) = target.discover()
    target.sweep(never)
    tree.change(7, state="R", memory=False)
    assert (target.sweep(always), process.rss_bytes) == ([], 10500 * KIB)


def test_ended_before_it_was_read(tree: FakeTree) -> None:
    """A process that ends before its first sample is gone without a status."""
    tree.add_process(7)
    target = Target(tree.root, pids=[7])
    (process,) = target.discover()
    tree.end_process(7)
    assert ([process], None, 0) == (target.sweep(never), process.status, process.rss_bytes)


def test_live_tree(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """Real children and grandchildren are found when they are there, once."""
    target = Target(pids=[command.pid])
    first = pids(target.discover())
    child = ask("fork")
    second = pids(target.discover())
    deep = ask("deep")
    assert ([command.pid], child, sorted(deep), []) == (first, second, pids(target.discover()), target.discover())


def test_live_death(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """A killed process is reported with the last status that it had, whether it was collected or not; a respawn is new."""
    target = Target(pids=[command.pid])
    one, two = ask("fork") + ask("fork")
    target.discover()
    before = target.sweep(always)
    os.kill(one, signal.SIGKILL)
    os.kill(two, signal.SIGKILL)
    assert [one, two] == ask(f"collect {one}") + ask(f"collect {two}")
    gone = target.sweep(never)
    assert ([], sorted([one, two])) == (before, pids(gone))
    assert [process.rss_bytes > 1 << 20 for process in gone] == [True, True]
    assert [target.drop(process) for process in gone] == [None] * 2  # type: ignore[func-returns-value]
    (new,) = ask("fork")
    assert ([new], {command.pid, new}) == (pids(target.discover()), set(target.processes))


def test_live_zombie(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """A killed process that nobody collects is gone all the same, with the last status that it had."""
    target = Target(pids=[command.pid])
    (child,) = ask("fork")
    target.discover()
    target.sweep(always)
    os.kill(child, signal.SIGKILL)
    assert wait_for_zombie(child) == "Z"
    (gone,) = target.sweep(never)
    assert (child, True) == (gone.pid, gone.rss_bytes > 1 << 20)


def wait_for_zombie(pid: int) -> str:
    """The state of a killed process once it has one that is final."""
    state = ""
    while state not in ("Z", "X"):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return state


def test_live_orphan(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """A real orphan whose parent was never seen is adopted, by the process that it was given to."""
    _, orphan = ask("orphan")
    (found,) = Target(adopt=command.pid).discover()
    assert (orphan, command.pid) == (found.pid, found.ppid)


def test_live_orphan_that_was_followed(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """A real grandchild stays followed, and alive, when its parent is killed."""
    child, inner = ask("deep")
    target = Target(pids=[child])
    target.discover()
    target.sweep(always)
    os.kill(child, signal.SIGKILL)
    ask(f"collect {child}")
    (gone,) = target.sweep(always)
    target.drop(gone)
    assert (child, {inner}, []) == (gone.pid, set(target.processes), target.sweep(always))


def test_live_data_loader(command: subprocess.Popen[str], ask: Callable[[str], list[int]]) -> None:
    """A real worker that torch named is a data loader, and another copy of its parent a worker."""
    target = Target(pids=[command.pid])
    (loader,), (copy,) = ask("named pt_data_worker"), ask("fork")
    target.discover()
    target.sweep(always)
    assert target.name(target.processes[loader])
    assert tuple(target.processes[pid].role for pid in (loader, copy, command.pid)) == (
        "data loader",
        "worker",
        "driver",
    )
