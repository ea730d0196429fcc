"""What a single event shows of a death: the killer, with a rank of certainty.

The ranks: a certain killer, a timeout, an exception, a process that merely vanished. Each of them
makes the ones below it.
"""

from __future__ import annotations

import re

from rlhfdoctor.evidence.case import number
from rlhfdoctor.logs.kernel import read_xid
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.run import CERTAIN, EXCEPTION, TIMEOUT, VANISHED, Failure

_ECHO_ERRORS = (
    "ActorDiedError",
    "RayActorError",
    "ActorUnavailableError",
    "WorkerCrashedError",
    "RayTaskError",
    "ChildFailedError",
    "NodeDiedError",
    "OwnerDiedError",
    "LocalRayletDiedError",
    "KeyboardInterrupt",
    "DistBackendError",
    "EngineDeadError",
    "TaskCancelledError",
    "GetTimeoutError",
    "BrokenPipeError",
    "ConnectionResetError",
    "CalledProcessError",
    "EOFError",
    "ConnectionError",
    "ObjectLostError",
    "ReferenceCountingAssertionError",
    "SystemExit",
    "ConnectionRefusedError",
    "StopIteration",
    "ChildProcessError",
    "ProcessExitedException",
    "UserWarning",
    "RpcError",
    "RendezvousClosedError",
    "BrokenProcessPool",
    "TerminatedWorkerError",
    "SignalException",
)

_WARNING = re.compile(r"\[W\d{3,4} \d\d:\d\d:")
TRIED_AGAIN = re.compile(r"(?<!fork: )\bretry|\bWARN", re.I)
_WORKER_ENDED = re.compile(
    r"DataLoader worker \(pid(?:\(s\))? [\d, ]{1,200}\) (?:is killed by signal|exited unexpectedly)"
    r"|One of the subprocesses has abruptly died during map operation"
)
"""What a parent says of a worker that something else ended (torch's data/dataloader.py, datasets' py_utils.py)."""
_CUDA_ERROR = re.compile(r"(?:CUDA|cuda)(?: driver| runtime)? error|CUDA out of memory|CUDA kernel")
"""Inputs by torch.cuda_error and torch.cuda_oom."""
RAY_SERVICE = re.compile(
    r"(?:^|[/!])(?:monitor|dashboard|dashboard_\w+|runtime_env_agent|log_monitor|ray_client_server\w*"
    r"|gcs_server)\.(?:log|out|err)(?:\.|$)"
)
"""Logs of Ray's services: an exception there is not the job's."""
_RAY_CORE = re.compile(r"\[\d{4}-\d\d-\d\d [\d:,]+ [IWE] \d+ \d+\] \w+\.cc:\d+: ")
"""A line of Ray's C++ core; an IOError there is a status of its own, not a Python exception."""


_OF_WORKERS = (
    EVENT.ray.worker_exit_gcs,
    EVENT.ray.worker_died,
    EVENT.ray.worker_vanished,
    EVENT.ray.worker_exit_code,
)
_WHOLE_JOB = (EVENT.trace.job_exit, EVENT.docker.exit, EVENT.k8s.exit)
_INTENDED = re.compile(r"INTENDED_(?:USER|SYSTEM)_EXIT|killed by `?ray\.kill")
_EXIT_CODE = re.compile(r"exits with an exit code -?\d")


def classify(event: Event) -> Failure | None:
    """The killer that a single event shows, and its rank; None for events that show none.

    >>> from rlhfdoctor.types import Origin
    >>> classify(Event(kind=EVENT.nccl.timeout, fields={}, origin=Origin(file="a"), text=""))
    Failure(killer='collective-timeout', certainty=1)
    """
    kind, fields = event.kind, event.fields
    if kind.scope == "nccl" and _WARNING.search(event.text) and FIELD.wait_s not in fields:
        return None  # severity W: logged at orderly exits too
    if kind in _OF_WORKERS:
        return _by_worker(event)
    if kind == EVENT.slurm.cancelled and not fields.get(FIELD.reason_text):
        return Failure("other", VANISHED)  # slurm also cancels what is left of a step of which a task failed
    if kind == EVENT.nccl.store_timeout and FIELD.wait_s in fields:
        return Failure("collective-timeout", TIMEOUT)
    if kind.failure is not None:
        return None if kind == EVENT.host.process_limit and TRIED_AGAIN.search(event.text) else kind.failure
    if kind in (EVENT.kernel.killed, EVENT.kernel.kill_choice):
        memcg = str(fields.get(FIELD.scope) or "").startswith("Memory cgroup")
        return Failure("kernel-oom-cgroup" if memcg else "kernel-oom-node", CERTAIN)
    if kind == EVENT.kernel.memcg_usage:  # printed in the report of a kill only (mem_cgroup_print_oom_info)
        return Failure("kernel-oom-cgroup", CERTAIN)
    if kind == EVENT.kernel.oom_kill:
        memcg = str(fields.get(FIELD.constraint)).startswith("CONSTRAINT_MEMC") or "oom_memcg=" in event.text
        return Failure("kernel-oom-cgroup" if memcg else "kernel-oom-node", CERTAIN)
    if kind == EVENT.docker.oom_killed:
        return Failure("kernel-oom-cgroup", CERTAIN) if fields.get(FIELD.flag) == "true" else None
    if kind == EVENT.ray.memory_summary:
        return Failure("ray-memory-monitor", CERTAIN) if fields.get(FIELD.oom_count, 1) else None
    if kind in (
        EVENT.deepspeed.exit,
        EVENT.torch.process_failed,
        EVENT.torch.process_signal,
        EVENT.docker.exit,
        EVENT.trace.job_exit,
        EVENT.k8s.exit,
        EVENT.sglang.crashed,
        EVENT.vllm.worker_died,
        EVENT.torch.saver_died,
    ):
        return _by_exit(event)
    if kind == EVENT.torch.loader_killed:
        return {
            "Bus error": Failure("sigbus", CERTAIN),
            "Segmentation fault": Failure("sigsegv", CERTAIN),
            "Killed": Failure("sigkill-unknown", VANISHED),
        }.get(str(fields.get(FIELD.signal_text)))
    if kind == EVENT.python.fatal:
        error = str(fields.get(FIELD.error_text))
        if error == "Aborted":
            return Failure("exception", VANISHED)  # abort() follows from what was raised or timed out before
        return Failure(
            "sigbus" if error == "Bus error" else "sigsegv" if error.startswith("Seg") else "exception", CERTAIN
        )
    if kind == EVENT.python.signal:
        name = f"{fields.get(FIELD.name) or fields.get(FIELD.core_text) or ''}"
        return (
            Failure("sigbus", CERTAIN)
            if "BUS" in name or "Bus" in name
            else Failure("sigsegv", CERTAIN)
            if "SEGV" in name or "Seg" in name
            else None
        )
    if kind == EVENT.nccl.unreachable:
        tries, most = number(event, FIELD.try_count), number(event, FIELD.most_count)
        gave_up = "NCCL WARN" in event.text if tries is None or most is None else tries >= most
        return Failure("exception", EXCEPTION) if gave_up else None
    if kind == EVENT.torch.cuda_error:
        memory = fields.get(FIELD.error_text) == "out of memory"
        return Failure("cuda-oom", CERTAIN) if memory else Failure("exception", EXCEPTION)
    if kind == EVENT.ray.task_error:
        gpu = fields.get(FIELD.error) == "OutOfMemoryError" and "memory_kill" not in event.text
        return Failure("cuda-oom", EXCEPTION) if gpu else None
    if kind == EVENT.kernel.xid:
        return (
            Failure("other", CERTAIN) if read_xid(fields.get(FIELD.xid), fields.get(FIELD.detail_text)) != 45 else None
        )
    if kind in (EVENT.python.error, EVENT.python.bare_error):
        return _by_error(event)
    return None


def _by_exit(event: Event) -> Failure | None:
    code = number(event, FIELD.exit_code)
    if code is None:
        signal = number(event, FIELD.signal)
        code = None if signal is None else -signal
    if code in (-9, 137, 247):
        return Failure("sigkill-unknown", VANISHED)
    if code in (-7, 135):
        return Failure("sigbus", CERTAIN)
    if code in (-11, 139):
        return Failure("sigsegv", CERTAIN)
    if code in (-15, 143):
        return Failure("other", VANISHED)
    if code in (-4, -5, -8, 132, 133, 136):
        return Failure("exception", CERTAIN)
    if code in (-6, 134) or (code and event.kind in _WHOLE_JOB):
        return Failure("exception", VANISHED)  # a driver also ends with 1 because an actor of its was killed
    return None


def _by_worker(event: Event) -> Failure | None:
    """How a worker of Ray ended, by the type or detail of its exit (src/ray/protobuf/common.proto, WorkerExitType)."""
    exit_type = event.fields.get(FIELD.exit_type)
    if exit_type == "NODE_OUT_OF_MEMORY":
        return Failure("ray-memory-monitor", CERTAIN)
    if _INTENDED.search(event.text) or event.fields.get(FIELD.exit_code) == 0:
        return None
    if event.kind == EVENT.ray.worker_exit_code:
        return _by_exit(event) or Failure("exception", EXCEPTION)
    if event.kind == EVENT.ray.worker_exit_gcs or _EXIT_CODE.search(event.text):
        return None  # the exit status says more
    return event.kind.failure


def _by_error(event: Event) -> Failure | None:
    name = str(event.fields.get(FIELD.name, "")).rsplit(".", 1)[-1]
    message = str(event.fields.get(FIELD.message_text, ""))
    if RAY_SERVICE.search(event.origin.file):
        return None  # the cluster's own services go on after what they log
    if name in _ECHO_ERRORS or name in ("OutOfMemoryError", "RayOutOfMemoryError") or "Warning" in name:
        return None
    if (
        "WorkNCCL" in message
        or _WORKER_ENDED.match(message)
        or "Exception ignored" in event.text
        or _CUDA_ERROR.search(message[:60])
        or _RAY_CORE.search(event.text)
    ):
        return None
    return Failure("exception", EXCEPTION)
