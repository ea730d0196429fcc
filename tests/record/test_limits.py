"""Which limits are known, how full they are, which one binds, and when they are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.record.limits import Limit, Limits, find_ray_ratio
from rlhfdoctor.sources.cgroupfs import Level
from rlhfdoctor.sources.nvml import Gpu
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
    ray_ratio: float | None = None,
) -> list[Limit]:
    """One tick; the limits that are told."""
    return limits.update(second, host, levels, shm, gpus, ray_ratio)


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
    ("levels", "used", "size"),
    [
        pytest.param([], 16 * GIB, 32 * GIB, id="of the node"),
        pytest.param([make_level(GIB, None)], 16 * GIB, 32 * GIB, id="no limit"),
        pytest.param([make_level(4 * GIB, 8 * GIB)], 4 * GIB, 4 * GIB, id="of the cgroup"),
        pytest.param(
            [make_level(GIB, 8 * GIB, "/a/b"), make_level(3 * GIB, 6 * GIB, "/a")],
            3 * GIB,
            3 * GIB,
            id="of the tightest",
        ),
    ],
)
def test_ray(levels: list[Level], used: int, size: int) -> None:
    """Ray's threshold is a share of the tightest cgroup, else of the node, against the same use."""
    assert found(levels=levels, ray_ratio=0.5)[-1] == ("ray", "", used, size)


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
    ("environment", "expected"),
    [
        (b"HOME=/root\0PATH=/bin\0", 0.95),
        (b"A=1\0RAY_memory_usage_threshold=0.8\0B=2\0", 0.8),
        (b"RAY_memory_usage_threshold=1\0", 1.0),
        (b"RAY_memory_monitor_refresh_ms=0\0RAY_memory_usage_threshold=0.8\0", None),
        (b"RAY_memory_usage_threshold=0.8\0RAY_memory_monitor_refresh_ms=250\0", 0.8),
        (b"RAY_memory_usage_threshold=much\0", 0.95),
        (b"RAY_memory_usage_threshold=0.8.1\0RAY_memory_monitor_refresh_ms=often\0", 0.95),
        (b"\xff\xfe\0=\0", 0.95),
        (b"", 0.95),
    ],
)
def test_threshold_of_ray(tmp_path: Path, environment: bytes, expected: float | None) -> None:
    """The raylet's environment tells the threshold; garbage means Ray's default, a monitor switched off none."""
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "environ").write_bytes(environment)
    assert find_ray_ratio(7, str(tmp_path)) == expected


def test_threshold_of_a_raylet_that_is_gone(tmp_path: Path) -> None:
    """Without an environment to read Ray's default holds."""
    assert find_ray_ratio(7, str(tmp_path)) == 0.95


def test_limits_are_told_once() -> None:
    """A limit is told when it is new and when its size has changed, with the number that it had."""
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
    """Growth of 100 MiB a second towards 16 GiB is foreseen to the second."""
    limits = Limits()
    told = [update(limits, float(t), levels=[make_level(2 * GIB + t * 100 * MIB, 16 * GIB)]) for t in range(61)]
    left_s = limits.all["cgroup", "/sys/fs/cgroup/memory/job"].left_s
    assert [len(some) for some in told] == [2, *[0] * 60]
    assert left_s == pytest.approx((14 * GIB - 6000 * MIB) / (100 * MIB), rel=0.1)


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
