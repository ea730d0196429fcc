"""NVML: devices and their processes, sizes that the driver does not know, calls that fail, MIG, pids of containers."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.sources.gpus import Gpu, GpuProcess
from rlhfdoctor.sources.nvml import Nvml, find_own_pid, known
from rlhfdoctor.types import Gap
from rlhfdoctor.units import GIB
from tests.fake_nvml import NOT_AVAILABLE, FakeGpu, FakeNvml
from tests.fake_tree import FakeTree, make_status

H200 = Gpu(index=0, name="NVIDIA H200", total_bytes=144 * GIB, used_bytes=20 * GIB, busy_ratio=0.75)


def read_one(gpu: FakeGpu) -> tuple[list[Gpu], list[GpuProcess], list[Gap]]:
    """A machine with one GPU, read once."""
    return Nvml(FakeNvml(gpu)).read()


def test_devices() -> None:
    """Each device has its figures and its processes."""
    nvml = Nvml(
        FakeNvml(FakeGpu(processes=[(41, 9 * GIB), (42, GIB)]), FakeGpu("NVIDIA L4", 24 * GIB, GIB, 0, [(41, GIB)]))
    )
    gpus = [H200, Gpu(index=1, name="NVIDIA L4", total_bytes=24 * GIB, used_bytes=GIB, busy_ratio=0.0)]
    processes = [
        GpuProcess(gpu=0, pid=41, used_bytes=9 * GIB),
        GpuProcess(gpu=0, pid=42, used_bytes=GIB),
        GpuProcess(gpu=1, pid=41, used_bytes=GIB),
    ]
    assert (gpus, processes, []) == nvml.read()
    assert (gpus, processes, []) == nvml.read()


def test_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a node with GPUs the recorder makes a gap of it."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(ImportError, match=r"nvidia-ml-py is missing: pip install nvidia-ml-py"):
        Nvml()


def test_no_devices() -> None:
    """A driver without a GPU has nothing to tell, and that is no gap."""
    assert Nvml(FakeNvml()).read() == ([], [], [])


@pytest.mark.parametrize(
    ("name", "expected"), [("NVIDIA H200", "NVIDIA H200"), (b"Tesla V100", "Tesla V100"), ("", "GPU"), (b"", "GPU")]
)
def test_name(name: str | bytes, expected: str) -> None:
    """An old binding gives names as bytes; a device without a name is a GPU."""
    gpus, _, _ = read_one(FakeGpu(name))
    assert [expected] == [gpu.name for gpu in gpus]


def test_name_that_is_no_text() -> None:
    """A name that is no UTF-8 is no reason to fail."""
    gpus, _, _ = read_one(FakeGpu(b"NVIDIA\xae"))
    assert [gpu.name for gpu in gpus] == ["NVIDIA\ufffd"]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0),
        (GIB, GIB),
        (2**50 - 1, 2**50 - 1),
        (2**50, None),
        (NOT_AVAILABLE, None),
        (2**63, None),
        (-1, None),
        (None, None),
        ("5", None),
        (1.5, None),
    ],
)
def test_known(value: object, expected: int | None) -> None:
    """A size beyond any GPU, a negative one and what is no number are unknown."""
    assert expected == known(value)


@pytest.mark.parametrize("value", [NOT_AVAILABLE, None, 2**63, -1])
def test_unknown_sizes(value: int | None) -> None:
    """What the driver does not know is None, and the rest is read."""
    gpus, processes, gaps = read_one(FakeGpu(total=value, used=value, processes=[(41, value), (42, GIB)]))
    assert [Gpu(index=0, name="NVIDIA H200", total_bytes=None, used_bytes=None, busy_ratio=0.75)] == gpus
    assert [GpuProcess(gpu=0, pid=41, used_bytes=None), GpuProcess(gpu=0, pid=42, used_bytes=GIB)] == processes
    assert gaps == []


FAILURES = {
    "nvmlDeviceGetMemoryInfo": (say("memory of GPU {index}", index=0), {"total_bytes": None, "used_bytes": None}),
    "nvmlDeviceGetUtilizationRates": (say("utilization of GPU {index}", index=0), {"busy_ratio": None}),
    "nvmlDeviceGetName": (say("name of GPU {index}", index=0), {"name": "GPU"}),
    "nvmlDeviceGetComputeRunningProcesses": (say("processes of GPU {index}", index=0), {}),
}


@pytest.mark.parametrize(("call", "what", "changed"), [(call, *rest) for call, rest in FAILURES.items()], ids=FAILURES)
def test_call_that_fails(call: str, what: Message, changed: dict[str, object]) -> None:
    """A call that fails costs its own figure only, and its gap is reported once."""
    nvml = Nvml(FakeNvml(FakeGpu(fails={call: "Not Supported"})))
    first, second = nvml.read(), nvml.read()
    expected = {
        "index": 0,
        "name": "NVIDIA H200",
        "total_bytes": 144 * GIB,
        "used_bytes": 20 * GIB,
        "busy_ratio": 0.75,
        **changed,
    }
    gap = Gap(what=what, why=say("NVML: {error}", error="Not Supported"))
    assert ([Gpu(**expected)], [], [gap]) == first  # type: ignore[arg-type]
    assert (first[0], [], []) == second


def test_device_that_is_lost() -> None:
    """A GPU that fell off the bus is a gap, and the others are read under their own numbers."""
    nvml = Nvml(FakeNvml(FakeGpu(fails={"nvmlDeviceGetHandleByIndex": "GPU is lost"}), FakeGpu()))
    gpus, _, gaps = nvml.read()
    assert (
        [gpu.index for gpu in gpus],
        [(str(gap.what), str(gap.why)) for gap in gaps],
    ) == ([1], [("GPU 0", "NVML: GPU is lost")])


def test_driver_that_is_gone() -> None:
    """A library that cannot count devices any more has none; the gap is reported once."""
    library = FakeNvml(FakeGpu(), fails={"nvmlDeviceGetCount": "Driver Not Loaded"})
    nvml = Nvml(library)
    assert ([], [], [Gap(what=say("devices"), why=say("NVML: {error}", error="Driver Not Loaded"))]) == nvml.read()
    assert nvml.read() == ([], [], [])
    library.fails.clear()
    assert nvml.read() == ([H200], [], [])


def test_no_driver() -> None:
    """A library that cannot be opened is an OSError with the driver's words."""
    with pytest.raises(OSError, match="NVML: Driver Not Loaded"):
        Nvml(FakeNvml(fails={"nvmlInit": "Driver Not Loaded"}))


PART = FakeGpu(
    "NVIDIA H200 MIG 1g.18gb", 16 * GIB, GIB, 0, [(41, GIB)], fails={"nvmlDeviceGetUtilizationRates": "Not Supported"}
)


def test_instances() -> None:
    """MIG instances stand for their device; utilization is not asked for, and empty slots are passed over."""
    gpus, processes, gaps = read_one(FakeGpu(instances=[PART, None, PART]))
    one = Gpu(index=0, name="NVIDIA H200 MIG 1g.18gb", total_bytes=16 * GIB, used_bytes=GIB, busy_ratio=None, mig=True)
    assert ([one, one], [GpuProcess(gpu=0, pid=41, used_bytes=GIB)] * 2, []) == (gpus, processes, gaps)


@pytest.mark.parametrize(
    "gpu",
    [
        FakeGpu(fails={"nvmlDeviceGetMigMode": "Not Supported"}),
        FakeGpu(instances=[PART], fails={"nvmlDeviceGetMaxMigDeviceCount": "Not Supported"}),
        FakeGpu(instances=[None, None]),
    ],
    ids=["no MIG", "no count", "no instance yet"],
)
def test_without_instances(gpu: FakeGpu) -> None:
    """A device without MIG or without an instance stands for itself."""
    assert read_one(gpu) == ([H200], [], [])


@pytest.mark.parametrize(
    ("host_pid", "expected"),
    [(90210, 7), (41, 8), (7, None), (8, None), (5, None), (90, None), (9, None)],
    ids=["in a namespace", "on the host", "inner id", "not ours", "unknown", "a part of it", "no ids in its status"],
)
def test_own_pid(tmp_path: Path, host_pid: int, expected: int | None) -> None:
    """The host's pid is the first of NSpid; ids of inner namespaces do not count."""
    tree = FakeTree(tmp_path)
    tree.write("proc/7/status", make_status(7, pids=(90210, 7)))
    tree.write("proc/8/status", make_status(8, pids=(41,)))
    tree.write("proc/9/status", "Name:\tx\nState:\tS\n")
    tree.write("proc/10/status", b"\xff\nNSpid:\n")
    assert expected == find_own_pid(host_pid, [6, 7, 8, 9, 10], tree.root)
