"""Wordings that `make speakers` found in the releases, each with the event and the failure that it means."""

from __future__ import annotations

import pytest

from rlhfdoctor.evidence.classify import classify
from tests.build import read_log

RAY = "[2025-10-04 17:41:09,117 I 4711 4733] "
GLOO = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:534] "
LINES: dict[str, tuple[str, str | None]] = {
    "n1:88:91 [3] misc/shmutils.cc:93 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-a1 (size 512), "
    "error: No space left on device (28)": ("nccl.shm_failed", "exception"),
    "n1:88:91 [3] NCCL WARN Error: failed to extend /dev/shm/nccl-a1 to 512 bytes, error: disk quota (1)": (
        "nccl.shm_failed",
        "exception",
    ),
    "n1:88:91 [3] include/alloc.h:62 NCCL WARN Failed to CUDA host alloc 4194304 bytes": ("torch.pin_failed", "exception"),
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
    "ibv_reg_mr: Cannot allocate memory (did you run into the locked memory limit?)": ("torch.pin_failed", "exception"),
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
    "slurmstepd: error: StepId=88.0 exceeded memory limit (9126805504 > 8589934592), being killed": (
        "slurm.limit_killed",
        "kernel-oom-cgroup",
    ),
    "slurmstepd: error: Step 88.0 exceeded virtual memory limit (91268055 > 85899345), being killed": (
        "slurm.limit_killed",
        "kernel-oom-cgroup",
    ),
    "[2025-10-04T17:41:09.117] [88.0] debug:  oom-kill event count: 3": ("slurm.oom", "kernel-oom-cgroup"),
    "[2025-10-04T17:41:09.117] [88.0] CGROUP: OOM detected 4 job and 2 step kills": ("slurm.oom", "kernel-oom-cgroup"),
    "[2025-10-04T17:41:09.117] [88.0] task 5 (40718) Out Of Memory (OOM)": ("slurm.task_oom", "kernel-oom-cgroup"),
    "[2025-10-04T17:41:09.117] [88.0] task 5 (40718) exited. Killed by signal 9.": ("job.exit_137", "sigkill-unknown"),
    "[2025-10-04T17:41:09.117] [88.0] task 5 (40718) exited. Killed by signal 11 (core dumped).": (
        "job.exit_139",
        "sigsegv",
    ),
    "[2025-10-04T17:41:09.117] [88.0] fatal: Failure to allocate memory for a message header": (
        "python.memory_error",
        "exception",
    ),
    "[2025-10-04T17:41:09.117] Job 88: timeout: sent SIGTERM to 2 active steps": ("slurm.cancelled", "other"),
    "slurmstepd: error: *** STEP 88+1.0 ON n4 CANCELLED AT 2025-10-04T17:41:09 DUE TO TIME LIMIT ***": (
        "slurm.cancelled",
        "other",
    ),
    "slurmstepd: error: *** STEP 88.interactive ON n4 CANCELLED AT 2025-10-04T17:41:09 DUE TO PREEMPTION ***": (
        "slurm.cancelled",
        "other",
    ),
    "srun: sending Ctrl-C to StepId=88.0": ("job.interrupted", "other"),
    "srun: interrupt (abort already in progress)": ("job.interrupted", "other"),
    "[W101 alloc.cpp:9] C10 Out of Memory. Trying to allocate 68719476736 bytes": ("python.memory_error", "exception"),
    "RuntimeError: CUDA out of memory. Tried to allocate more than 1EB memory.": ("torch.cuda_oom_class", "cuda-oom"),
    "RuntimeError: Host and device pointer dont match with cudaHostRegister.": ("torch.pin_failed", "exception"),
    RAY + "(gcs_server) gcs_health_check_manager.cc:86: Node is dead because the health check failed. node_id=ab12": (
        "ray.node_dead",
        "other",
    ),
    RAY + "(gcs_server) gcs_health_check_manager.cc:75: Node ab12cd is dead because the health check failed.": (
        "ray.node_dead",
        "other",
    ),
    "death message = health check failed due to missing too many heartbeats": ("ray.node_dead", "other"),
    RAY + "(raylet) node_manager.cc:470: GCS consider this node to be dead. This may happen when GCS is not backed by a "
    "DB and restarted or there is data loss in the DB.": ("ray.node_crashed", None),
    "The node (IP: 10.0.0.2, node ID: ab12) where this task was running crashed unexpectedly. This can happen if: (1) the "
    "instance where the node was running failed": ("ray.node_crashed", None),
    "The actor died because its node has died. Node Id: ab12": ("ray.node_crashed", None),
    RAY + "raylet_ipc_client.cc:54: Exiting because the Raylet IPC connection failed and the local Raylet is dead. Status: "
    "IOError: Broken pipe": ("ray.node_crashed", None),
    RAY + "raylet_client.cc:58: The connection is failed because the local raylet has been dead. Terminate the process. "
    "Status: IOError: Broken pipe": ("ray.node_crashed", None),
    RAY + "core_worker.cc:2204: The worker failed to receive a response from the local raylet because the raylet is "
    "unavailable (crashed). Error: grpc": ("ray.node_crashed", None),
    "The actor is dead because all references to the actor were removed.": ("ray.intended_exit", None),
    "The actor is temporarily unavailable: IOError: The actor was restarted": ("ray.actor_lost", None),
    "There was timeout in getting the actor handle, probably because the GCS server is dead or under high load .": (
        "ray.gcs_lost",
        None,
    ),
    RAY + "gcs_rpc_client.h:302: Timed out while waiting for GCS to become available.": ("ray.gcs_lost", None),
    "[2025-10-04 17:41:09,117 C 4711 4711] (raylet) node_manager.cc:3021:  Check failed: pinned_objects_size_ == 0 ": ("python.abort", "exception"),
    RAY + "(gcs_server) gcs_server.cc:170:  An unexpected system state has occurred. You have likely discovered a bug in "
    "Ray. Please report this issue at https://github.com/ray-project/ray/issues and we'll work with you to fix it. Check "
    "failed: status Status not OK: RedisError Redis connection failed unexpectedly.": ("python.abort", "exception"),
    RAY + "(raylet) worker_pool.cc:482: Too many workers, failed to create a file. Try setting `ulimit -n <num_files>` "
    "then restart Ray.": ("host.process_limit", "exception"),
    RAY + "(raylet) node_manager.cc:2922: Worker evicted and process killed to reclaim memory. worker pid: 77": (
        "ray.memory_kill_notice",
        "ray-memory-monitor",
    ),
    "The node has insufficient memory to execute this workload.": ("ray.memory_kill_notice", "ray-memory-monitor"),
    "... to enable retry when the task crashes due to OOM. To adjust the kill threshold, set the environment variable "
    "`RAY_memory_usage_threshold`": ("ray.memory_advice", "ray-memory-monitor"),
    "Worker running the task (75ab) died with exit_type: 0 with error_message: Worker unexpectedly exits": (
        "ray.worker_exit_gcs",
        None,
    ),
    "OutOfDisk: Local disk is full": ("ray.out_of_disk", "object-store-full"),
    "INFO worker.py:2950 -- Put failed since the value was either too large or the store was full of pinned objects.": (
        "ray.object_store_error",
        "object-store-full",
    ),
    "ERROR job_manager.py:310 -- Job supervisor actor for raysubmit_Ab1 died: The actor died": (
        "ray.job_failed",
        "exception",
    ),
    "ERROR job_manager.py:316 -- Job monitoring for job raysubmit_Ab1 failed unexpectedly: boom.": (
        "ray.job_failed",
        "exception",
    ),
    "WARNING: The object store is using /var/tmp/u7 instead of /dev/shm because /dev/shm has only 67108864 bytes available.": (
        "ray.shm_small",
        None,
    ),
}
ROUTINE = (
    "[2025-10-04T17:41:09.117] [88.0] debug:  No oom events detected.",
    "[2025-10-04T17:41:09.117] [88.0] CGROUP: OOM detected 0 job and 0 step kills",
    "[2025-10-04T17:41:09.117] [88.0] CGROUP: OOM detected 2 job and 0 step kills",
    "[2025-10-04T17:41:09.117] [88.0] debug:  oom-kill event count: 0",
    "[2025-10-04T17:41:09.117] [88.0] StepId=88.0 hit memory limit at least once during execution. This may or may not "
    "result in some failure.",
    "[2025-10-04T17:41:09.117] [88.0] debug:  Terminate signal (SIGTERM) received",
    "[2025-10-04T17:41:09.117] [88.extern] Sent SIGKILL signal to StepId=88.extern",
    "[2025-10-04T17:41:09.117] [88.0] task 5 (40718) exited with exit code 0.",
    "srun: interrupt (one more within 1 sec to abort)",
    "Killed by signal 15.",
    "[12:00:01] /project/cpp/grammar.cc:100: Check failed: (x) is false",
    "Health Check failed: connection refused, will retry",
    RAY + "task_manager.cc:458: task c8ef retries left: 3, oom retries left: 1, task failed due to oom: 0",
    RAY + "(raylet) node_manager.cc:300: Sending SIGTERM to gracefully shutdown raylet",
    RAY + "(raylet) main.cc:812: Raylet received SIGTERM, shutting down...",
    RAY + "(raylet) node_manager.cc:801: Killing leased worker because its job finished. worker_id=ab",
    RAY + "(raylet) worker_pool.cc:1200: killing idle worker with PID 77",
    RAY + "(raylet) node_manager.cc:910: Node is marked as dead by GCS because the node is drained.",
    RAY + "(gcs_server) gcs_actor_manager.cc:1100: Finished killing actor, job id = 01000000",
    RAY + "core_worker.cc:751: Node failure. All objects pinned on that node will be lost if object reconstruction is not "
    "enabled. node_id=ab12",
    RAY + "(raylet) create_request_queue.cc:140: In grace period before fallback allocation / oom.",
    RAY + "(raylet) store.cc:306: Shared memory store full, falling back to allocating from filesystem: 83886080",
    RAY + "(raylet) store_runner.cc:80: System memory request exceeds memory available in /dev/shm. The request is for "
    "9000000000 bytes, and the amount available is 8000000000 bytes. You may be able to free up space by deleting files",
    RAY + "actor_manager.cc:289: received notification on actor, state: DEAD, death context type=ActorDiedErrorContext. The "
    "actor is dead because its owner has died. Owner Id: ab12",
    "Owner's worker process has crashed.",
    RAY + "worker.cc:77: Exiting because the Raylet IPC connection failed and the local Raylet is dead. Status: IOError: x",
)
"""Lines of daemons at work or at an orderly end."""


@pytest.mark.parametrize(("line", "expected"), LINES.items(), ids=lambda value: str(value)[:60])
def test_wording(line: str, expected: tuple[str, str | None]) -> None:
    """The line becomes its event, with the killer that it stands for."""
    kind, killer = expected
    found = {str(event.kind): classify(event) for event in read_log(line)}
    assert kind in found
    assert killer == (found[kind].killer if found[kind] is not None else None)  # type: ignore[union-attr]


@pytest.mark.parametrize("line", ROUTINE, ids=lambda value: str(value)[-60:])
def test_routine(line: str) -> None:
    """A daemon's routine shows no failure, nor an exception that is taken for one where a log has nothing else."""
    shown = [event.kind for event in read_log(line) if classify(event) is not None or event.kind == "ray.actor_died"]
    assert [str(kind) for kind in shown] == []
