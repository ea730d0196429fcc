"""The card: what NVML says of a process against torch's own figures, the size of a context, the probe's cost."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

from rlhfdoctor import probe
from rlhfdoctor.budget.process import ON_CUDA, ON_GPU
from rlhfdoctor.sources.nvml import Nvml, find_own_pid
from rlhfdoctor.units import GIB, MIB
from tests.fake_nvml import FakeGpu, FakeNvml
from tests.gpu import memory
from tests.gpu.step import ROOT, Device, Figure, Place, Step, Unknown, about

_HELD = 2 * GIB
_CONTEXT = 480 * MIB
"""Of the stand-in."""


def open_nvml(device: Device) -> Nvml:
    """NVML as the recorder opens it; on a CPU one card on which this process holds a context and some memory."""
    if device == "cpu":
        return Nvml(FakeNvml(FakeGpu(used=3 * GIB, processes=[(os.getpid(), _CONTEXT + _HELD)])))
    try:
        return Nvml()
    except (ImportError, OSError) as error:
        raise Unknown(str(error)) from None


def reserve(device: Device, size: int = _HELD) -> tuple[object, int, int]:
    """Holds memory of the card: what keeps it, torch's allocated and reserved bytes."""
    if device == "cpu":
        return None, size, size
    import torch

    kept = torch.empty(size, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    return kept, torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def per_process(device: Device) -> Mapping[str, Figure]:
    """NVML's bytes of this process less the context, over torch's reserved."""
    kept, _, reserved = reserve(device, 1 if device == "cuda" else 0)
    first = _own_bytes(open_nvml(device)) if device == "cuda" else _CONTEXT
    del kept
    kept, allocated, more = reserve(device)
    now = _own_bytes(open_nvml(device))
    del kept
    if now is None or first is None:
        return {"own pid": "not listed" if now is None else "listed"}
    return {
        "own pid": "listed",
        "growth over reserved": round((now - first) / (more - reserved), 3),
        "allocated over reserved": round(allocated / more, 3),
    }


def _own_bytes(nvml: Nvml) -> int | None:
    """What NVML says that this process uses; None if it is not listed under a pid that we know, or has no size."""
    _, processes, _ = nvml.read()
    own = os.getpid()
    return next((p.used_bytes for p in processes if own in (p.pid, find_own_pid(p.pid, [own]))), None)


def context_size(device: Device) -> Mapping[str, Figure]:
    """The card's used memory after the first tensor, less that before and less what torch reserved, over the constant."""
    nvml = open_nvml(device)
    before = nvml.read()[0][0].used_bytes
    kept, _, reserved = reserve(device, 1)
    after = nvml.read()[0][0].used_bytes if device == "cuda" else (before or 0) + _CONTEXT + reserved
    del kept
    if before is None or after is None:
        raise Unknown("NVML does not say how much of the card is used")
    size = after - before - reserved
    return {"over 1 GiB": round(size / ON_GPU, 3), "MiB": round(size / MIB)}


def host_size(device: Device) -> Mapping[str, Figure]:
    """Anonymous and shared memory of a process that has done one product on the device, over what the budget assumes."""
    import torch

    square = torch.ones(512, 512, device=device)
    (square @ square).sum().item()
    now = memory.read()
    size = now.get("RssAnon", 0) + now.get("RssShmem", 0)
    return {"over the budget's": round(size / ON_CUDA.rank, 3), "MiB": round(size / MIB)}


_NAMESPACE = """
import json, os, sys
sys.path.insert(0, {root!r})
from tests.gpu import card
nvml, (kept, *_) = card.open_nvml({device!r}), card.reserve({device!r})
processes = nvml.read()[1]
print(json.dumps({{"pids": [p.pid for p in processes], "own": os.getpid(), "sizes": [p.used_bytes for p in processes]}}))
"""


def in_namespace(device: Device) -> Mapping[str, Figure]:
    """What NVML lists for a process in a PID namespace of its own, asked from inside."""
    if shutil.which("unshare") is None or os.geteuid() != 0:
        raise Unknown("unshare (util-linux) and root are needed")
    code = _NAMESPACE.format(root=str(ROOT), device=device)
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=50)
    if done.returncode:
        raise Unknown(f"unshare: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    own = "listed" if found["own"] in found["pids"] else "not listed" if not found["pids"] else "under another pid"
    return {"own pid": own, "rows": len(found["pids"]), "rows with a size": sum(s is not None for s in found["sizes"])}


def probe_cost(device: Device) -> Mapping[str, Figure]:
    """A reading of the probe, over the two seconds between two of them."""
    kept, *_ = reserve(device, 1)
    taken = []
    for _ in range(200):
        begin = time.perf_counter()
        probe.read()
        taken.append(time.perf_counter() - begin)
    del kept
    return {
        "of its interval": round(statistics.median(taken) / probe._EVERY_S, 7),
        "slowest, of its interval": round(max(taken) / probe._EVERY_S, 7),
    }


STEPS = (
    Step(
        name="nvml-process",
        fact="NVML's figure of a process grows by what torch reserves, under the process's own pid",
        assumed=Place("rlhfdoctor/record/machine.py", "find_own_pid(item.pid, pids, self._root)"),
        run=per_process,
        expected={"own pid": "listed", "growth over reserved": about(1, 0.05)},
    ),
    Step(
        name="nvml-namespace",
        fact="in a PID namespace NVML gives pids of the host's, which cannot be found inside",
        assumed=Place("rlhfdoctor/sources/nvml.py", "NVML gives pids of the host's"),
        run=in_namespace,
        expected={"own pid": "under another pid"},
    ),
    Step(
        name="context",
        fact="a CUDA context takes at most 1 GiB of the card, and more than a quarter of it",
        assumed=Place("rlhfdoctor/budget/process.py", "ON_GPU = GIB"),
        run=context_size,
        expected={"over 1 GiB": (0.25, 1.0)},
    ),
    Step(
        name="host-of-a-process",
        fact="a process with torch and a CUDA context holds at most 3 GiB of host memory, and more than a third of that",
        assumed=Place("rlhfdoctor/budget/process.py", "rank=3 * GIB"),
        run=host_size,
        expected={"over the budget's": (0.33, 1.0)},
    ),
    Step(
        name="probe-cost",
        fact="the probe takes less than a thousandth of its interval",
        assumed=Place("rlhfdoctor/probe.py", "holds the interpreter for microseconds"),
        run=probe_cost,
        expected={"of its interval": (0, 0.001)},
    ),
)
