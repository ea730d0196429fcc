"""The probe: torch's figures from inside a worker, without torch, and as Ray's hook."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from rlhfdoctor import probe

ROOT = Path(__file__).resolve().parent.parent.parent
DEVICE = {"allocated_bytes.all.current": 1, "reserved_bytes.all.current": 2, "allocated_bytes.all.peak": 3}
HOST = {"allocated_bytes.current": 4, "active_bytes.current": 5, "allocated_bytes.peak": 6}
RAY = """
import os
import ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80 << 20, runtime_env={
    "worker_process_setup_hook": "rlhfdoctor.probe.start", "env_vars": {"RANK": "3"}})

@ray.remote
class Worker:
    def pid(self):
        import time
        folder, end = os.environ["RLHFDOCTOR_MARKS"], time.monotonic() + 20
        while not os.path.exists(f"{folder}/{os.getpid()}.jsonl") and time.monotonic() < end:
            time.sleep(0.05)
        return os.getpid()

print("worker", ray.get(Worker.remote().pid.remote()))
"""


def run(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script of its own."""
    known = {k: v for k, v in os.environ.items() if not k.startswith(("RLHFDOCTOR_", "RAY_")) and k != "RANK"}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**known, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def fake_torch(
    *, available: bool = True, initialized: bool = True, host: Mapping[str, int] | None = HOST
) -> ModuleType:
    """A module with the calls of torch that are used."""
    torch: Any = ModuleType("torch")
    torch.cuda = SimpleNamespace(
        is_available=lambda: available, is_initialized=lambda: initialized, memory_stats=lambda: dict(DEVICE)
    )
    if host is not None:
        torch.cuda.host_memory_stats = lambda: dict(host)
    return torch  # type: ignore[no-any-return]


@pytest.fixture(autouse=True)
def nothing_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """No torch and no rank, whatever other tests have imported."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv("RANK", raising=False)


def test_without_torch() -> None:
    """A process that has not loaded torch has nothing to tell, and torch stays unloaded."""
    assert (probe.read(), "torch" in sys.modules) == ({}, False)


@pytest.mark.parametrize("state", [{"available": False}, {"initialized": False}])
def test_torch_without_a_gpu(monkeypatch: pytest.MonkeyPatch, state: dict[str, Any]) -> None:
    """torch without a GPU in use has nothing to tell; no context is made."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch(**state))
    assert probe.read() == {}


def test_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The allocators' figures are reported, of the device and of page-locked memory."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch())
    assert probe.read() == {
        "cuda_allocated_bytes": 1,
        "cuda_reserved_bytes": 2,
        "cuda_peak_bytes": 3,
        "pinned_allocated_bytes": 4,
        "pinned_active_bytes": 5,
        "pinned_peak_bytes": 6,
    }


def test_older_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before torch 2.6 there are no figures of page-locked memory."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch(host=None))
    assert probe.read() == {"cuda_allocated_bytes": 1, "cuda_reserved_bytes": 2, "cuda_peak_bytes": 3}


@pytest.mark.parametrize(("rank", "expected"), [("3", {"rank": 3}), ("", {}), ("-1", {}), ("all", {})])
def test_rank(monkeypatch: pytest.MonkeyPatch, rank: str, expected: dict[str, int]) -> None:
    """The rank is reported where it is one."""
    monkeypatch.setenv("RANK", rank)
    assert probe.read() == expected


COUNT = """
import threading
from rlhfdoctor import probe
probe.start()
probe.start()
print([thread.daemon for thread in threading.enumerate() if thread.name == "rlhfdoctor probe"])
"""


def test_start_twice(tmp_path: Path) -> None:
    """Started twice there is one thread, which does not keep the process alive."""
    assert run(COUNT, RLHFDOCTOR_MARKS=str(tmp_path)).stdout == "[True]\n"


def test_start_without_a_folder() -> None:
    """Without a folder for marks there is no thread."""
    assert run(COUNT).stdout == "[]\n"


def test_what_is_written(tmp_path: Path) -> None:
    """The probe writes when something changed, and an error of torch is swallowed."""
    script = """
import sys, time
from types import ModuleType, SimpleNamespace
from rlhfdoctor import probe
answers = [{"allocated_bytes.all.peak": 1}] * 3 + [None] * 2 + [{"allocated_bytes.all.peak": 2}]
torch = sys.modules["torch"] = ModuleType("torch")
def stats():
    return dict(answers.pop(0) if len(answers) > 1 else answers[0])
torch.cuda = SimpleNamespace(is_available=lambda: True, is_initialized=lambda: True, memory_stats=stats)
probe._EVERY_S = 0.01
probe.start()
time.sleep(0.5)
"""
    done = run(script, RLHFDOCTOR_MARKS=str(tmp_path))
    (path,) = tmp_path.iterdir()
    told = [(line["kind"], line["cuda_peak_bytes"]) for line in map(json.loads, path.read_text().splitlines())]
    assert (done.returncode, done.stderr, told) == (0, "", [("probe", 1), ("probe", 2)])


@pytest.mark.live
def test_hook_of_ray(tmp_path: Path) -> None:
    """As Ray's setup hook the probe runs in each worker, and writes a file under the worker's pid."""
    pytest.importorskip("ray", reason="needs Ray (make test installs it)")
    home = tempfile.mkdtemp(prefix="r", dir="/tmp")  # Ray's socket paths must stay below 108 bytes
    done = run(
        RAY, RLHFDOCTOR_MARKS=str(tmp_path), RAY_TMPDIR=home, RAY_USAGE_STATS_ENABLED="0", RAY_worker_niceness="0"
    )
    shutil.rmtree(home, ignore_errors=True)
    pid = next((line.split()[1] for line in done.stdout.splitlines() if line.startswith("worker ")), done.stderr)
    line = json.loads((tmp_path / f"{pid}.jsonl").read_text().splitlines()[0])
    assert (line["kind"], line["rank"]) == ("probe", 3)


SNAPSHOTS = """
import json, sys, time
from types import ModuleType, SimpleNamespace
from rlhfdoctor import probe
segments = json.load(open(sys.argv[1]))["segments"]
torch = sys.modules["torch"] = ModuleType("torch")
def record(enabled, *, context, stacks):
    print(enabled, context, stacks)
state = SimpleNamespace(free=50, held=1000)
torch.cuda = SimpleNamespace(
    is_available=lambda: True, is_initialized=lambda: True, memory_stats=dict, host_memory_stats=dict,
    mem_get_info=lambda: (state.free, 100), memory_allocated=lambda: state.held, memory_snapshot=lambda: segments,
    memory=SimpleNamespace(_record_memory_history=record))
observers = []
torch._C = SimpleNamespace(_cuda_attach_out_of_memory_observer=observers.append)
probe._EVERY_S = 0.01
probe.start()
time.sleep(0.3)   # half full: nothing
state.free = 5
time.sleep(0.3)   # full: once, however long it stays so
state.held = 1020
time.sleep(0.3)   # hardly more: nothing
state.held = 2000
time.sleep(0.3)   # once more
for observer in observers:
    observer(0, 77, 100, 5)
    observer(0, 78, 100, 5)   # within a second
segments[:] = [None]          # of another form: swallowed, torch's own error goes on
time.sleep(1.1)
observers[0](0, 79, 100, 5)
"""


@pytest.mark.parametrize("asked", ["1", "0", ""])
def test_snapshots(tmp_path: Path, asked: str) -> None:
    """Asked for, the lines that hold most are written when the card is full, for each growth once, and at torch's OOM."""
    fixture = ROOT / "tests/gpu/fixtures/snapshot.json"
    done = run(
        SNAPSHOTS.replace("sys.argv[1]", repr(str(fixture))), RLHFDOCTOR_MARKS=str(tmp_path), RLHFDOCTOR_SNAPSHOTS=asked
    )
    lines = [json.loads(line) for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    found = [line for line in lines if line["kind"] == "snapshot"]
    if asked != "1":
        assert (done.returncode, done.stdout, found) == (1, "", []), done.stderr  # observers[0] is not there
        return
    assert (done.returncode, done.stdout) == (0, "state state python\n"), done.stderr
    assert [(line["why"], line.get("asked_bytes")) for line in found] == [
        ("full", None),
        ("full", None),
        ("out of memory", 77),
    ]
    assert [row["frame"].rpartition(" ")[2] for row in found[0]["frames"]] == ["hold_large", "hold_small"]
