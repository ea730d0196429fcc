"""CUDA OOM errors of torch 1.3 to 2.10, data loaders, launchers."""

from __future__ import annotations

import pytest

from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.types import Value
from rlhfdoctor.units import GIB, MIB
from tests.build import fields_of, read_log


def gib(value: float) -> int:
    """Bytes of a number of GiB."""
    return round(value * GIB)


V13 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.39 GiB (GPU 0; 6.00 GiB total capacity; 4.04 GiB already allocated; "
    "478.00 MiB free; 4.15 GiB cached)"
)
V19 = (
    "RuntimeError: CUDA out of memory. Tried to allocate 1.39 GiB (GPU 0; 6.00 GiB total capacity; 4.04 GiB already allocated; "
    "478.00 MiB free; 4.15 GiB reserved in total by PyTorch)"
)
V113 = V19.replace("RuntimeError", "torch.cuda.OutOfMemoryError") + (
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid fragmentation.  See documentation for "
    "Memory Management and PYTORCH_CUDA_ALLOC_CONF"
)
V21 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.70 GiB. GPU 0 has a total capacty of 6.00 GiB of which 0 "
    "bytes is free. Of the allocated memory 2.93 GiB is allocated by PyTorch, and 2.30 GiB is reserved by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting max_split_size_mb to avoid fragmentation."
)
V22 = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 130.00 MiB. GPU 3 has a total capacity of 79.10 GiB of which "
    "20.25 MiB is free. Including non-PyTorch memory, this process has 18.73 GiB memory in use. Process 29153 has 248.00 MiB memory "
    "in use. Process 29154 has 60.00 GiB memory in use. Of the allocated memory 17.00 GiB is allocated by PyTorch, and 512.50 KiB is "
    "reserved by PyTorch but unallocated. If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation."
)
V25 = V22.replace("torch.cuda.Out", "torch.Out") + (
    "  See documentation for Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
)
V29 = V25.replace("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
OLD = {
    "total_bytes": 6 * GIB,
    "free_bytes": 478 * MIB,
    "allocated_bytes": gib(4.04),
    "unallocated_bytes": gib(4.15) - gib(4.04),
}
NEW = {
    "total_bytes": gib(79.10),
    "free_bytes": round(20.25 * MIB),
    "allocated_bytes": 17 * GIB,
    "unallocated_bytes": 524800,
    "own_bytes": gib(18.73),
    "others_count": 2,
    "others_bytes": 248 * MIB + 60 * GIB,
    "others_zero": False,
}
OF_2_1 = {"total_bytes": 6 * GIB, "free_bytes": 0, "allocated_bytes": gib(2.93), "unallocated_bytes": gib(2.30)}
WORDINGS = {
    "1.3": (V13, gib(1.39), OLD),
    "1.9": (V19, gib(1.39), OLD),
    "1.13": (V113, gib(1.39), OLD),
    "2.1": (V21, gib(1.70), OF_2_1),
    "2.2": (V22, 130 * MIB, NEW),
    "2.5": (V25, 130 * MIB, NEW),
    "2.9": (V29, 130 * MIB, NEW),
}


@pytest.mark.parametrize(("text", "request_bytes", "expected"), WORDINGS.values(), ids=WORDINGS)
def test_cuda_oom(text: str, request_bytes: int, expected: dict[str, Value]) -> None:
    """Every wording gives the request and all sizes in bytes."""
    (fields,) = fields_of(text, "torch.cuda_oom")
    assert (request_bytes, expected) == (fields["request_bytes"], read_cuda_oom(str(fields["rest_text"])))


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ("512 bytes", 512),
        ("2.00 KiB", 2048),
        ("20.00 MiB", 20 * MIB),
        ("1.5 TiB", 3 * 512 * GIB),
        ("98231.77 GiB", gib(98231.77)),
    ],
)
def test_units_of_the_request(size: str, expected: int) -> None:
    """The request may be of any unit, even where it is absurd."""
    text = f"CUDA out of memory. Tried to allocate {size}. GPU 0 has a total capacity of 6.00 GiB of which 0 bytes is free."
    assert [expected] == [fields["request_bytes"] for fields in fields_of(text, "torch.cuda_oom")]


@pytest.mark.parametrize("speaker", ["HIP", "NPU", "XPU"])
def test_other_accelerators(speaker: str) -> None:
    """The allocators of other makers use the same words."""
    text = f"torch.OutOfMemoryError: {speaker} out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 64.00 GiB"
    assert [fields["request_bytes"] for fields in fields_of(text, "torch.cuda_oom")] == [GIB]


def test_allowed_share() -> None:
    """The part about an allowed share, where it is given, hides none of the other sizes."""
    text = V22.replace("Of the allocated", "4.00 GiB allowed; Of the allocated")
    assert read_cuda_oom(text) == NEW


def test_other_process_without_memory() -> None:
    """Other processes of which the driver knows no size are counted, and marked as zero."""
    text = "Process 1 has 0 bytes memory in use. Process 2 has 0 bytes memory in use."
    assert read_cuda_oom(text) == {"others_count": 2, "others_bytes": 0, "others_zero": True}


@pytest.mark.parametrize("text", ["", "nothing of the kind", "GPU 0 has"])
def test_text_without_sizes(text: str) -> None:
    """Sizes that are not there are left out, not zero."""
    assert read_cuda_oom(text) == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torch.cuda.OutOfMemoryError:", ["torch.cuda_oom_class"]),
        ("torch.OutOfMemoryError", ["torch.cuda_oom_class"]),
        ("ray.exceptions.OutOfMemoryError: Task failed", []),
        ("OutOfMemoryError", []),
    ],
)
def test_class_name(line: str, expected: list[str]) -> None:
    """The bare class name, which Ray has too, is no error of torch."""
    assert expected == [event.kind for event in read_log(line) if event.kind.startswith("torch.")]


@pytest.mark.parametrize(
    ("line", "kind", "expected"),
    [
        (
            "RuntimeError: DataLoader worker (pid 37) is killed by signal: Bus error. It is possible that dataloader's workers are out "
            "of shared memory. Please try to raise your shared memory limit.",
            "torch.loader_killed",
            {"pid": 37, "signal_text": "Bus error"},
        ),
        (
            "RuntimeError: DataLoader worker (pid 37) is killed by signal: Killed. ",
            "torch.loader_killed",
            {"pid": 37, "signal_text": "Killed"},
        ),
        (
            "RuntimeError: DataLoader worker (pid 5) is killed by signal: Segmentation fault",
            "torch.loader_killed",
            {"pid": 5, "signal_text": "Segmentation fault"},
        ),
        (
            "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).",
            "torch.loader_shm",
            {},
        ),
        ("RuntimeError: DataLoader worker (pid(s) 1, 2) exited unexpectedly", "torch.loader_exited", {}),
        (
            "torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: -9) local_rank: 0 (pid: 598577) of binary: /usr/bin/python",
            "torch.process_failed",
            {"exit_code": -9, "local_rank": 0, "pid": 598577},
        ),
        (
            "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: -9) local_rank: 3 (pid: 9) of binary: python",
            "torch.process_failed",
            {"exit_code": -9, "local_rank": 3, "pid": 9},
        ),
        ("  exitcode  : -9 (pid: 598577)", "torch.process_signal", {"exit_code": -9, "pid": 598577}),
        (
            "  traceback : Signal 9 (SIGKILL) received by PID 598577",
            "torch.process_signal",
            {"signal": 9, "name": "SIGKILL"},
        ),
        (
            "torch.distributed.elastic.multiprocessing.api: [WARNING] Sending process 598579 closing signal SIGTERM",
            "torch.closing_signal",
            {"pid": 598579},
        ),
        (
            "UserWarning: resource_tracker: There appear to be 6 leaked shared_memory objects to clean up at shutdown",
            "torch.leaked_objects",
            {"object_count": 6, "what_text": "shared_memory"},
        ),
        (
            "resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown",
            "torch.leaked_objects",
            {"object_count": 1, "what_text": "semaphore"},
        ),
        (
            "RuntimeError: CUDA error: uncorrectable ECC error encountered",
            "torch.cuda_error",
            {"error_text": "uncorrectable ECC error encountered"},
        ),
    ],
)
def test_loaders_and_launchers(line: str, kind: str, expected: dict[str, Value]) -> None:
    """Data loaders, launchers and CUDA errors give pid, code and signal."""
    assert [expected] == fields_of(line, kind)


def test_exit_code_without_a_sign_is_no_signal() -> None:
    """A process that returned 1 was not ended by a signal."""
    assert fields_of("  exitcode  : 1 (pid: 598577)", "torch.process_signal") == []
