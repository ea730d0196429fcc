"""What a single event shows of a death: the killer, with a rank of certainty.

The ranks: a certain killer, a timeout, an exception, a process that merely vanished. Each of them
makes the ones below it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from rlhfdoctor.evidence.case import number
from rlhfdoctor.logs.kernel import read_xid
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.index import KINDS
from rlhfdoctor.vocabulary.names import Kind
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
_WITH_STATUS = (
    EVENT.deepspeed.exit,
    EVENT.torch.process_failed,
    EVENT.torch.process_signal,
    EVENT.docker.exit,
    EVENT.trace.job_exit,
    EVENT.k8s.exit,
    EVENT.sglang.crashed,
    EVENT.vllm.worker_died,
    EVENT.torch.saver_died,
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
    shown = _BY_KIND.get(event.kind)
    return event.kind.failure if shown is None else shown(event)


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


def _by_nccl(event: Event) -> Failure | None:
    """Severity W is logged at orderly exits, too; a wait that ended is what it says."""
    waited = FIELD.wait_s in event.fields
    if _WARNING.search(event.text) and not waited:
        return None
    if event.kind == EVENT.nccl.store_timeout and waited:
        return Failure("collective-timeout", TIMEOUT)
    if event.kind == EVENT.nccl.unreachable:
        tries, most = number(event, FIELD.try_count), number(event, FIELD.most_count)
        gave_up = "NCCL WARN" in event.text if tries is None or most is None else tries >= most
        return Failure("exception", EXCEPTION) if gave_up else None
    return event.kind.failure


def _by_kill(event: Event) -> Failure | None:
    memcg = str(event.fields.get(FIELD.scope) or "").startswith("Memory cgroup")
    return Failure("kernel-oom-cgroup" if memcg else "kernel-oom-node", CERTAIN)


def _by_oom_kill(event: Event) -> Failure | None:
    memcg = str(event.fields.get(FIELD.constraint)).startswith("CONSTRAINT_MEMC") or "oom_memcg=" in event.text
    return Failure("kernel-oom-cgroup" if memcg else "kernel-oom-node", CERTAIN)


def _by_loader(event: Event) -> Failure | None:
    return {
        "Bus error": Failure("sigbus", CERTAIN),
        "Segmentation fault": Failure("sigsegv", CERTAIN),
        "Killed": Failure("sigkill-unknown", VANISHED),
    }.get(str(event.fields.get(FIELD.signal_text)))


def _by_fatal(event: Event) -> Failure | None:
    error = str(event.fields.get(FIELD.error_text))
    if error == "Aborted":
        return Failure("exception", VANISHED)  # abort() follows from what was raised or timed out before
    return Failure("sigbus" if error == "Bus error" else "sigsegv" if error.startswith("Seg") else "exception", CERTAIN)


def _by_signal(event: Event) -> Failure | None:
    name = f"{event.fields.get(FIELD.name) or event.fields.get(FIELD.core_text) or ''}"
    if "BUS" in name or "Bus" in name:
        return Failure("sigbus", CERTAIN)
    return Failure("sigsegv", CERTAIN) if "SEGV" in name or "Seg" in name else None


def _by_cuda(event: Event) -> Failure | None:
    memory = event.fields.get(FIELD.error_text) == "out of memory"
    return Failure("cuda-oom", CERTAIN) if memory else Failure("exception", EXCEPTION)


def _by_task(event: Event) -> Failure | None:
    gpu = event.fields.get(FIELD.error) == "OutOfMemoryError" and "memory_kill" not in event.text
    return Failure("cuda-oom", EXCEPTION) if gpu else None


def _by_xid(event: Event) -> Failure | None:
    xid = read_xid(event.fields.get(FIELD.xid), event.fields.get(FIELD.detail_text))
    return Failure("other", CERTAIN) if xid != 45 else None


def _by_limit(event: Event) -> Failure | None:
    return None if TRIED_AGAIN.search(event.text) else event.kind.failure


def _by_cancel(event: Event) -> Failure | None:
    """Slurm also cancels what is left of a step of which a task failed."""
    return event.kind.failure if event.fields.get(FIELD.reason_text) else Failure("other", VANISHED)


def _by_container(event: Event) -> Failure | None:
    return Failure("kernel-oom-cgroup", CERTAIN) if event.fields.get(FIELD.flag) == "true" else None


def _by_summary(event: Event) -> Failure | None:
    return Failure("ray-memory-monitor", CERTAIN) if event.fields.get(FIELD.oom_count, 1) else None


def _by_report(_event: Event) -> Failure | None:
    """A cgroup's usage is printed in the report of a kill only (mm/memcontrol.c, mem_cgroup_print_oom_info)."""
    return Failure("kernel-oom-cgroup", CERTAIN)


_BY_KIND: Mapping[Kind, Callable[[Event], Failure | None]] = {
    **{kind: _by_nccl for kind in KINDS.values() if kind.scope == "nccl"},
    **dict.fromkeys(_OF_WORKERS, _by_worker),
    **dict.fromkeys(_WITH_STATUS, _by_exit),
    **dict.fromkeys((EVENT.kernel.killed, EVENT.kernel.kill_choice), _by_kill),
    **dict.fromkeys((EVENT.python.error, EVENT.python.bare_error), _by_error),
    EVENT.docker.oom_killed: _by_container,
    EVENT.host.process_limit: _by_limit,
    EVENT.kernel.memcg_usage: _by_report,
    EVENT.kernel.oom_kill: _by_oom_kill,
    EVENT.kernel.xid: _by_xid,
    EVENT.python.fatal: _by_fatal,
    EVENT.python.signal: _by_signal,
    EVENT.ray.memory_summary: _by_summary,
    EVENT.ray.task_error: _by_task,
    EVENT.slurm.cancelled: _by_cancel,
    EVENT.torch.cuda_error: _by_cuda,
    EVENT.torch.loader_killed: _by_loader,
}
"""Kinds of which it depends on the event; the others always mean their failure, or none."""
