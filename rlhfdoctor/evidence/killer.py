"""What a single event shows of a death: the killer, and how certain that is.

The ranks: a certain killer, a timeout, an exception, a process that merely vanished. Each of them makes the ones below it.
"""

from __future__ import annotations

import re

from rlhfdoctor.evidence.case import number
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.names import Kind

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
    >>> classify(Event(kind=EVENT.nccl.timeout, fields={}, origin=Origin(file="a"), text=""))
    ('collective-timeout', 1)
    """
    kind, fields = event.kind, event.fields
    if kind.scope == "nccl" and _WARNING.search(event.text):
        return None  # severity W: said at orderly exits too
    if kind in _ALWAYS:
        return None if kind == EVENT.host.process_limit and TRIED_AGAIN.search(event.text) else _ALWAYS[kind]
    if kind in (EVENT.kernel.killed, EVENT.kernel.kill_choice):
        memcg = str(fields.get(FIELD.scope) or "").startswith("Memory cgroup")
        return ("kernel-oom-cgroup" if memcg else "kernel-oom-node"), CERTAIN
    if kind == EVENT.kernel.oom_kill:
        memcg = fields.get(FIELD.constraint) == "CONSTRAINT_MEMCG"
        return ("kernel-oom-cgroup" if memcg else "kernel-oom-node"), CERTAIN
    if kind == EVENT.docker.oom_killed:
        return ("kernel-oom-cgroup", CERTAIN) if fields.get(FIELD.flag) == "true" else None
    if kind == EVENT.ray.memory_summary:
        return ("ray-memory-monitor", CERTAIN) if fields.get(FIELD.oom_count, 1) else None
    if kind == EVENT.ray.worker_exit_gcs:
        memory = fields.get(FIELD.exit_type) == "NODE_OUT_OF_MEMORY"
        return ("ray-memory-monitor", CERTAIN) if memory else None
    if kind in (
        EVENT.deepspeed.exit,
        EVENT.torch.process_failed,
        EVENT.torch.process_signal,
        EVENT.docker.exit,
        EVENT.trace.job_exit,
        EVENT.k8s.exit,
        EVENT.sglang.crashed,
    ):
        return _by_exit(event)
    if kind == EVENT.torch.loader_killed:
        return {
            "Bus error": ("sigbus", CERTAIN),
            "Segmentation fault": ("sigsegv", CERTAIN),
            "Killed": ("sigkill-unknown", VANISHED),
        }.get(str(fields.get(FIELD.signal_text)))
    if kind == EVENT.python.fatal:
        error = str(fields.get(FIELD.error_text))
        if error == "Aborted":
            return "exception", VANISHED  # abort() follows from what was raised or timed out before
        return ("sigbus" if error == "Bus error" else "sigsegv" if error.startswith("Seg") else "exception"), CERTAIN
    if kind == EVENT.python.signal:
        name = f"{fields.get(FIELD.name) or fields.get(FIELD.core_text) or ''}"
        return (
            ("sigbus", CERTAIN)
            if "BUS" in name or "Bus" in name
            else ("sigsegv", CERTAIN)
            if "SEGV" in name or "Seg" in name
            else None
        )
    if kind == EVENT.torch.cuda_error:
        memory = fields.get(FIELD.error_text) == "out of memory"
        return ("cuda-oom", CERTAIN) if memory else ("exception", EXCEPTION)
    if kind == EVENT.ray.task_error:
        gpu = fields.get(FIELD.error) == "OutOfMemoryError" and "memory_kill" not in event.text
        return ("cuda-oom", EXCEPTION) if gpu else None
    if kind == EVENT.kernel.xid:
        return ("other", CERTAIN) if fields.get(FIELD.xid) != 45 else None
    if kind in (EVENT.python.error, EVENT.python.bare_error):
        return _by_error(event)
    return None


_ALWAYS: dict[Kind, tuple[str, int]] = {
    EVENT.kernel.oom_group: ("kernel-oom-cgroup", CERTAIN),
    EVENT.kernel.memcg_task: ("kernel-oom-cgroup", CERTAIN),
    EVENT.kernel.userspace_oom: ("other", CERTAIN),
    EVENT.kernel.no_killable: ("kernel-oom-node", CERTAIN),
    EVENT.kernel.memcg_gone: ("kernel-oom-node", CERTAIN),
    EVENT.kernel.segfault: ("sigsegv", CERTAIN),
    EVENT.kernel.gpu_lost: ("other", CERTAIN),
    EVENT.host.gpu_unreachable: ("other", CERTAIN),
    EVENT.k8s.oom_killed: ("kernel-oom-cgroup", CERTAIN),
    EVENT.slurm.oom: ("kernel-oom-cgroup", CERTAIN),
    EVENT.slurm.limit_killed: ("kernel-oom-cgroup", CERTAIN),
    EVENT.slurm.task_oom: ("kernel-oom-cgroup", CERTAIN),
    EVENT.ray.memory_kill: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_kill_old: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_kill_numbers: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_kill_notice: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_error_old: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_advice: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.memory_row: ("ray-memory-monitor", CERTAIN),
    EVENT.ray.object_store_full: ("object-store-full", CERTAIN),
    EVENT.ray.object_store_error: ("object-store-full", CERTAIN),
    EVENT.torch.cuda_oom: ("cuda-oom", CERTAIN),
    EVENT.torch.cuda_oom_class: ("cuda-oom", CERTAIN),
    EVENT.vllm.wake_oom: ("cuda-oom", CERTAIN),
    EVENT.nccl.cuda_oom: ("cuda-oom", CERTAIN),
    EVENT.torch.loader_shm: ("sigbus", CERTAIN),
    EVENT.shell.bus_error: ("sigbus", CERTAIN),
    EVENT.slurm.cancelled: ("other", CERTAIN),
    EVENT.slurm.preempted: ("other", CERTAIN),
    EVENT.k8s.evicted: ("other", CERTAIN),
    EVENT.torch.agent_signal: ("other", EXCEPTION),
    EVENT.shell.terminated: ("other", EXCEPTION),
    EVENT.job.interrupted: ("other", EXCEPTION),
    EVENT.nccl.timeout: ("collective-timeout", TIMEOUT),
    EVENT.nccl.heartbeat: ("collective-timeout", TIMEOUT),
    EVENT.nccl.monitored_barrier: ("collective-timeout", TIMEOUT),
    EVENT.gloo.timeout: ("collective-timeout", TIMEOUT),
    EVENT.nccl.remote_error: ("exception", EXCEPTION),
    EVENT.nccl.ib_error: ("exception", EXCEPTION),
    EVENT.nccl.store_timeout: ("exception", VANISHED),
    EVENT.vllm.no_cache_blocks: ("exception", EXCEPTION),
    EVENT.vllm.cache_too_small: ("exception", EXCEPTION),
    EVENT.vllm.gpu_taken: ("exception", EXCEPTION),
    EVENT.vllm.sleep_grew: ("exception", EXCEPTION),
    EVENT.vllm.engine_dead: ("exception", VANISHED),
    EVENT.sglang.no_memory: ("exception", EXCEPTION),
    EVENT.sglang.profiled: ("exception", EXCEPTION),
    EVENT.ray.shm_exceeded: ("exception", EXCEPTION),
    EVENT.host.process_limit: ("exception", EXCEPTION),
    EVENT.host.no_space: ("exception", EXCEPTION),
    EVENT.python.memory_error: ("exception", EXCEPTION),
    EVENT.python.abort: ("exception", VANISHED),
    EVENT.ray.raylet_agent_failed: ("other", EXCEPTION),
    EVENT.trace.cgroup_kill: ("kernel-oom-cgroup", CERTAIN),
    EVENT.trace.node_kill: ("kernel-oom-node", CERTAIN),
    EVENT.trace.raylet_gone: ("sigkill-unknown", VANISHED),
    EVENT.trace.node_lost: ("sigkill-unknown", VANISHED),
    EVENT.ray.worker_vanished: ("sigkill-unknown", VANISHED),
    EVENT.ray.raylet_died: ("sigkill-unknown", VANISHED),
    EVENT.ray.memory_reason: ("ray-memory-monitor", CERTAIN),
    EVENT.kernel.oom_invoked: ("kernel-oom-node", CERTAIN),
    EVENT.kernel.task_header: ("kernel-oom-node", CERTAIN),
    EVENT.ray.worker_died: ("sigkill-unknown", VANISHED),
    EVENT.ray.node_dead: ("other", VANISHED),
    EVENT.deepspeed.killing: ("sigkill-unknown", VANISHED),
    EVENT.shell.killed: ("sigkill-unknown", VANISHED),
    EVENT.job.exit_137: ("sigkill-unknown", VANISHED),
}  # fmt: skip


def _by_exit(event: Event) -> tuple[str, int] | None:
    code = number(event, FIELD.exit_code)
    if code is None:
        signal = number(event, FIELD.signal)
        code = None if signal is None else -signal
    if code in (-9, 137, 247):
        return "sigkill-unknown", VANISHED
    if code in (-7, 135):
        return "sigbus", CERTAIN
    if code in (-11, 139):
        return "sigsegv", CERTAIN
    if code in (-15, 143):
        return "other", VANISHED
    if event.kind == EVENT.trace.job_exit and code != 0:
        return "exception", VANISHED  # a driver also ends with 1 because an actor of its was killed
    return None


def _by_error(event: Event) -> tuple[str, int] | None:
    name = str(event.fields.get(FIELD.name, "")).rsplit(".", 1)[-1]
    message = str(event.fields.get(FIELD.message_text, ""))
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
