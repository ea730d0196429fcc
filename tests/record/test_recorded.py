"""Evidence and ledger of recorded runs: growth by step, phase of the peak, who held and who grew, shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.evidence.ledger import make_ledger
from rlhfdoctor.evidence.window import find_culprit, find_failure_window
from rlhfdoctor.types import Death, Process, Value
from rlhfdoctor.units import GIB, MIB
from tests.record.build import (
    CGROUP,
    LIMIT_BYTES,
    START_S,
    TOTAL_BYTES,
    Course,
    event,
    facts,
    make_case,
    make_death,
    phase,
    step,
    steps,
    write_run,
)

SECONDS = 120
LONG_S = 700
"""In which growth counts though no step was seen."""
LIMIT_MIB = LIMIT_BYTES // MIB


def climb(start: float, rate: float) -> Course:
    """Steady growth in MiB a second."""
    return lambda t: start + rate * t


def flat(value: float) -> Course:
    """No growth."""
    return lambda t: value


def sawtooth(low: float, high: float, every: int, rise: float = 0.0) -> Course:
    """Rises and falls, with peaks that rise by so much from tooth to tooth."""
    return lambda t: low + (high - low + rise * (t // every)) * (t % every) / (every - 1)


def stairs(start: float, jump: float, every: int) -> Course:
    """A jump now and then, flat between."""
    return lambda t: start + jump * (t // every)


def spike(base: float, top: float, begin: int, end: int) -> Course:
    """Flat, but for some seconds."""
    return lambda t: top if begin <= t < end else base


def some(found: Mapping[str, Value], *names: str) -> list[Value]:
    """These facts, in order; None where there is none."""
    return [found.get(name) for name in names]


GROWTH = ("trace.growth", "trace.is_growing", "host.rising_steps_ratio")


def test_steady_climb(tmp_path: Path) -> None:
    """Growth over all steps: a slope, the rise of the peaks a step, and that it rose in each."""
    write_run(tmp_path, SECONDS, use=climb(1024, 100), events=steps(12, 10))
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert some(found, *GROWTH) == ["slope", True, 1.0]
    assert found["host.slope_bytes_per_step"] == pytest.approx(1000 * MIB, rel=0.02)
    assert found["host.growth_ratio"] == pytest.approx((1024 + 119 * 100) / (1024 + 20 * 100) - 1, rel=0.02)


def test_flat_peaks(tmp_path: Path) -> None:
    """A sawtooth whose peaks stand still does not grow, in whichever step one looks."""
    write_run(tmp_path, SECONDS, use=sawtooth(2000, 10000, 10), events=steps(12, 10))
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert some(found, *GROWTH, "host.slope_bytes_per_step", "host.growth_ratio") == ["sawtooth", False, 0.0, 0, 0.0]


def test_rising_peaks(tmp_path: Path) -> None:
    """A sawtooth whose peaks rise grows by what they rise from step to step."""
    write_run(tmp_path, SECONDS, use=sawtooth(2000, 8000, 10, rise=500), events=steps(12, 10))
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert some(found, *GROWTH) == ["sawtooth", True, 1.0]
    assert found["host.slope_bytes_per_step"] == pytest.approx(500 * MIB, rel=0.05)


def test_staircase(tmp_path: Path) -> None:
    """Jumps with flat treads are a staircase, and each step that brings one climbs."""
    write_run(tmp_path, SECONDS, use=stairs(1000, 800, 10), events=steps(11, 10, first_s=5))
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert some(found, *GROWTH) == ["staircase", True, 1.0]
    assert found["host.slope_bytes_per_step"] == pytest.approx(800 * MIB, rel=0.01)


def test_level(tmp_path: Path) -> None:
    """Use that stands still is a level, with or without steps."""
    write_run(tmp_path, SECONDS, use=flat(4000), events=steps(12, 10))
    assert some(facts(tmp_path), *GROWTH) == ["level", False, 0.0]


@pytest.mark.parametrize(("count", "known"), [(3, False), (4, True)])
def test_few_steps(tmp_path: Path, count: int, known: bool) -> None:
    """Below four marks of steps nothing is said of growth: loading and the first optimizer step rise in every run."""
    write_run(tmp_path, SECONDS, use=climb(1024, 100), events=steps(count, 10))
    found = facts(tmp_path)
    assert (found.get("trace.growth"), "host.slope_bytes_per_step" in found) == ("slope" if known else None, known)


def test_short_trace(tmp_path: Path) -> None:
    """A trace of a few samples says nothing of growth."""
    write_run(tmp_path, 4, use=climb(1024, 100))
    assert some(facts(tmp_path), "trace.growth") == [None]


def test_full(tmp_path: Path) -> None:
    """How full the limit became, and how long before the death the last sample was taken."""
    write_run(tmp_path, SECONDS, use=climb(LIMIT_MIB / 2, LIMIT_MIB / 2 / 119))
    found = facts(tmp_path, make_death(SECONDS - 0.5))
    assert found["trace.full_ratio"] == pytest.approx(1.0)


def full(begin: int, end: int = SECONDS, mib: float = LIMIT_MIB) -> Course:
    """Half of the limit, then all of it, then what is left of processes that have been killed."""
    return lambda t: LIMIT_MIB / 2 if t < begin else mib if t < end else 100


def reads(begin: int, rate: float) -> Course:
    """Major faults from a second on, as the recorder shows them: read once in ten seconds, repeated between."""
    return lambda t: 50 + rate * max(0, t - t % 10 - begin)


@pytest.mark.parametrize(
    ("use", "faults", "thrashed_s"),
    [
        pytest.param(full(60), [reads(60, 2)] * 3, 59, id="at the limit, and programs are read back"),
        pytest.param(full(60), [reads(60, 2), reads(60, 2), flat(7)], 59, id="most programs"),
        pytest.param(full(60), [reads(60, 2), flat(3), flat(7)], None, id="one process reads its data"),
        pytest.param(full(60), [reads(60, 0.1)] * 3, None, id="hardly any"),
        pytest.param(full(60), [reads(0, 2)] * 3, None, id="as ever before"),
        pytest.param(full(60), [lambda t: reads(0, 0.2)(t) + reads(60, 4)(t)] * 2, 59, id="many more than before"),
        pytest.param(full(60, mib=LIMIT_MIB - 300), [reads(60, 2)] * 3, None, id="room for the programs"),
        pytest.param(full(95), [reads(95, 9)] * 3, None, id="at the limit for a moment"),
        pytest.param(full(60, 115), [reads(60, 2)] * 3, 54, id="what was killed gives back before the death is seen"),
        pytest.param(full(60, 105), [reads(60, 2)] * 3, None, id="it came down by itself"),
        pytest.param(full(60), [], None, id="no process"),
    ],
)
def test_thrash(tmp_path: Path, use: Course, faults: list[Course], thrashed_s: float | None) -> None:
    """A cgroup that is full to the end while most processes read pages back that they did not read before."""
    roles = {f"actor#{n}": course for n, course in enumerate(faults)}
    write_run(tmp_path, SECONDS, use=use, anon=dict.fromkeys(roles, flat(2000)), faults=roles)
    found = facts(tmp_path, make_death(SECONDS - 1, killer="sigkill-unknown"))
    assert found.get("trace.thrashed_s") == thrashed_s


def test_thrash_is_told_of_what_was_not_killed(tmp_path: Path) -> None:
    """Not of a run that goes on, nor where the kernel killed in the end, nor of a node."""
    write_run(tmp_path, SECONDS, use=full(60), anon={"actor": flat(2000)}, faults={"actor": reads(60, 2)})
    assert facts(tmp_path).get("trace.thrashed_s") is None
    assert facts(tmp_path, make_death(SECONDS - 1)).get("trace.thrashed_s") is None
    other = tmp_path / "node"
    node = {"available_bytes": lambda t: 100 if t >= 60 else 9000}
    write_run(other, SECONDS, host=node, anon={"actor": flat(2000)}, faults={"actor": reads(60, 2)})
    assert facts(other, make_death(SECONDS - 1, killer="sigkill-unknown")).get("trace.thrashed_s") is None


def test_thrash_behind_a_gap(tmp_path: Path) -> None:
    """A process that is seen, then not for more than a minute, then again at the limit, costs no evidence."""
    course = reads(75, 2)
    away = {"actor": lambda t: -1 if 5 <= t < 81 else 2000}
    write_run(tmp_path, SECONDS, use=full(80), anon=away, faults={"actor": course})
    found = facts(tmp_path, make_death(SECONDS - 1, killer="sigkill-unknown"))
    assert some(found, "trace.thrashed_s") == [39]


def test_growth_before_the_limit(tmp_path: Path) -> None:
    """A run that grew until it hung did grow, however long it then stood there."""
    write_run(
        tmp_path,
        SECONDS,
        use=lambda t: min(LIMIT_MIB, 1000 + 320 * t),
        anon={"actor": lambda t: min(LIMIT_MIB, 1000 + 320 * t)},
        faults={"actor": reads(48, 2)},
        events=steps(12, 4),
    )
    found = facts(tmp_path, make_death(SECONDS - 1, killer="sigkill-unknown"))
    assert some(found, "trace.growth", "trace.is_growing") == ["slope", True]


def test_limits(tmp_path: Path) -> None:
    """The node's size and what was available, the limit and its share of the node."""
    write_run(tmp_path, 10, use=flat(1000))
    names = ("host.total_bytes", "host.available_ratio", "host.limit_bytes", "host.limit_ratio", "host.unlimited")
    assert some(facts(tmp_path), *names) == [TOTAL_BYTES, 63 / 64, LIMIT_BYTES, LIMIT_BYTES / TOTAL_BYTES, None]


@pytest.mark.parametrize("limit", [TOTAL_BYTES, 2 * TOTAL_BYTES])
def test_limit_above_the_node(tmp_path: Path, limit: int) -> None:
    """A limit that the node cannot give is none."""
    write_run(tmp_path, 10, use=flat(1000), limit_bytes=limit)
    assert some(facts(tmp_path), "host.limit_bytes", "host.unlimited") == [None, True]


def test_spike_in_a_checkpoint(tmp_path: Path) -> None:
    """The peak fell into the phase that was marked then, and most of it rose within the last phase."""
    marks = [phase(0, "rollout"), phase(40, "update"), phase(100, "checkpoint")]
    write_run(tmp_path, SECONDS, use=spike(4000, 15000, 110, 120), events=marks)
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert found["trace.peak_phase"] == "checkpoint"
    assert found["trace.last_phase_rise_ratio"] == pytest.approx(11000 / LIMIT_MIB)


@pytest.mark.parametrize(("later", "found"), [(step(105, 4), None), (step(105, 3), "checkpoint")])
def test_a_further_step_ends_a_save(tmp_path: Path, later: dict[str, Any], found: str | None) -> None:
    """What peaks behind it is not the save's; a late line of the same step ends nothing."""
    marks = [step(90, 3), phase(100, "checkpoint"), later]
    write_run(tmp_path, SECONDS, use=spike(4000, 15000, 110, 120), events=marks)
    assert some(facts(tmp_path, make_death(SECONDS - 1)), "trace.peak_phase") == [found]


def test_peak_before_the_last_phase(tmp_path: Path) -> None:
    """A peak of an earlier phase is that phase's, and the last one brought nothing."""
    marks = [phase(0, "rollout"), phase(50, "update"), phase(60, "update", edge="end"), phase(100, "eval")]
    write_run(tmp_path, SECONDS, use=spike(4000, 12000, 55, 58), events=marks)
    assert some(facts(tmp_path), "trace.peak_phase", "trace.last_phase_rise_ratio") == ["update", 0.0]


def test_marks_by_their_own_time(tmp_path: Path) -> None:
    """A mark counts from the time that the trainer wrote, not from when it was read."""
    early = phase(80, "checkpoint", at_ns=int((START_S + 30) * 1e9))
    write_run(tmp_path, SECONDS, use=spike(4000, 12000, 35, 40), events=[phase(0, "rollout"), early])
    assert facts(tmp_path)["trace.peak_phase"] == "checkpoint"


def test_what_came_after_the_death(tmp_path: Path) -> None:
    """Samples from behind the death are left out: memory is free again then."""
    write_run(
        tmp_path, SECONDS, use=lambda t: 15000 if t < 60 else 100, anon={"actor": lambda t: 14000 if t < 60 else 10}
    )
    window = find_failure_window(make_case(tmp_path), make_death(59))
    found = facts(tmp_path, make_death(59))
    assert window is not None
    assert (window.until_s, window.limit, len(window.use)) == (START_S + 59, CGROUP, 60)
    assert (found["trace.culprit_role"], found["trace.full_ratio"]) == ("actor", pytest.approx(15000 / LIMIT_MIB))


def test_culprit(tmp_path: Path) -> None:
    """Who held most at the last sample is the culprit, with its share of what all held."""
    write_run(tmp_path, SECONDS, use=flat(15000), anon={"critic": flat(3000), "actor": flat(9000)})
    found = facts(tmp_path, make_death(SECONDS - 1, pid=1002))
    names = ("trace.culprit_role", "trace.culprit_ratio", "trace.role_count")
    assert some(found, *names) == ["actor", 0.75, 2]


def test_victim_is_not_the_culprit(tmp_path: Path) -> None:
    """The kernel may kill another process than the one that held most."""
    write_run(tmp_path, SECONDS, use=flat(15000), anon={"critic": flat(3000), "actor": flat(9000)})
    death = make_death(SECONDS - 1, pid=1001)
    assert find_culprit(make_case(tmp_path), death) == Process(role="actor", name="actor", pid=1002, bytes=9000 * MIB)


def test_grower(tmp_path: Path) -> None:
    """Who grew is told apart from who holds most."""
    write_run(
        tmp_path,
        SECONDS,
        use=climb(12000, 20),
        anon={"actor": flat(10000), "reward worker": climb(100, 20), "critic": climb(500, 2)},
    )
    found = facts(tmp_path, make_death(SECONDS - 1))
    assert some(found, "trace.culprit_role", "trace.grower_role") == ["actor", "reward worker"]
    assert found["trace.grower_ratio"] == pytest.approx(20 / 22)


@pytest.mark.parametrize("killer", ["cuda-oom", "exception", "collective-timeout"])
def test_no_culprit(tmp_path: Path, killer: str) -> None:
    """Where host memory did not kill, nobody is its culprit."""
    write_run(tmp_path, SECONDS, use=flat(15000), anon={"actor": flat(9000)})
    assert find_culprit(make_case(tmp_path), make_death(SECONDS - 1, killer=killer)) is None


def test_too_small_for_a_culprit(tmp_path: Path) -> None:
    """Who held next to nothing of the limit is no culprit."""
    write_run(tmp_path, SECONDS, use=flat(15000), anon={"actor": flat(LIMIT_MIB * 0.01)})
    assert find_culprit(make_case(tmp_path), make_death(SECONDS - 1)) is None


def test_process_that_ended_long_ago(tmp_path: Path) -> None:
    """A process that was gone well before the end holds nothing."""
    anon = {"actor": flat(3000), "critic": lambda t: 9000 if t < 60 else -1}
    write_run(tmp_path, SECONDS, use=flat(15000), anon=anon)
    found = [facts(tmp_path, make_death(second))["trace.culprit_role"] for second in (50, SECONDS - 1)]
    assert found == ["critic", "actor"]


def test_pinned_culprit(tmp_path: Path) -> None:
    """Shared and page-locked memory of the culprit, and shmem of the host that is no file."""
    write_run(
        tmp_path,
        SECONDS,
        use=flat(15000),
        anon={"actor": flat(2000), "critic": flat(4000)},
        shmem={"actor": flat(6000)},
        locked={"actor": flat(4000)},
        host={"shmem_bytes": flat(6500), "shm_used_bytes": flat(500), "shm_size_bytes": flat(32000)},
    )
    found = facts(tmp_path, make_death(SECONDS - 1))
    names = (
        "trace.culprit_role",
        "trace.shmem_ratio",
        "trace.locked_ratio",
        "trace.shm_without_files_bytes",
    )
    assert some(found, *names) == ["actor", 0.75, 0.5, 6000 * MIB]


def test_full_shared_memory(tmp_path: Path) -> None:
    """How full /dev/shm became at most, what it held in the end, and what belonged to nobody."""
    host = {
        "shm_size_bytes": flat(1000),
        "shm_used_bytes": spike(600, 1000, 50, 60),
        "shm_orphaned_bytes": flat(200),
        "shmem_bytes": flat(400),
    }
    write_run(tmp_path, SECONDS, use=flat(1500), anon={"actor": flat(100)}, host=host)
    names = (
        "shm.size_bytes",
        "shm.used_bytes",
        "shm.full_ratio",
        "shm.orphaned_bytes",
        "trace.shm_without_files_bytes",
    )
    assert some(facts(tmp_path), *names) == [1000 * MIB, 600 * MIB, 1.0, 200 * MIB, 0]


@pytest.mark.parametrize(("seconds", "is_told"), [(120, False), (LONG_S, True)])
def test_growth_without_a_step(tmp_path: Path, seconds: int, is_told: bool) -> None:
    """Whoever loads a model or reads a data set rises to the end in two minutes: only a long rise is a growth."""
    write_run(tmp_path, seconds, anon={"actor": flat(100)}, host={"available_bytes": lambda t: 60000 - 60 * t})
    found = facts(tmp_path, make_death(seconds - 1, killer="kernel-oom-node"))
    assert ("trace.growth" in found, "trace.late_growth_ratio" in found) == (is_told, is_told)


def test_node_without_a_limit(tmp_path: Path) -> None:
    """Without a cgroup's limit use is measured against the node."""
    write_run(tmp_path, LONG_S, anon={"actor": flat(100)}, host={"available_bytes": lambda t: 60000 - 60 * t})
    found = facts(tmp_path, make_death(LONG_S - 1, killer="kernel-oom-node"))
    used = TOTAL_BYTES // MIB - (60000 - 60 * (LONG_S - 1))
    assert found["trace.full_ratio"] == pytest.approx(used / (TOTAL_BYTES // MIB))
    window = find_failure_window(make_case(tmp_path), None)
    assert (found["trace.growth"], window is not None and window.limit) == ("slope", "node")


def test_killer_of_the_node(tmp_path: Path) -> None:
    """Where the node ran out of memory the node counts, however full the cgroup was."""
    write_run(tmp_path, SECONDS, use=flat(LIMIT_MIB * 0.99))
    limits = [
        find_failure_window(make_case(tmp_path), make_death(5, killer=f"kernel-oom-{name}"))
        for name in ("node", "cgroup")
    ]
    assert [window.limit for window in limits if window is not None] == ["node", CGROUP]


@pytest.mark.parametrize(("node", "expected"), [("n1", "n1"), ("n2", "n2"), (None, "n1"), ("n9", "n1")])
def test_window_of_several_nodes(tmp_path: Path, node: str | None, expected: str) -> None:
    """The trace of the node that the death names counts, else the first one."""
    case = make_case(*[write_run(tmp_path / name, 10, use=flat(1000), node=name) for name in ("n1", "n2")])
    window = find_failure_window(case, make_death(5, node=node))
    assert window is not None
    assert window.trace.node.node == expected


def test_clock_of_another_node(tmp_path: Path) -> None:
    """A node's clock offset is taken out of the time of its samples."""
    write_run(tmp_path, 10, use=flat(1000), run={"clock_offset_s": 100.0})
    window = find_failure_window(make_case(tmp_path), None)
    assert window is not None
    assert window.use[0][0] == START_S - 100


def test_no_trace() -> None:
    """Without a trace there is no window."""
    assert find_failure_window(make_case(), None) is None


def ledger(folder: Path, death: Death | None = None) -> dict[str, int]:
    """The parts in MiB, by name."""
    return {str(part.part): part.bytes // MIB for part in make_ledger(make_case(folder), death)}


def test_ledger_of_a_cgroup(tmp_path: Path) -> None:
    """Anonymous memory by role, shared memory, page cache and kernel add up to what the cgroup used."""
    write_run(
        tmp_path,
        SECONDS,
        use=flat(10000),
        anon={"actor": flat(4000), "critic": flat(1000)},
        shmem={"actor": flat(1500)},
        level={
            "anon_bytes": flat(5300),
            "file_bytes": flat(2600),
            "shmem_bytes": flat(1500),
            "kernel_bytes": flat(400),
        },
    )
    found = ledger(tmp_path, make_death(SECONDS - 1))
    assert found == {
        "actor anon": 4000,
        "critic anon": 1000,
        "other shared memory (object store, /dev/shm)": 1500,
        "page cache": 1100,
        "kernel": 400,
        "anon of other processes": 300,
        "unexplained": 1700,
    }
    assert sum(found.values()) == 10000


def test_ledger_of_a_node(tmp_path: Path) -> None:
    """The same for the node: kernel memory is named, and the parts add up to what is not available."""
    host = {
        "available_bytes": flat(40000),
        "free_bytes": flat(30000),
        "buffers_bytes": flat(1000),
        "cached_bytes": flat(14000),
        "shmem_bytes": flat(3000),
        "anon_bytes": flat(9000),
        "slab_bytes": flat(2000),
        "slab_reclaimable_bytes": flat(500),
        "page_tables_bytes": flat(100),
        "kernel_stack_bytes": flat(50),
    }
    write_run(tmp_path, SECONDS, anon={"actor": flat(7000)}, host=host)
    found = ledger(tmp_path, make_death(SECONDS - 1, killer="kernel-oom-node"))
    known = {
        "actor anon": 7000,
        "other shared memory (object store, /dev/shm)": 3000,
        "kernel slab": 1500,
        "kernel page tables": 100,
        "kernel stacks": 50,
        "anon of other processes": 2000,
        "reserves and cache that MemAvailable leaves out": 30000 + 1000 + 14000 - 3000 + 500 - 40000,
    }
    assert {name: size for name, size in found.items() if name != "unexplained"} == known
    assert sum(found.values()) == TOTAL_BYTES // MIB - 40000


def test_ledger_with_more_than_was_used(tmp_path: Path) -> None:
    """Parts that add up to more than was used leave a negative remainder, which is shown."""
    write_run(tmp_path, 10, use=flat(1000), anon={"actor": flat(1200)}, level={"anon_bytes": flat(1200)})
    assert ledger(tmp_path) == {"actor anon": 1200, "unexplained": -200}


def test_ledger_is_of_the_last_sample(tmp_path: Path) -> None:
    """The ledger shows the last sample before the death."""
    write_run(
        tmp_path, SECONDS, use=climb(1000, 10), anon={"actor": climb(500, 10)}, level={"anon_bytes": climb(500, 10)}
    )
    assert ledger(tmp_path, make_death(50)) == {"actor anon": 1000, "unexplained": 500}


def test_largest_process_first(tmp_path: Path) -> None:
    """Roles stand in the order of their size."""
    write_run(tmp_path, 10, use=flat(9000), anon={"critic": flat(1000), "actor": flat(3000), "reward": flat(2000)})
    assert list(ledger(tmp_path))[:3] == ["actor anon", "reward anon", "critic anon"]


def test_kill_that_only_the_counter_knows(tmp_path: Path) -> None:
    """A cgroup's counter that rises while a process of the run goes is a kill; with none gone it is another's."""
    kill = event("oom_kill", 50, level=CGROUP, count=1, max_bytes=LIMIT_BYTES)
    gone = event("process.gone", 51, uid=1, pid=1001, name="actor", role="actor", rss_anon_bytes=GIB)
    write_run(tmp_path / "ours", 60, use=flat(15000), anon={"actor": flat(1000)}, events=[kill, gone])
    write_run(tmp_path / "theirs", 60, use=flat(15000), anon={"actor": flat(1000)}, events=[kill])
    kinds = [[item.kind for item in make_case(tmp_path / name).events] for name in ("ours", "theirs")]
    assert kinds == [["trace.cgroup_kill", "trace.gone"], []]
