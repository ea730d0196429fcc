"""Page-locked host memory: where it shows, what it is rounded to, whether it is given back, who is killed for it.

On a CPU the stand-in is the trainer's own (trainer/pinned.py): shared anonymous memory under mlock(2). That it shows as
expected is no news; it is what the doctor's assumptions were made after.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import mmap
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from rlhfdoctor.budget.pinned import pinned_size
from rlhfdoctor.logs.kernel import PATTERNS as KERNEL
from rlhfdoctor.logs.pattern import compiled
from rlhfdoctor.sources.kmsg import KernelLog
from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary import EVENT, FIELD
from tests.gpu import memory
from tests.gpu.step import ROOT, Device, Expected, Figure, Place, Step, Unknown, about

SIZE = 1024 * MIB
_ODD = 300 * MIB
Holder: TypeAlias = Callable[[int], object]
"""Allocates so many bytes, touches them all, and gives what keeps them."""


def size_on(device: Device) -> int:
    """What is allocated: enough to stand out of a machine's noise; little where it is only tried."""
    return SIZE if device == "cuda" else 64 * MIB


def host_alloc(size: int) -> object:
    """cudaHostAlloc, without torch's allocator."""
    runtime = _cudart()
    address = ctypes.c_void_p()
    _check(runtime.cudaHostAlloc(ctypes.byref(address), ctypes.c_size_t(size), 0), "cudaHostAlloc")
    ctypes.memset(address, 1, size)
    return runtime, address


def host_register(size: int) -> object:
    """cudaHostRegister of private anonymous memory."""
    runtime = _cudart()
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(block))
    ctypes.memset(address, 1, size)
    _check(
        runtime.cudaHostRegister(ctypes.c_void_p(address), ctypes.c_size_t(size), 0),
        "cudaHostRegister",
    )
    return runtime, block


def pin_memory(size: int) -> object:
    """torch's caching host allocator."""
    import torch

    return torch.empty(size, dtype=torch.uint8, pin_memory=True).fill_(1)


def to_cpu(size: int) -> object:
    """A copy from the GPU that does not wait: torch puts it into page-locked memory."""
    import torch

    there = torch.ones(size, dtype=torch.uint8, device="cuda")
    here = there.to("cpu", non_blocking=True)
    torch.cuda.synchronize()
    return here


def stand_in(size: int) -> object:
    """On a CPU: shared anonymous memory under mlock(2)."""
    import torch

    from trainer.pinned import empty_pinned

    return empty_pinned((size,), torch.uint8).fill_(1)


def private(size: int) -> object:
    """On a CPU, for registered memory: private anonymous memory, not locked."""
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(block)), 1, size)
    return block


def _cudart() -> Any:
    """The CUDA runtime that torch has loaded, with a context on the first device."""
    import torch

    torch.zeros(1, device="cuda")
    loaded = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "libcudart.so" in line}
    paths = sorted(loaded) or glob.glob("/usr/local/cuda*/lib64/libcudart.so*")
    if not paths:
        raise Unknown("no libcudart.so is loaded by torch")
    return ctypes.CDLL(paths[0])


def _check(status: int, call: str) -> None:
    if status:
        raise Unknown(f"{call} failed with CUDA error {status}")


def context(device: Device) -> None:
    """What comes with the first use of torch and the device, so that it is not counted."""
    if device == "cpu":
        stand_in(1)
        return
    import torch

    torch.zeros(1, device="cuda")
    torch.empty(1, pin_memory=True)
    torch.cuda.synchronize()


def _shown(hold: Holder, fallback: Holder, figures: tuple[str, ...], device: Device) -> Mapping[str, Figure]:
    """How much of what was asked for each figure grew by; figures of a cgroup are those of one of its own."""
    size = size_on(device)
    context(device)
    with contextlib.ExitStack() as stack:
        if figures == memory.CGROUP:
            try:
                stack.enter_context(memory.inside(stack.enter_context(memory.own_cgroup())))
            except OSError as error:
                raise Unknown(f"no memory cgroup of its own: {error}") from None
        before = memory.read()
        held = (hold if device == "cuda" else fallback)(size)
        found = memory.shares(before, memory.read(), size)
        del held
    return {name: found[name] for name in figures if name in found}


_SAYS = {
    "host-alloc": (host_alloc, stand_in, {}, "memory of cudaHostAlloc"),
    "pin-memory": (pin_memory, stand_in, {}, "memory of torch's pin_memory"),
    "to-cpu": (to_cpu, stand_in, {}, "the result of .to('cpu', non_blocking=True)"),
    "registered": (host_register, private, {}, "memory under cudaHostRegister"),
    "torch-registered": (
        pin_memory,
        private,
        {"PYTORCH_CUDA_ALLOC_CONF": "pinned_use_cuda_host_register:True"},
        "memory of torch's pin_memory with pinned_use_cuda_host_register",
    ),
}
_VIEWS: dict[str, tuple[tuple[str, ...], str, Mapping[str, Expected], Mapping[str, Expected], Place]] = {
    "process": (
        memory.PROCESS,
        "of the process",
        {"RssShmem": about(1), "RssAnon": about(0), "VmLck": about(1)},
        {"RssShmem": about(0), "RssAnon": about(1)},
        Place("rlhfdoctor/evidence/ledger.py", "VmLck within RssShmem"),
    ),
    "cgroup": (
        memory.CGROUP,
        "of the cgroup",
        {"cgroup shmem": about(1), "cgroup anon": about(0), "cgroup used": about(1)},
        {"cgroup shmem": about(0), "cgroup anon": about(1), "cgroup used": about(1)},
        Place("rlhfdoctor/evidence/recorded_growth.py", "of what the limit's cgroup grew by is shmem"),
    ),
    "machine": (
        memory.MACHINE,
        "of the machine",
        {"Shmem": about(1, 0.2), "MemAvailable": about(1, 0.2)},
        {"AnonPages": about(1, 0.2), "MemAvailable": about(1, 0.2)},
        Place("rlhfdoctor/evidence/recorded.py", "of shmem are no files in /dev/shm"),
    ),
}


def _views() -> list[Step]:
    """Each way to page-locked memory, by each of the three who count it."""
    found = []
    for name, (hold, fallback, environment, what) in _SAYS.items():
        registered = fallback is private
        for view, (figures, whose, pinned, anonymous, place) in _VIEWS.items():
            found.append(
                Step(
                    name=f"{name}-{view}",
                    fact=f"{what} is {'anonymous' if registered else 'shared and locked'} memory {whose}",
                    assumed=place,
                    run=partial(_shown, hold, fallback, figures),
                    expected=anonymous if registered else pinned,
                    environment=environment,
                )
            )
    return found


def driver_mapping(device: Device) -> Mapping[str, Figure]:
    """Mappings of the driver's device files: where the recorder looks for page-locked buffers."""
    if device == "cpu":
        raise Unknown("no GPU driver: its device files cannot be mapped")
    return _shown(pin_memory, stand_in, ("driver", "shared"), device)


# --- torch's caching host allocator ---------------------------------------------------------------


def stats(device: Device) -> dict[str, int]:
    """Bytes that torch's host allocator owns and has handed out; of the stand-in on a CPU."""
    if device == "cuda":
        import torch

        found = torch.cuda.host_memory_stats()
        return {"allocated": found["allocated_bytes.current"], "active": found["active_bytes.current"]}
    from trainer.pinned import pinned_bytes

    return {"allocated": pinned_bytes()}


def rounding(device: Device) -> Mapping[str, Figure]:
    """Bytes that three odd sizes take, over what the budget says of them."""
    context(device)
    hold, found = (pin_memory if device == "cuda" else stand_in), {}
    for size in (_ODD, 5 * MIB + 1, 3000):
        before = stats(device)["allocated"]
        kept = hold(size)
        found[f"{size} bytes"] = round((stats(device)["allocated"] - before) / pinned_size(size, size), 4)
        del kept
    return found


def unrounded(device: Device) -> Mapping[str, Figure]:
    """The same size where rounding is limited by a setting, over what was asked for."""
    if device == "cpu":
        raise Unknown("the stand-in has no such setting")
    context(device)
    before = stats(device)["allocated"]
    kept = pin_memory(_ODD)
    found = round((stats(device)["allocated"] - before) / _ODD, 4)
    del kept
    return {"taken": found}


def cache(device: Device) -> Mapping[str, Figure]:
    """What stays with the allocator and with the process after the tensor has gone, over what was asked for."""
    context(device)
    size = size_on(device)
    owned, before = stats(device)["allocated"], memory.read()
    kept = (pin_memory if device == "cuda" else stand_in)(size)
    del kept
    found: dict[str, Figure] = {"kept": round((stats(device)["allocated"] - owned) / size, 3)}
    after = memory.shares(before, memory.read(), size)
    found["resident"] = round(after.get("RssShmem", 0.0) + after.get("RssAnon", 0.0), 3)
    if device == "cuda":
        import torch

        empty = getattr(torch._C, "_host_emptyCache", None)
        if empty is not None:
            empty()
            found["kept after _host_emptyCache"] = round((stats(device)["allocated"] - owned) / size, 3)
    return found


def counted(device: Device) -> Mapping[str, Figure]:
    """What torch counts, over what the process grew by, which is RssShmem and RssAnon together."""
    context(device)
    size = size_on(device)
    owned, before = stats(device)["allocated"], memory.read()
    kept = (pin_memory if device == "cuda" else stand_in)(size)
    grown = memory.shares(before, memory.read(), size)
    found = (stats(device)["allocated"] - owned) / size
    del kept
    resident = grown.get("RssShmem", 0.0) + grown.get("RssAnon", 0.0)
    return {"counted": round(found, 3), "resident": round(resident, 3)}


# --- the kernel's kill ----------------------------------------------------------------------------

_CHILD = """
import os, sys
sys.path.insert(0, {root!r})
from tests.gpu import page_locked as p
p.context({device!r})
print("ready", flush=True)
sys.stdin.readline()
kept = []
while len(kept) < {count}:
    kept.append(p.{hold}({piece}))
    print(len(kept), flush=True)
"""


def kill(device: Device) -> Mapping[str, Figure]:
    """Page-locks beyond a cgroup's limit, piece by piece: how it ends, and what the kernel counts, over that limit."""
    piece, count = (256 * MIB, 16) if device == "cuda" else (32 * MIB, 8)
    hold, limit = ("pin_memory" if device == "cuda" else "stand_in"), piece * count // 2
    code = _CHILD.format(root=str(ROOT), device=device, count=count, hold=hold, piece=piece)
    try:
        log = KernelLog()
    except OSError as error:
        raise Unknown(f"the kernel log: {error}") from None
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None and child.stdout is not None
    try:
        child.stdout.readline()
        with memory.own_cgroup(limit) as folder:
            (folder / "cgroup.procs").write_text(str(child.pid))
            child.stdin.write("go\n")
            child.stdin.flush()
            pieces = len(child.stdout.read().split())
            ended = child.wait(60)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unknown(f"no memory cgroup with a limit: {error}") from None
    finally:
        child.kill()
        child.wait()
    found: dict[str, Figure] = {
        "ended": "killed" if ended == -signal.SIGKILL else f"exit status {ended}",
        "page-locked before": round(pieces * piece / limit, 3),
    }
    found |= _kill_line(log, child.pid, limit) if ended == -signal.SIGKILL else {}
    log.close()
    return found


def _kill_line(log: KernelLog, pid: int, limit: int) -> dict[str, Figure]:
    """shmem-rss and anon-rss of the kernel's line about the victim, over the limit; empty in a PID namespace."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:  # the line comes before the process is gone, the reader may be slower
        for line in log.read():
            sizes = killed_sizes(line, pid)
            if sizes is not None:
                return {name: round(size / limit, 3) for name, size in sizes.items()}
        time.sleep(0.05)
    return {}


def killed_sizes(line: str, pid: int) -> dict[str, int] | None:
    """anon-rss and shmem-rss of the kernel's line about this victim, by the doctor's own pattern.

    >>> text = "Memory cgroup out of memory: Killed process 7 (python) total-vm:9kB, anon-rss:4kB, file-rss:1kB, "
    >>> killed_sizes(text + "shmem-rss:8kB, UID:0 pgtables:1kB oom_score_adj:0", 7)
    {'anon-rss': 4096, 'shmem-rss': 8192}
    """
    for pattern in KERNEL:
        match = compiled(pattern.regex).search(line) if pattern.kind == EVENT.kernel.killed else None
        fields = pattern.fields(match) if match is not None else {}
        anon, shmem = fields.get(FIELD.anon_bytes), fields.get(FIELD.shmem_bytes)
        if fields.get(FIELD.pid) == pid and isinstance(anon, int) and isinstance(shmem, int):
            return {"anon-rss": anon, "shmem-rss": shmem}
    return None


_BUDGET = "rlhfdoctor/budget/pinned.py"
STEPS = (
    *_views(),
    Step(
        name="driver-mapping",
        fact="page-locked buffers are mappings of the driver's device files",
        assumed=Place("rlhfdoctor/sources/procfs.py", "Device files of the GPU driver: page-locked host buffers"),
        run=driver_mapping,
        expected={"driver": about(1)},
    ),
    Step(
        name="rounding",
        fact="torch rounds each page-locked buffer up to a power of two",
        assumed=Place(_BUDGET, "torch's host allocator rounds each up to a power of two"),
        run=rounding,
        expected={f"{size} bytes": about(1, 0.01) for size in (_ODD, 5 * MIB + 1, 3000)},
    ),
    Step(
        name="rounding-limited",
        fact="pinned_max_round_threshold_mb keeps larger buffers from being rounded",
        assumed=Place("rlhfdoctor/vocabulary/settings.py", '"pinned_max_round_threshold_mb"'),
        run=unrounded,
        expected={"taken": about(1, 0.01)},
        environment={"PYTORCH_CUDA_ALLOC_CONF": "pinned_max_round_threshold_mb:1"},
    ),
    Step(
        name="cache-never-shrinks",
        fact="torch keeps page-locked blocks whose tensors are gone",
        assumed=Place("rlhfdoctor/budget/deepspeed.py", "in page-locked host memory in between (offload_states); torch keeps it"),
        run=cache,
        expected={"kept": about(1), "resident": about(1)},
    ),
    Step(
        name="host-memory-stats",
        fact="host_memory_stats' allocated_bytes are the bytes that the process holds page-locked",
        assumed=Place("rlhfdoctor/probe.py", 'host.get("allocated_bytes.current", 0)'),
        run=counted,
        expected={"counted": about(1), "resident": about(1)},
    ),
    Step(
        name="kill-line",
        fact="beyond the cgroup's limit the kernel kills, and its line counts page-locked memory as shmem-rss",
        assumed=Place("rlhfdoctor/evidence/kernel_kill.py", "of the victim were shmem (pinned or shared)"),
        run=kill,
        expected={"ended": "killed", "shmem-rss": about(1, 0.2)},  # the rest is what the driver or Python took meanwhile
        limit_s=90,
    ),
)
