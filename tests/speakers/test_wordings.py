"""Wordings that `make speakers` found in the releases, each with the event and the failure that it means."""

from __future__ import annotations

import pytest

from rlhfdoctor.evidence.classify import classify
from tests.build import read_log

GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
LINES: dict[str, tuple[str, str | None]] = {
    "n1:88:91 [3] misc/shmutils.cc:93 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1 (size 512), "
    "error: No space left on device (28)": ("nccl.shm_failed", None),
    "n1:88:91 [3] NCCL WARN Error: failed to extend /dev/shm/nccl-a1 to 512 bytes, error: disk quota (1)": (
        "nccl.shm_failed",
        None,
    ),
    "n1:88:91 [3] include/alloc.h:62 NCCL WARN Failed to CUDA host alloc 4194304 bytes": ("torch.pin_failed", None),
    "n1:88:91 [3] include/alloc.h:120 NCCL WARN Failed to malloc 67108864 bytes": ("python.memory_error", "exception"),
    "n1:88:91 [3] misc/socket.cc:450 NCCL WARN socketPollConnect: exceeded timeouts (600)": (
        "nccl.remote_error",
        "exception",
    ),
    "torch.distributed.DistBackendError: NCCL timeout when waiting for nonblocking call to become successful.": (
        "nccl.init_timeout",
        "collective-timeout",
    ),
    "torch.distributed.DistStoreError: Timed out after 901 seconds waiting for clients. 1/2 clients joined.": (
        "nccl.store_timeout",
        "exception",
    ),
    "The client socket has timed out after 600000ms while trying to connect to (10.0.0.1, 29500).": (
        "nccl.store_timeout",
        "exception",
    ),
    GLOO + "Application timeout caused pair closure": ("gloo.timeout", "collective-timeout"),
    GLOO + "Read timeout [10.0.0.2]:41234": ("gloo.timeout", "collective-timeout"),
    GLOO + "Socket unexpectedly closed": ("gloo.closed", None),
    "ibv_reg_mr: Cannot allocate memory (did you run into the locked memory limit?)": ("torch.pin_failed", None),
    "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`": (
        "torch.cuda_oom_class",
        "cuda-oom",
    ),
    "RuntimeError: CUDA driver error: out of memory": ("torch.cuda_error", "cuda-oom"),
    "Allocation on device 0 would exceed allowed memory. (out of memory)": ("torch.cuda_oom_class", "cuda-oom"),
    "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.": (
        "torch.cuda_oom_class",
        "cuda-oom",
    ),
    "RuntimeError: Checkpoint background process is dead. Exit code: -9": ("torch.saver_died", "sigkill-unknown"),
    "RuntimeError: [0] Checkpoint process died unexpectedly.": ("deepspeed.saver_died", "sigkill-unknown"),
    "ERROR core_client.py:565] Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.": (
        "vllm.engine_dead",
        "exception",
    ),
    "ERROR [async_llm_engine.py:903] Engine iteration timed out. This should never happen!": (
        "vllm.engine_dead",
        "exception",
    ),
    "TimeoutError: RPC call to execute_model timed out.": ("vllm.engine_dead", "exception"),
    "ERROR multiproc_worker_utils.py:120] Worker VllmWorkerProcess pid 47 died, exit code: -9": (
        "vllm.worker_died",
        "sigkill-unknown",
    ),
    "RuntimeError: Process ApiServer_0 (PID: 4120) died with exit code -11": ("vllm.worker_died", "sigsegv"),
    "Prefill out of memory. Try to lower your batch size.": ("sglang.no_memory", "exception"),
    "RuntimeError: Out of memory. Please set a smaller number for `--max-running-requests`.": (
        "sglang.no_memory",
        "exception",
    ),
    "Child process unexpectedly failed with an exit code -9. pid=4711": ("sglang.crashed", "sigkill-unknown"),
    "Received sigquit from a child process. It usually means the child failed.": ("sglang.scheduler_dead", "exception"),
    "[2026-02-03 11:20:15 TP0] Watchdog timeout (self.watchdog_timeout=300)": ("sglang.watchdog", "collective-timeout"),
    "exiting program after receiving SIGTERM.": ("job.interrupted", "other"),
    "exiting program at iteration 4000": ("phase.finished", None),
    "`Trainer.fit` stopped: `max_steps=400` reached.": ("phase.finished", None),
}


@pytest.mark.parametrize(("line", "expected"), LINES.items(), ids=lambda value: str(value)[:60])
def test_wording(line: str, expected: tuple[str, str | None]) -> None:
    """The line becomes its event, with the killer that it stands for."""
    kind, killer = expected
    found = {str(event.kind): classify(event) for event in read_log(line)}
    assert kind in found
    assert killer == (found[kind].killer if found[kind] is not None else None)  # type: ignore[union-attr]
