"""Which limits are known, how full they are, which one binds, and when they are reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.record.limits import Limit, Limits, RayLimit, find_ray_limit
from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.sources.gpus import Gpu
from rlhfdoctor.sources.shm import SharedMemory
from rlhfdoctor.units import GIB, MIB
from tests.record.build import make_level, make_limit

HOST = {"total_bytes": 64 * GIB, "available_bytes": 48 * GIB}
NODE = ("node", "", 16 * GIB, 64 * GIB)


def update(
    limits: Limits,
    second: float = 0.0,
    *,
    host: Mapping[str, int] = HOST,
    levels: Sequence[Level] = (),
    shm: SharedMemory | None = None,
    gpus: Sequence[Gpu] = (),
    ray: RayLimit | None = None,
) -> list[Limit]:
    """One tick; the limits that are reported."""
    return limits.update(second, host, levels, shm, gpus, ray)


def found(**given: Any) -> list[tuple[str, str, int, int]]:
    """Name, level, use and size of all limits after one tick."""
    limits = Limits()
    update(limits, **given)
    return [(limit.name, limit.level, limit.used_bytes, limit.limit_bytes) for limit in limits.all.values()]


def make_shm(used: int, size: int) -> SharedMemory:
    """/dev/shm."""
    return SharedMemory(size_bytes=size, used_bytes=used, free_inodes_count=9)


def make_gpu(index: int, used: int | None, total: int | None) -> Gpu:
    """A GPU."""
    return Gpu(index=index, name="H200", total_bytes=total, used_bytes=used, busy_ratio=None)


@pytest.mark.parametrize(
    ("levels", "expected"),
    [
        pytest.param([make_level(4 * GIB, None)], [], id="no limit"),
        pytest.param(
            [make_level(4 * GIB, 8 * GIB)], [("cgroup", "/sys/fs/cgroup/memory/job", 4 * GIB, 8 * GIB)], id="limit"
        ),
        pytest.param([make_level(4 * GIB, 64 * GIB)], [], id="as large as the node"),
        pytest.param([make_level(4 * GIB, 100 * GIB)], [], id="above the node"),
        pytest.param([make_level(None, 8 * GIB)], [], id="use unknown"),
        pytest.param(
            [make_level(GIB, 8 * GIB, cache=6 * GIB)],
            [("cgroup", "/sys/fs/cgroup/memory/job", GIB, 8 * GIB)],
            id="page cache",
        ),
        pytest.param(
            [make_level(GIB, 8 * GIB, "/a/b"), make_level(2 * GIB, None, "/a/c"), make_level(3 * GIB, 16 * GIB, "/a")],
            [("cgroup", "/a/b", GIB, 8 * GIB), ("cgroup", "/a", 3 * GIB, 16 * GIB)],
            id="several levels",
        ),
    ],
)
def test_cgroups(levels: list[Level], expected: list[tuple[str, str, int, int]]) -> None:
    """A level counts where its limit is below the node's memory, without the page cache."""
    assert found(levels=levels) == [NODE, *expected]


@pytest.mark.parametrize("host", [{}, {"total_bytes": 64 * GIB}, {"available_bytes": GIB}])
def test_unknown_node(host: dict[str, int]) -> None:
    """Without the node's figures there is no limit of the node; the cgroup's is there all the same."""
    assert found(host=host, levels=[make_level(GIB, 8 * GIB)]) == [
        ("cgroup", "/sys/fs/cgroup/memory/job", GIB, 8 * GIB)
    ]


@pytest.mark.parametrize(
    ("levels", "ray", "used"),
    [
        pytest.param([], RayLimit(32 * GIB, 64 * GIB), 16 * GIB, id="of the node"),
        pytest.param(
            [make_level(GIB, 8 * GIB)], RayLimit(32 * GIB, 64 * GIB), 16 * GIB, id="of the node beside a cgroup"
        ),
        pytest.param([make_level(4 * GIB, 8 * GIB)], RayLimit(7 * GIB, 8 * GIB), 4 * GIB, id="of the cgroup"),
        pytest.param([make_level(4 * GIB, 8 * GIB)], RayLimit(7 * GIB, None), 16 * GIB, id="of it does not say what"),
    ],
)
def test_ray(levels: list[Level], ray: RayLimit, used: int) -> None:
    """Ray's threshold is held against the use of the memory that Ray itself names."""
    assert found(levels=levels, ray=ray)[-1] == ("ray", "", used, ray.threshold_bytes)


def test_shared_memory_and_gpus() -> None:
    """/dev/shm and each GPU whose size and use are known are limits."""
    gpus = [
        make_gpu(0, 5 * GIB, 10 * GIB),
        make_gpu(1, None, 10 * GIB),
        make_gpu(2, 3 * GIB, None),
        make_gpu(3, 0, GIB),
    ]
    expected = [NODE, ("shm", "", MIB, GIB), ("gpu", "0", 5 * GIB, 10 * GIB), ("gpu", "3", 0, GIB)]
    assert found(shm=make_shm(MIB, GIB), gpus=gpus) == expected


def test_shared_memory_without_size() -> None:
    """A /dev/shm of no size is no limit."""
    assert found(shm=make_shm(0, 0)) == [NODE]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "MemoryMonitor initialized with usage threshold at 34664513536 bytes (0.97 system memory), "
            "total system memory bytes: 35736612864\n",
            RayLimit(34664513536, 35736612864),
        ),
        (
            "threshold_memory_monitor.cc:49: ThresholdMemoryMonitor initialized with usage threshold at 12638257152 bytes "
            "(50% of system memory)\n",
            RayLimit(12638257152, None),
        ),
        ("MemoryMonitor disabled. Specify `memory_monitor_refresh_ms` > 0 to enable the monitor.\n", None),
        ("MemoryMonitor initialized with usage threshold at many bytes\n", None),
        ("", None),
    ],
)
def test_threshold_of_ray(tmp_path: Path, text: str, expected: RayLimit | None) -> None:
    """The raylet's own line tells the threshold and the memory; without it nothing is guessed."""
    (tmp_path / "raylet.out").write_text(text)
    assert find_ray_limit(str(tmp_path)) == expected


def test_raylet_without_log(tmp_path: Path) -> None:
    """Without a log there is no threshold."""
    assert find_ray_limit(str(tmp_path)) is None


def test_limit_that_vanishes() -> None:
    """A cgroup that is gone is no limit any more after some seconds."""
    limits = Limits()
    update(limits, 0, levels=[make_level(GIB, 8 * GIB)])
    update(limits, 5)
    update(limits, 11)
    assert [limit.name for limit in limits.all.values()] == ["node"]


def test_limits_are_told_once() -> None:
    """A limit is reported when it is new and when its size has changed, with the number that it had."""
    limits = Limits()
    sizes = (8 * GIB, 8 * GIB, 6 * GIB, 6 * GIB)
    told = [update(limits, second, levels=[make_level(GIB, size)]) for second, size in enumerate(sizes)]
    assert [[(limit.uid, limit.name) for limit in some] for some in told] == [
        [(1, "node"), (2, "cgroup")],
        [],
        [(2, "cgroup")],
        [],
    ]
    assert limits.all["cgroup", "/sys/fs/cgroup/memory/job"].limit_bytes == 6 * GIB


def test_limit_that_vanishes_and_comes_back() -> None:
    """A limit that is not seen for a while keeps its number and is not told again."""
    limits = Limits()
    told = [update(limits, second, shm=shm) for second, shm in enumerate((make_shm(1, GIB), None, make_shm(2, GIB)))]
    assert [[limit.uid for limit in some] for some in told] == [[1, 2], [], []]


def test_forecast_of_steady_growth() -> None:
    """Growth of 100 MiB a step of five seconds towards 4 GiB is foreseen from the ninth step on, and says so."""
    limits, told, key = Limits(), 0, ("cgroup", "/sys/fs/cgroup/memory/job")
    first = None
    for second in range(61):
        if second % 5 == 0:
            limits.begin_step(float(second), second // 5)
        told += len(update(limits, float(second), levels=[make_level(2 * GIB + second * 20 * MIB, 4 * GIB)]))
        if first is None and limits.all[key].forecast is not None:
            first = second
    found = limits.all[key].forecast
    assert found is not None
    assert (told, first, found.steps_count) == (2, 40, 9)
    assert found.left_s == pytest.approx((2 * GIB - 1200 * MIB) / (20 * MIB), rel=0.1)


@pytest.mark.parametrize(
    ("numbers", "count"), [([-1, 0, 1, 2, 3], 2), ([0, 1, 0, 1, 2, 1, 2, 3], 2), ([7, 8, 9, 0, 1], 3)]
)
def test_steps(numbers: list[int], count: int) -> None:
    """A step counts once, whichever rank says it; start-up is none, and a run that begins anew goes on counting."""
    limits = Limits()
    for second, number in enumerate(numbers):
        update(limits, float(second), levels=[make_level(GIB, 8 * GIB)])
        limits.begin_step(float(second), number)
    assert len(limits.all["cgroup", "/sys/fs/cgroup/memory/job"].peaks.points) == count


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([(0.9, None), (0.2, 300.0), (0.5, 100.0)], 3),
        ([(0.3, None), (0.9, None), (0.5, None)], 2),
        ([(0.9, None), (1.0, 0.0), (0.5, 5.0)], 2),
        ([], None),
    ],
)
def test_binding(rows: list[tuple[float, float | None]], expected: int | None) -> None:
    """What will be reached first binds; where nothing grows, the fullest."""
    limits = Limits()
    limits.all = {("gpu", str(uid)): make_limit(*row, uid=uid) for uid, row in enumerate(rows, 1)}
    binding = limits.binding()
    assert (binding.uid if binding is not None else None) == expected
