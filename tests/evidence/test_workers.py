"""What loader and reward workers hold, ownerless and growing shared memory, refused processes, ranks in a reward function."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.comm import find_collectives
from rlhfdoctor.evidence.death import find_death
from rlhfdoctor.evidence.rlimits import find_process_limit
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.evidence.shm import climb, find_leaks
from rlhfdoctor.evidence.workers import Table, find_workers, share_of
from rlhfdoctor.i18n.message import Message
from rlhfdoctor.logs.events import order_events
from rlhfdoctor.types import Value
from tests.build import read_log
from tests.record.build import make_case, make_death, phase, steps, write_run

Course = Callable[[int], float]
TIMEOUT = "RuntimeError: [../gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 10000ms for recv operation to complete"


def flat(mib: float) -> Course:
    """Memory that stands still."""
    return lambda t: mib


def logged(text: str) -> Case:
    """A case of one log."""
    return Case(order_events(read_log(text)))


def limits(text: str) -> tuple[str | None, Value | Message]:
    """(kind, whether it came first) of the process limit in a log."""
    case = logged(text)
    found = {e.name: e.value for e in find_process_limit(case, find_death(case))}
    kind = found.get("limit.kind")
    return (kind if kind is None else str(kind)), found.get("limit.first")


def waits(text: str) -> dict[str, Value]:
    """Facts of the collectives in a log."""
    return {e.name: e.value for e in find_collectives(logged(text))}


@pytest.mark.parametrize(
    ("rows", "used", "share"),
    [
        ([("data loader", 40), ("actor", 60)], 100, (40, 0.4, 0.4)),
        (
            [("data loader", 40), ("actor", 60)],
            None,
            (0, 0.0, 0.4),
        ),  # nobody told the use, and it may be a fork of the actor
        ([("data loader", 40), ("data loader", 40), ("actor", 20)], 100, (80, 0.8, 0.8)),
        ([("data loader", 40), ("data loader", 40), ("driver", 40), ("actor", 50)], 100, (10, 0.1, 0.8)),
        (
            [("actor", 40)] + [("data loader", 40)] * 8,
            45,
            (5, 5 / 45, 1.0),
        ),  # forks of the actor that have written little
        ([("data loader", 60), ("data loader", 60), ("actor", 10)], 90, (80, 80 / 90, 1.0)),
        ([("data loader", 60)] + [("actor", 20)] * 3, 80, (40, 0.5, 0.75)),  # it can share with one parent only
        ([("data loader", 90), ("actor", 10)], 50, (50, 1.0, 1.0)),
        ([("actor", 10)], 50, None),
    ],
)
def test_share_is_a_range(
    rows: list[tuple[str, int]], used: int | None, share: tuple[int, float, float] | None
) -> None:
    """What the sum exceeds the use by may be pages that forks share with their parent: taken off the least, not off the most."""
    found = share_of(Table(tuple(rows), used, None), "data loader")
    assert (None if found is None else (found.bytes, found.ratio, found.most_ratio)) == share


def test_spawned_workers_share_with_each_other_only() -> None:
    """Pages that forks of the data loader share are not taken off the reward workers, which nobody forked."""
    rows = (("reward worker", 200), ("reward worker", 200), ("actor", 300), *[("data loader", 300)] * 4)
    found = share_of(Table(rows, 700, None), "reward worker")
    assert found is not None and (found.bytes, round(found.ratio, 3)) == (200, 0.286)


def test_batches_in_shared_memory_may_be_the_loaders() -> None:
    """Shared memory that is reported of no role counts in the most that they hold."""
    found = share_of(
        Table((("data loader", 10), ("actor", 20), ("shmem", 70)), 100, None, unowned_bytes=70), "data loader"
    )
    assert found is not None and (found.bytes, found.most_ratio) == (10, 0.8)


def test_shares_of_a_trace(tmp_path: Path) -> None:
    """Processes of a role count together, whatever their number."""
    anon = {"actor": flat(600), "reward worker#0": flat(200), "reward worker#1": flat(200)}
    write_run(tmp_path, 30, use=flat(1000), anon=anon)
    found = {e.name: e.value for e in find_workers(make_case(tmp_path), make_death(29))}
    assert (found["share.reward_count"], found["share.reward_ratio"], found["share.driver_apart"]) == (2, 0.4, True)


@pytest.mark.parametrize(
    "name",
    [
        "ray::RewardLoopWorker.compute_score",
        "ray::RewardManagerWorker",
        "ray::RewardWork",
        "ray::RewardWorker.score",
        "ray::SandboxWorker.run",
    ],
)
def test_reward_workers_by_name(name: str) -> None:
    """Ray's titles, the kernel's fifteen letters of them included."""
    assert find_role(name) == "reward worker"


def test_who_grew_once_the_steps_ran(tmp_path: Path) -> None:
    """The ranks' load before the second step is no growth of the run; what workers take from then on is."""
    rank: Course = lambda t: 200.0 * min(t, 20)  # noqa: E731
    worker: Course = lambda t: 100.0 + 20 * max(0, t - 25)  # noqa: E731
    anon = {"actor": rank, "reward worker#0": worker, "reward worker#1": worker}
    write_run(tmp_path, 120, use=lambda t: rank(t) + 2 * worker(t), anon=anon, events=steps(10, 10, 15))
    found = {e.name: e.value for e in find_workers(make_case(tmp_path), make_death(119))}
    assert (found["share.late_grower_role"], found["share.late_grower_ratio"]) == ("reward worker", 1.0)


def test_pages_that_forks_share_are_no_growth(tmp_path: Path) -> None:
    """Loader workers that start late show their parent's pages; the use below the limit tells that they took none."""
    anon = {"driver": flat(3000), **{f"data loader#{i}": lambda t: 3000.0 if t > 50 else -1.0 for i in range(4)}}
    write_run(tmp_path, 120, use=flat(3100), anon=anon, events=steps(10, 10, 15))
    assert "share.late_grower_role" not in {e.name for e in find_workers(make_case(tmp_path), make_death(119))}


@pytest.mark.parametrize(("name", "role"), [("ray::RewardModelRayActor", "reward"), ("/home/sandbox/train.py", None)])
def test_no_reward_workers(name: str, role: str | None) -> None:
    """A reward model is none, nor a folder with such a name."""
    assert find_role(name) == role


@pytest.mark.parametrize(
    ("course", "found"),
    [
        (lambda t: t, (99, 20)),
        (lambda t: 0 if t < 2 else 100, (0, 0)),
        (lambda t: t % 50, (0, 0)),
        (lambda t: 100 - t, (0, 0)),
    ],
    ids=["grows", "at the start only", "falls", "is given back"],
)
def test_climb(course: Callable[[int], int], found: tuple[int, int]) -> None:
    """Only what grows over the run and never falls is a climb."""
    rise, rises = climb([(float(t), course(t)) for t in range(100)])
    assert (rise, rises) == pytest.approx(found, abs=1)


def leaks(folder: Path, host: Mapping[str, Course], level: Mapping[str, Course], killer: str) -> dict[str, Value]:
    """Facts of /dev/shm in a run of ten minutes with a limit of 16 GiB."""
    write_run(folder, 600, use=flat(15000), anon={"actor": flat(5000)}, host=host, level=level)
    return {e.name: e.value for e in find_leaks(make_case(folder), make_death(599, killer=killer))}


@pytest.mark.parametrize(
    ("charged", "killer", "ratio"),
    [(8192, "kernel-oom-cgroup", 0.25), (1024, "kernel-oom-cgroup", 0.0625), (8192, "sigbus", 0.5)],
)
def test_orphans_against_their_limit(tmp_path: Path, charged: int, killer: str, ratio: float) -> None:
    """Against the memory limit counts what the cgroup is charged for; a bus error is about /dev/shm itself."""
    host = {"shm_size_bytes": flat(8192), "shm_used_bytes": flat(6000), "shm_orphaned_bytes": flat(4096)}
    assert leaks(tmp_path, host, {"shmem_bytes": flat(charged)}, killer)["shm.orphaned_ratio"] == ratio


@pytest.mark.parametrize(("unlinked", "ratio"), [(0, 0.36), (1, 0.0)])
def test_object_store_is_no_leak(tmp_path: Path, unlinked: int, ratio: float) -> None:
    """Growth counts for files with a name only."""
    used: Course = lambda t: 10.0 * t  # noqa: E731
    host = {"shm_size_bytes": flat(16384), "shm_used_bytes": used, "shm_unlinked_bytes": lambda t: unlinked * used(t)}
    assert leaks(tmp_path, host, {}, "sigbus")["shm.climb_ratio"] == pytest.approx(ratio, abs=0.01)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("OSError: [Errno 24] Too many open files: '/data/x'", ("open files", True)),
        ("RuntimeError: can't start new thread", ("processes or threads", True)),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", ("processes or threads", True)),
        ("bash: fork: retry: Resource temporarily unavailable", ("processes or threads", True)),
        (
            '  File "/usr/lib/python3.11/subprocess.py", line 1, in _execute_child\nBlockingIOError: [Errno 11] Resource temporarily unavailable',
            ("processes or threads", True),
        ),
        ("zmq.error.Again: Resource temporarily unavailable", (None, None)),
        ("inotify_init: Too many open files", (None, None)),
        ("KeyError: 'a'\nRuntimeError: can't start new thread\n" + "x\n" * 9, ("processes or threads", True)),
        ("KeyError: 'a'\n" + "x\n" * 9 + "RuntimeError: can't start new thread", ("processes or threads", False)),
        ("can't start new thread\nstep:1 - a:0\nstep:2 - a:0\nKeyError: 'a'", ("processes or threads", False)),
    ],
)
def test_process_limit(text: str, found: tuple[str | None, Value]) -> None:
    """Which limit it was, and whether it came before what ended the run."""
    assert limits(text) == found


@pytest.mark.parametrize(
    ("frame", "inside"),
    [
        ('  File "/opt/trainer/roles.py", line 258, in score', True),
        ('  File "/opt/verl/utils/reward_score/math.py", line 3, in last_boxed', True),
        ('  File "/x/trl/trainer/grpo_trainer.py", line 1031, in _calculate_rewards', True),
        ('  File "/opt/trainer/roles.py", line 153, in _logprobs', False),
    ],
)
def test_rank_in_the_reward_function(frame: str, inside: bool) -> None:
    """A stack that ends in the scoring stands there; one that ends in a collective has only come from there."""
    stack = f'{frame}\n  File "/x/torch/distributed/distributed_c10d.py", line 2932, in all_reduce\n{TIMEOUT}\n'
    standing, waiting = waits(f"{frame}\n{TIMEOUT}\n"), waits(stack)
    assert (standing.get("comm.in_reward", False), waiting.get("comm.behind_reward", False)) == (inside, inside)
    assert waiting.get("comm.in_reward") is (None if inside else False)


def test_reward_error_long_before(tmp_path: Path) -> None:
    """A reward function whose error was caught is not where the rank waits."""
    assert "comm.in_reward" not in waits(f'  File "/r.py", line 4, in compute_score\nValueError: x\n{TIMEOUT}\n')


def test_scoring_bar() -> None:
    """The time of a progress bar against the limit."""
    found = waits(f"Judging responses:  12%|#2        | 61/512 [00:09<01:09, 1.2it/s]\n{TIMEOUT}\n")
    assert found["comm.reward_to_timeout"] == 0.9


def test_data_set_last(tmp_path: Path) -> None:
    """Preparation counts only as the last sign of life."""
    bar = "Map:  71%|#######1  | 71/100 [12:40<05:10, 3923.10 examples/s]\n"
    last = [
        {e.name for e in find_workers(logged(text), None)}
        for text in (bar, bar + "Loading checkpoint shards:  50%|#| 7/14\n")
    ]
    assert ["data.preparing" in names for names in last] == [True, False]


def test_driver_that_is_the_only_process(tmp_path: Path) -> None:
    """A driver without ranks beside it holds the model itself."""
    write_run(tmp_path, 30, use=flat(1000), anon={"driver": flat(900)}, events=[phase(0, "load")])
    assert "share.driver_apart" not in {e.name for e in find_workers(make_case(tmp_path), make_death(29))}


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02 03:04:05 WARNING (Thread-5) zmq send failed, will retry: Resource temporarily unavailable\nKeyError: 'a'",
        "could not upload artifact: [Errno 24] Too many open files, will retry\nKeyError: 'a'",
        "WARNING (Thread-5) send failed: Resource temporarily unavailable\nKeyError: 'a'",
    ],
)
def test_what_is_tried_again_is_no_limit(text: str) -> None:
    """A warning about a call that is repeated ended nothing."""
    assert limits(text) == (None, None)
