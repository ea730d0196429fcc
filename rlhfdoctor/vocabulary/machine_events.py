"""Kinds of event that the machine, its schedulers or the interpreter writes."""

from __future__ import annotations

from rlhfdoctor.vocabulary.fields import FIELD as F
from rlhfdoctor.vocabulary.names import Scope, says
from rlhfdoctor.vocabulary.run import CERTAIN, EXCEPTION, VANISHED, Failure


class kernel(Scope):
    """The kernel log: mm/oom_kill.c, mm/memcontrol.c, NVIDIA's and PCIe drivers, systemd-oomd."""

    oom_invoked = says(
        "first line of an OOM report: who asked for memory",
        F.comm,
        F.gfp_text,
        failure=Failure("kernel-oom-node", CERTAIN),
    )
    memcg_trace = says("the call trace of a kill at a cgroup's limit", failure=Failure("kernel-oom-cgroup", CERTAIN))
    memcg_usage = says("use and limit of the cgroup that was full", F.usage_bytes, F.limit_bytes, F.fail_count)
    memcg_task = says(
        "which cgroup's limit killed which cgroup's task (before Linux 4.19)",
        F.task_memcg_text,
        F.oom_memcg_text,
        failure=Failure("kernel-oom-cgroup", CERTAIN),
    )
    task_header = says("header of the task table", F.columns_text, failure=Failure("kernel-oom-node", CERTAIN))
    task = says("a row of the task table", F.pid, F.uid, F.tgid, F.total_vm_pages, F.rss_pages, F.rest_text, F.comm)
    oom_kill = says("the OOM killer's decision: constraint, cgroup, task", F.constraint, F.rest_text)
    killed = says(
        "the process that was killed, with its memory",
        F.scope,
        F.pid,
        F.comm,
        F.total_vm_bytes,
        F.anon_bytes,
        F.file_bytes,
        F.shmem_bytes,
    )
    kill_choice = says("the process that was chosen (before Linux 5.0)", F.scope, F.pid, F.comm, F.score)
    reaped = says(
        "the OOM reaper took the memory of the process that was killed",
        F.pid,
        F.comm,
        failure=Failure("kernel-oom-node", CERTAIN),
    )
    oom_group = says(
        "all tasks of a cgroup are killed together (memory.oom.group)",
        F.memcg_text,
        failure=Failure("kernel-oom-cgroup", CERTAIN),
    )
    ram = says("pages of RAM of the node", F.ram_pages)
    no_killable = says("the OOM killer found no process that it may kill", failure=Failure("kernel-oom-node", CERTAIN))
    memcg_gone = says(
        "systemd reports that the OOM killer ended a process of a unit", failure=Failure("kernel-oom-node", CERTAIN)
    )
    userspace_oom = says(
        "a user-space OOM killer (systemd-oomd) ended a cgroup", F.cgroup_text, F.pid, failure=Failure("other", CERTAIN)
    )
    pids_limit = says("a fork was rejected by a cgroup's pids limit", F.cgroup_text)
    segfault = says(
        "a process read or wrote an invalid address", F.comm, F.pid, F.address_text, failure=Failure("sigsegv", CERTAIN)
    )
    trap = says(
        "a process ran into a trap of the processor",
        F.comm,
        F.pid,
        F.error_text,
        failure=Failure("exception", CERTAIN),
    )
    xid = says("the NVIDIA driver reports a GPU error", F.pci_text, F.xid, F.detail_text)
    gpu_lost = says("a GPU has fallen off the bus", failure=Failure("other", CERTAIN))
    pcie = says("a PCIe error", F.severity, F.class_text)


class net(Scope):
    """Connections of any program."""

    refused = says("a connection was refused or reset")


class slurm(Scope):
    """slurmd, slurmstepd and srun."""

    oom = says(
        "slurm counted OOM kills in a step", F.kill_count, F.step_text, failure=Failure("kernel-oom-cgroup", CERTAIN)
    )
    limit_killed = says(
        "slurm killed a step at its memory limit",
        F.step_text,
        F.used_bytes,
        F.limit_bytes,
        failure=Failure("kernel-oom-cgroup", CERTAIN),
    )
    task_oom = says("a task ended by out of memory", F.ip, failure=Failure("kernel-oom-cgroup", CERTAIN))
    cancelled = says(
        "a job or step was cancelled", F.step_text, F.ip, F.at_text, F.reason_text, failure=Failure("other", CERTAIN)
    )
    preempted = says("a job was preempted", failure=Failure("other", CERTAIN))
    node_failed = says("a node of the job failed", F.ip, failure=Failure("other", CERTAIN))


class batch(Scope):
    """LSF, PBS, Grid Engine, HTCondor."""

    memory_limit = says(
        "the scheduler killed a job at its memory limit",
        F.used_text,
        F.limit_text,
        failure=Failure("kernel-oom-cgroup", CERTAIN),
    )
    stopped = says(
        "the scheduler or a person ended a job: time limit, preemption, owner",
        F.used_text,
        F.limit_text,
        failure=Failure("other", CERTAIN),
    )


class shell(Scope):
    """The shell's job control."""

    killed = says(
        "a process was killed by SIGKILL", F.pid, F.command_text, failure=Failure("sigkill-unknown", VANISHED)
    )
    terminated = says("a process was ended by SIGTERM", F.pid, F.command_text, failure=Failure("other", EXCEPTION))
    bus_error = says("a process died by SIGBUS", F.pid, F.command_text, failure=Failure("sigbus", CERTAIN))
    segfault = says("a process died by SIGSEGV", F.pid, F.command_text, failure=Failure("sigsegv", CERTAIN))
    aborted = says("a process ended itself by abort()", F.pid, F.command_text, failure=Failure("exception", VANISHED))
    crashed = says(
        "a process died by SIGFPE, SIGILL, SIGSYS or SIGTRAP",
        F.pid,
        F.command_text,
        failure=Failure("exception", CERTAIN),
    )


class k8s(Scope):
    """Kubernetes: events and container states."""

    oom_killed = says("a container was OOMKilled", failure=Failure("kernel-oom-cgroup", CERTAIN))
    system_oom = says(
        "the kubelet saw an OOM kill of the node's",
        F.comm,
        F.pid,
        failure=Failure("kernel-oom-node", CERTAIN),
    )
    exit = says("exit code of a container", F.exit_code)
    evicted = says(
        "a pod was evicted",
        F.resource_text,
        F.name,
        F.used_bytes,
        F.request_text,
        F.condition_text,
        failure=Failure("other", CERTAIN),
    )
    probe_killed = says("the kubelet restarted a container whose probe failed", failure=Failure("other", VANISHED))
    unschedulable = says("no node has what a pod asks for")
    node_lost = says("the node of a pod does not answer", failure=Failure("other", VANISHED))
    disk_evicted = says("a pod was evicted for the disk that it used", failure=Failure("other", CERTAIN))
    shm_evicted = says(
        "a pod was evicted for what lay in its /dev/shm", F.limit_bytes, failure=Failure("other", CERTAIN)
    )
    pod_limit_guess = says("a program guesses that the pod's limit was exceeded")


class docker(Scope):
    """docker inspect, ps or events."""

    oom_killed = says("the State.OOMKilled flag", F.flag)
    oom_event = says("a container had an OOM kill", failure=Failure("kernel-oom-cgroup", CERTAIN))
    exit = says("the State.ExitCode of a container", F.exit_code)


class job(Scope):
    """The job's own launcher."""

    exit_0 = says("a command ended well")
    exit_137 = says("a command ended by SIGKILL", failure=Failure("sigkill-unknown", VANISHED))
    unrecognised = says("a line at a log's end that reads like a failure and that no pattern knows")
    exit_139 = says("a command ended by SIGSEGV", failure=Failure("sigsegv", CERTAIN))
    exit_135 = says("a command ended by SIGBUS", failure=Failure("sigbus", CERTAIN))
    exit_134 = says("a command ended by SIGABRT", failure=Failure("exception", VANISHED))
    exit_143 = says("a command ended by SIGTERM", failure=Failure("other", VANISHED))
    exit_crashed = says("a command ended by SIGFPE, SIGILL, SIGSYS or SIGTRAP", failure=Failure("exception", CERTAIN))
    failed = says(
        "a command ended with an exit status that is not 0", F.exit_code, failure=Failure("exception", VANISHED)
    )
    interrupted = says("the run was interrupted by Ctrl-C", failure=Failure("other", EXCEPTION))


class numbers(Scope):
    """Values of the training that are no numbers any more, as any trainer says it."""

    stopped = says(
        "the training ended itself: NaN, infinity or a loss scale at its least", failure=Failure("exception", EXCEPTION)
    )
    diverged = says(
        "the training ended itself: the KL divergence is too large", failure=Failure("exception", EXCEPTION)
    )
    nan = says("a loss, norm or reward is NaN or infinite")


class host(Scope):
    """What tools print of the machine."""

    meminfo = says("a line of /proc/meminfo", F.name, F.size_bytes)
    free = says(
        "the Mem line of free",
        F.total_text,
        F.used_text,
        F.free_text,
        F.shared_text,
        F.cache_text,
        F.available_text,
    )
    df = says("a line of df", F.device_text, F.size_text, F.used_text, F.free_text, F.full_ratio, F.mount_text)
    note_limit = says("a note on the job's memory limit", F.limit_bytes)
    note_total = says("a note on the node's memory", F.total_bytes)
    note_used = says("a note on the memory in use", F.used_bytes)
    cgroup_limit = says("memory limit of a cgroup, path and value on one line", F.limit_bytes)
    cgroup_file = says("a cgroup file whose value follows", F.file_text)
    no_space = says("no space left on a device", failure=Failure("exception", EXCEPTION))
    process_limit = says(
        "a limit on processes, threads or open files was reached", failure=Failure("exception", EXCEPTION)
    )
    gpu_unreachable = says("a GPU does not answer", failure=Failure("other", CERTAIN))
    used = says("host memory in use, in a step's metrics", F.used_bytes)


class python(Scope):
    """Python's interpreter."""

    traceback = says("a traceback begins")
    frame = says("a frame of a traceback or of a stack dump", F.path_text, F.line, F.function_text)
    error = says("an exception with a message", F.name, F.message_text)
    bare_error = says("an exception without a message", F.name)
    swallowed = says("the interpreter or a library says that an exception ends nothing")
    fatal = says("a fatal error of the interpreter", F.error_text)
    signal = says("a failure handler reports a signal", F.name, F.core_text)
    pool_broken = says("a worker of a process pool ended", failure=Failure("sigkill-unknown", VANISHED))
    notebook_died = says(
        "a notebook's kernel ended, for memory where it says so", failure=Failure("sigkill-unknown", VANISHED)
    )
    abort = says("C++ ended the process", F.error_text, F.boost_text, failure=Failure("exception", VANISHED))
    logits_code = says("code that works on the logits of the whole vocabulary")
    memory_error = says("the operating system refused memory", F.request_bytes, failure=Failure("exception", EXCEPTION))
