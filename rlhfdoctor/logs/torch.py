"""What PyTorch's CUDA allocator, data loader or launcher says.

Five wordings of the CUDA OOM error from 1.3 to 2.10 (c10/cuda/CUDACachingAllocator.cpp):

    CUDA out of memory. Tried to allocate 1.39 GiB (GPU 0; 6.00 GiB total capacity; 4.04 GiB already
    allocated; 478.00 MiB free; 4.15 GiB reserved in total by PyTorch)                      # to 2.0
    CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which
    0 bytes is free. ...                                                                  # from 2.1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.types import Value
from rlhfdoctor.units import parse_bytes
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.torch.cuda_oom,
        r"(?:CUDA|HIP|NPU|XPU) out of memory\. Tried to allocate (?P<request_size>[0-9.]+ (?:bytes|[KMGT]iB))"
        r"(?P<rest_text>.*)",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total capacity of "
        "79.10 GiB "
        "of which 20.25 MiB is free.",
        follow=4,
    ),
    line(
        EVENT.torch.cuda_oom_class,
        r"torch\.(?:cuda\.)?OutOfMemoryError|would exceed allowed memory\. \(out of memory\)"
        r"|CU(?:BLAS|DNN|SOLVER|SPARSE|FFT)_(?:STATUS_)?ALLOC_FAILED"
        r"|^OutOfMemoryError {3,60}Traceback \(most recent call last\)"
        r"|cudaMalloc failed: out of memory|cudaErrorMemoryAllocation"
        r"|Dst tensor is not initialized|\bEL0004\b|NPU out of memory|driver error:out of memory"
        r"|RESOURCE_EXHAUSTED: Out of memory while trying to allocate|OOM when allocating tensor with shape"
        r"|CUDA out of memory occurred when warming up|CUDA out of memory\. Tried to allocate more than 1EB"
        r"|No executable batch size found, reached zero",
        "torch.OutOfMemoryError:",
    ),
    line(
        EVENT.torch.cuda_error,
        r"(?:CUDA(?: driver)? error|HIP error|cuda runtime error \(\d{1,4}\) ?|CUDA_ERROR_\w{1,40}): "
        r"(?P<error_text>out of memory|invalid argument|device-side assert triggered"
        r"|an illegal memory access was encountered"
        r"|unspecified launch failure|uncorrectable ECC error encountered|initialization error"
        r"|operation not permitted)",
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    ),
    line(
        EVENT.torch.cuda_error,
        r"NCCL WARN Cuda failure (?:\d{1,4} )?'(?P<error_text>[^'\n]{1,80})'",
        "enqueue.cc:42 NCCL WARN Cuda failure 'named symbol not found'",
        when="src/include/checks.h",
    ),
    line(
        EVENT.torch.device_assert,
        r"\.cuh?:\d{1,6}: [^\n]{1,120}: block: \[[\d,]{1,30}\], thread: \[[\d,]{1,30}\] Assertion [^\n]{1,200} failed",
        "Indexing.cu:1146: indexSelectLargeIndex: block: [8,0,0], thread: [12,0,0] Assertion `srcIndex < size` failed.",
    ),
    line(
        EVENT.torch.gpu_fault,
        r"\bMemory access fault by GPU \S{1,40} \(Agent handle",
        "Memory access fault by GPU node-9 (Agent handle: 0x7d5f990) on address 0x14a1cfe01000. Reason: Unknown.",
        when="ROCm's runtime",
    ),
    line(
        EVENT.torch.pin_failed,
        r"(?:cudaHostAlloc|cudaHostRegister|pin_memory).{0,200}(?:out of memory|invalid argument|OS call failed"
        r"|failed)|pointer dont match with cudaHostRegister",
        "RuntimeError: CUDA error: cudaHostRegister failed: out of memory",
    ),
    line(
        EVENT.torch.loader_killed,
        r"DataLoader worker \(pid\(?s?\)? ?(?P<pid>\d{1,9})[^)]{0,200}\) is killed by signal: "
        r"(?P<signal_text>Bus error|Killed|Terminated|Segmentation fault|Aborted)",
        "RuntimeError: DataLoader worker (pid 37) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
    ),
    line(
        EVENT.torch.loader_shm,
        r"dataloader's workers are out of shared memory|insufficient shared memory \(shm\)",
        "It is possible that dataloader's workers are out of shared memory.",
    ),
    line(
        EVENT.torch.shm_failed,
        r"unable to (?:allocate shared memory|open shared memory object|write to file </torch_)"
        r"[^\n]{0,200}(?:No space\b|Cannot allocate memory)"
        r"|\[Errno 28\][^\n]{0,200}[ '\"]/dev/shm/",
        "RuntimeError: unable to allocate shared memory(shm) for file </torch_812_2207_0>: No space left on device "
        "(28)",
    ),
    line(
        EVENT.torch.write_failed,
        r"PytorchStreamWriter failed writing|inline_container\.cc:\d+\] ?\. unexpected pos"
        r"|basic_ios::clear: iostream error",
        "RuntimeError: [enforce fail at inline_container.cc:603] . unexpected pos 704 vs 598",
    ),
    line(
        EVENT.torch.loader_exited,
        r"DataLoader worker \(pid\(s\) [0-9, ]+\) exited unexpectedly",
        "RuntimeError: DataLoader worker (pid(s) 1, 2) exited unexpectedly",
    ),
    line(
        EVENT.torch.process_failed,
        r"failed \(exitcode: (?P<exit_code>-?\d+)\) local_rank: (?P<local_rank>\d+) \(pid: (?P<pid>\d+)\)",
        "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 598577) of "
        "binary: /usr/bin/python",
    ),
    line(
        EVENT.torch.process_signal,
        r"exitcode *: (?P<exit_code>-\d+) \(pid: (?P<pid>\d+)\)"
        r"|traceback *: Signal (?P<signal>\d+) \((?P<name>SIG[A-Z]+)\) received by PID",
        "  exitcode  : -9 (pid: 598577)",
    ),
    line(
        EVENT.torch.closing_signal,
        r"Sending process (?P<pid>\d+) closing signal SIGTERM",
        "torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 598579 closing signal SIGTERM",
    ),
    line(
        EVENT.torch.agent_signal,
        r"SignalException: Process (?P<pid>\d+) got signal: (?P<signal>\d+)"
        r"|Received (?P<name>SIG[A-Z]+|\d{1,2} death signal)|got signal (?P<other_text>SIG(?:TERM|INT))"
        r"|Sending process \d+ closing signal SIG(?:HUP|INT|QUIT)\b",
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 102 got signal: 15",
    ),
    line(
        EVENT.torch.leaked_objects,
        r"There appear to be (?P<object_count>\d+) leaked (?P<what_text>shared_memory|semaphore) objects",
        "resource_tracker: There appear to be 6 leaked shared_memory objects to clean up at shutdown",
    ),
    line(
        EVENT.torch.saver_died,
        r"Checkpoint background process is dead\. Exit code: (?P<exit_code>-?\d{1,4})",
        "RuntimeError: Checkpoint background process is dead. Exit code: -9",
        when="torch/distributed/checkpoint/_async_process_executor.py, 2.5 and newer",
    ),
    line(
        EVENT.python.memory_error,
        r"MKL \w{1,12} (?:ERROR|fatal error): (?:Not enough memory|cannot allocate memory)",
        "Intel oneMKL DFTI ERROR: Not enough memory to allocate",
    ),
    line(
        EVENT.torch.child_failed,
        r"ChildFailedError:?\s*$",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ),
    line(
        EVENT.torch.child_failed,
        r"^\W{0,8}Root Cause \(first observed failure\):?\s*$|^\W{0,8}\S{1,300}\.py FAILED\s*$",
        "Root Cause (first observed failure):",
        when="the table of torch/distributed/elastic/multiprocessing/errors/__init__.py",
    ),
)

_SIZE = r"([0-9.]+ (?:bytes|[KMGT]iB))"


def _torn(words: str) -> str:
    """The words, each of which may have a blank where a line was wrapped within it."""
    return " ?".join(map(re.escape, words.replace(" ", "")))


_SIZES = {
    "total_bytes": (
        rf"(?:total capaci?ty of |{_torn('total capacity of')} ?|; ){_SIZE}(?= ?{_torn('of which')}| total capacity)"
    ),
    "free_bytes": rf"(?:{_torn('of which')} ?|; ){_SIZE}(?= ?{_torn('is free')}| free)",
    "allocated_bytes": (
        rf"(?:{_torn('Of the allocated memory')} ?|; ){_SIZE}"
        rf"(?= ?{_torn('is allocated by PyTorch')}| already allocated)"
    ),
    "reserved_bytes": rf"{_SIZE}(?= reserved in total| cached)",
    "unallocated_bytes": rf"{_SIZE}(?= ?{_torn('is reserved by PyTorch but unallocated')})",
    "own_bytes": rf"{_torn('this process has')} ?{_SIZE} ?{_torn('memory in use')}",
}
_COMPILED = {name: re.compile(regex) for name, regex in _SIZES.items()}
_OTHERS = re.compile(r"Process (\d+) has ([0-9.]+ (?:bytes|[KMGT]iB)) memory in use")


def read_cuda_oom(text: str) -> dict[str, Value]:
    """The sizes of a CUDA OOM message, in bytes; what the wording lacks is left out.

    `unallocated_bytes` is `reserved - allocated` where only those two are given (to 2.0);
    `others_bytes` is what other processes on the GPU hold, if the driver reports it.

    >>> read_cuda_oom("(GPU 0; 6.00 GiB total capacity; 4.00 GiB already allocated; 0 bytes free; "
    ...               "5.00 GiB reserved in total by PyTorch)")["unallocated_bytes"] == 1024**3
    True
    """
    found: dict[str, Value] = {}
    for name, regex in _COMPILED.items():
        match = regex.search(text)
        if match is not None:
            found[name] = parse_bytes(match[1])
    reserved, allocated = found.pop("reserved_bytes", None), found.get("allocated_bytes")
    if isinstance(reserved, int) and isinstance(allocated, int):
        found.setdefault("unallocated_bytes", max(reserved - allocated, 0))
    others = [parse_bytes(size) or 0 for _, size in _OTHERS.findall(text)]
    if others:
        own = _own_of(others, found)
        if own is not None:
            others.remove(own)
            found["own_bytes"] = own
    if others:
        found["others_count"] = len(others)
        found["others_bytes"] = sum(others)
        found["others_zero"] = not any(others)
    return found


def _own_of(listed: Sequence[int], sizes: Mapping[str, Value]) -> int | None:
    """The listed process that can only be this one: it holds what PyTorch has here, and its context.

    Where process numbers differ by namespace, PyTorch names its own process among the others, or it alone.
    """
    allocated, total, free = (sizes.get(f"{name}_bytes") for name in ("allocated", "total", "free"))
    if "own_bytes" in sizes or not isinstance(allocated, int):
        return None
    room = [size for size in listed if allocated <= size * 1.01]
    too_many = isinstance(total, int) and isinstance(free, int) and sum(listed) + allocated > (total - free) * 1.02
    return min(room) if room and (len(listed) > 1 or too_many) else None
