"""What a single event shows of a death: the killer, and how certain that is.

The ranks: a certain killer, a timeout, an exception, a process that merely vanished. Each of them makes the ones below it.
"""

from __future__ import annotations

import re

from rlhfdoctor.evidence.case import number
from rlhfdoctor.types import Event

_ECHO_ERRORS = (
    "ActorDiedError", "RayActorError", "ActorUnavailableError", "WorkerCrashedError", "RayTaskError", "ChildFailedError",
    "NodeDiedError", "OwnerDiedError", "LocalRayletDiedError", "KeyboardInterrupt", "DistBackendError", "EngineDeadError",
    "TaskCancelledError", "GetTimeoutError", "BrokenPipeError", "ConnectionResetError", "CalledProcessError", "EOFError",
    "ConnectionError", "ObjectLostError", "ReferenceCountingAssertionError", "SystemExit", "ConnectionRefusedError",
    "StopIteration", "ChildProcessError", "ProcessExitedException", "UserWarning", "RpcError",
)  # fmt: skip
CERTAIN = 0
TIMEOUT = 1
EXCEPTION = 2
VANISHED = 3

_WARNING = re.compile(r"\[W\d{3,4} \d\d:\d\d:")
TRIED_AGAIN = re.compile(r"(?<!fork: )\bretry|\bWARN", re.I)
_CUDA_ERROR = re.compile(r"CUDA(?: driver| runtime)? error|CUDA out of memory|CUDA kernel")
"""Told by torch.cuda_error and torch.cuda_oom."""
RAY_SERVICE = re.compile(
    r"(?:^|[/!])(?:monitor|dashboard|dashboard_\w+|runtime_env_agent|log_monitor|ray_client_server\w*|gcs_server)\.(?:log|out|err)(?:\.|$)"
)
"""Logs of Ray's services: an exception there is not the job's."""
_RAY_CORE = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+ [IWE] \d+ \d+\] \w+\.cc:\d+: ")
"""A line of Ray's C++ core; an IOError there is a status of its own, not a Python exception."""


def classify(event: Event) -> tuple[str, int] | None:
    """The killer that a single event shows, and its rank; None for events that show none.

    >>> from rlhfdoctor.types import Origin
    >>> classify(Event(kind="nccl.timeout", fields={}, origin=Origin(file="a"), text=""))
    ('collective-timeout', 1)
    """
    kind, fields = event.kind, event.fields
    if kind.startswith("nccl.") and _WARNING.search(event.text):
        return None  # severity W: said at orderly exits too
    if kind in _ALWAYS:
        return None if kind == "host.process_limit" and TRIED_AGAIN.search(event.text) else _ALWAYS[kind]
    if kind in ("kernel.killed", "kernel.kill_choice"):
        memcg = str(fields.get("scope") or "").startswith("Memory cgroup")
        return ("kernel-oom-cgroup" if memcg else "kernel-oom-node"), CERTAIN
    if kind == "kernel.oom_kill":
        memcg = fields.get("constraint") == "CONSTRAINT_MEMCG"
        return ("kernel-oom-cgroup" if memcg else "kernel-oom-node"), CERTAIN
    if kind == "docker.oom_killed":
        return ("kernel-oom-cgroup", CERTAIN) if fields.get("flag") == "true" else None
    if kind == "ray.memory_summary":
        return ("ray-memory-monitor", CERTAIN) if fields.get("oom_count", 1) else None
    if kind == "ray.worker_exit_gcs":
        memory = fields.get("exit_type") == "NODE_OUT_OF_MEMORY"
        return ("ray-memory-monitor", CERTAIN) if memory else None
    if kind in (
        "deepspeed.exit",
        "torch.process_failed",
        "torch.process_signal",
        "docker.exit",
        "trace.job_exit",
        "k8s.exit",
        "sglang.crashed",
    ):
        return _by_exit(event)
    if kind == "torch.loader_killed":
        return {
            "Bus error": ("sigbus", CERTAIN),
            "Segmentation fault": ("sigsegv", CERTAIN),
            "Killed": ("sigkill-unknown", VANISHED),
        }.get(str(fields.get("signal_text")))
    if kind == "python.fatal":
        error = str(fields.get("error_text"))
        if error == "Aborted":
            return "exception", VANISHED  # abort() follows from what was raised or timed out before
        return ("sigbus" if error == "Bus error" else "sigsegv" if error.startswith("Seg") else "exception"), CERTAIN
    if kind == "python.signal":
        name = f"{fields.get('name') or fields.get('core_text') or ''}"
        return (
            ("sigbus", CERTAIN)
            if "BUS" in name or "Bus" in name
            else ("sigsegv", CERTAIN)
            if "SEGV" in name or "Seg" in name
            else None
        )
    if kind == "torch.cuda_error":
        memory = fields.get("error_text") == "out of memory"
        return ("cuda-oom", CERTAIN) if memory else ("exception", EXCEPTION)
    if kind == "ray.task_error":
        gpu = fields.get("error") == "OutOfMemoryError" and "memory_kill" not in event.text
        return ("cuda-oom", EXCEPTION) if gpu else None
    if kind == "kernel.xid":
        return ("other", CERTAIN) if fields.get("xid") != 45 else None
    if kind in ("python.error", "python.bare_error"):
        return _by_error(event)
    return None


_ALWAYS: dict[str, tuple[str, int]] = {
    "kernel.oom_group": ("kernel-oom-cgroup", CERTAIN),
    "kernel.memcg_task": ("kernel-oom-cgroup", CERTAIN),
    "kernel.userspace_oom": ("other", CERTAIN),
    "kernel.segfault": ("sigsegv", CERTAIN),
    "kernel.gpu_lost": ("other", CERTAIN),
    "host.gpu_unreachable": ("other", CERTAIN),
    "k8s.oom_killed": ("kernel-oom-cgroup", CERTAIN),
    "slurm.oom": ("kernel-oom-cgroup", CERTAIN),
    "slurm.limit_killed": ("kernel-oom-cgroup", CERTAIN),
    "slurm.task_oom": ("kernel-oom-cgroup", CERTAIN),
    "ray.memory_kill": ("ray-memory-monitor", CERTAIN),
    "ray.memory_kill_old": ("ray-memory-monitor", CERTAIN),
    "ray.memory_kill_numbers": ("ray-memory-monitor", CERTAIN),
    "ray.memory_kill_notice": ("ray-memory-monitor", CERTAIN),
    "ray.memory_error_old": ("ray-memory-monitor", CERTAIN),
    "ray.memory_advice": ("ray-memory-monitor", CERTAIN),
    "ray.memory_row": ("ray-memory-monitor", CERTAIN),
    "ray.object_store_full": ("object-store-full", CERTAIN),
    "ray.object_store_error": ("object-store-full", CERTAIN),
    "torch.cuda_oom": ("cuda-oom", CERTAIN),
    "torch.cuda_oom_class": ("cuda-oom", CERTAIN),
    "vllm.wake_oom": ("cuda-oom", CERTAIN),
    "nccl.cuda_oom": ("cuda-oom", CERTAIN),
    "torch.loader_shm": ("sigbus", CERTAIN),
    "shell.bus_error": ("sigbus", CERTAIN),
    "slurm.cancelled": ("other", CERTAIN),
    "slurm.preempted": ("other", CERTAIN),
    "k8s.evicted": ("other", CERTAIN),
    "torch.agent_signal": ("other", EXCEPTION),
    "shell.terminated": ("other", EXCEPTION),
    "job.interrupted": ("other", EXCEPTION),
    "nccl.timeout": ("collective-timeout", TIMEOUT),
    "nccl.heartbeat": ("collective-timeout", TIMEOUT),
    "nccl.monitored_barrier": ("collective-timeout", TIMEOUT),
    "gloo.timeout": ("collective-timeout", TIMEOUT),
    "nccl.remote_error": ("exception", EXCEPTION),
    "nccl.ib_error": ("exception", EXCEPTION),
    "nccl.store_timeout": ("exception", VANISHED),
    "vllm.no_cache_blocks": ("exception", EXCEPTION),
    "vllm.cache_too_small": ("exception", EXCEPTION),
    "vllm.gpu_taken": ("exception", EXCEPTION),
    "vllm.sleep_grew": ("exception", EXCEPTION),
    "vllm.engine_dead": ("exception", VANISHED),
    "sglang.no_memory": ("exception", EXCEPTION),
    "sglang.profiled": ("exception", EXCEPTION),
    "ray.shm_exceeded": ("exception", EXCEPTION),
    "host.process_limit": ("exception", EXCEPTION),
    "host.no_space": ("exception", EXCEPTION),
    "python.memory_error": ("exception", EXCEPTION),
    "python.abort": ("exception", VANISHED),
    "ray.raylet_agent_failed": ("other", EXCEPTION),
    "trace.cgroup_kill": ("kernel-oom-cgroup", CERTAIN),
    "trace.node_kill": ("kernel-oom-node", CERTAIN),
    "trace.raylet_gone": ("sigkill-unknown", VANISHED),
    "trace.node_lost": ("sigkill-unknown", VANISHED),
    "ray.worker_vanished": ("sigkill-unknown", VANISHED),
    "ray.raylet_died": ("sigkill-unknown", VANISHED),
    "ray.memory_reason": ("ray-memory-monitor", CERTAIN),
    "kernel.oom_invoked": ("kernel-oom-node", CERTAIN),
    "kernel.task_header": ("kernel-oom-node", CERTAIN),
    "ray.worker_died": ("sigkill-unknown", VANISHED),
    "ray.node_dead": ("other", VANISHED),
    "deepspeed.killing": ("sigkill-unknown", VANISHED),
    "shell.killed": ("sigkill-unknown", VANISHED),
    "job.exit_137": ("sigkill-unknown", VANISHED),
}  # fmt: skip


def _by_exit(event: Event) -> tuple[str, int] | None:
    code = number(event, "exit_code")
    if code is None:
        signal = number(event, "signal")
        code = None if signal is None else -signal
    if code in (-9, 137, 247):
        return "sigkill-unknown", VANISHED
    if code in (-7, 135):
        return "sigbus", CERTAIN
    if code in (-11, 139):
        return "sigsegv", CERTAIN
    if code in (-15, 143):
        return "other", VANISHED
    if event.kind == "trace.job_exit" and code != 0:
        return "exception", VANISHED  # a driver also ends with 1 because an actor of its was killed
    return None


def _by_error(event: Event) -> tuple[str, int] | None:
    name = str(event.fields.get("name", "")).rsplit(".", 1)[-1]
    message = str(event.fields.get("message_text", ""))
    if RAY_SERVICE.search(event.origin.file):
        return None  # the cluster's own services go on after what they log
    if name in _ECHO_ERRORS or name in ("OutOfMemoryError", "RayOutOfMemoryError") or "Warning" in name:
        return None
    if (
        "WorkNCCL" in message
        or "Exception ignored" in event.text
        or _CUDA_ERROR.search(message[:60])
        or _RAY_CORE.search(event.text)
    ):
        return None
    return "exception", EXCEPTION
