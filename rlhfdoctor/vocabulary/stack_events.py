"""Kinds of event of the libraries: Ray, PyTorch, NCCL, DeepSpeed, the rollout engines."""

from __future__ import annotations

from rlhfdoctor.vocabulary.fields import FIELD as F
from rlhfdoctor.vocabulary.names import Scope, says
from rlhfdoctor.vocabulary.run import CERTAIN, EXCEPTION, TIMEOUT, VANISHED, Failure


class ray(Scope):
    """Ray's raylet, GCS, workers and exceptions, 0.6 to 2.60."""

    memory_kill = says(
        "the memory monitor killed a worker: use against the node's memory",
        F.ip,
        F.used_bytes,
        F.total_bytes,
        F.used_ratio,
        F.threshold_ratio,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_kill_victim = says(
        "the worker that the memory monitor killed",
        F.task_id,
        F.actor_id,
        F.name,
        F.pid,
        F.victim_bytes,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_kill_numbers = says(
        "use and threshold of a memory kill, in an exception (2.55 and newer)",
        F.used_bytes,
        F.total_bytes,
        F.used_ratio,
        F.threshold_ratio,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_reason = says(
        "why the memory monitor killed (2.60)",
        F.used_bytes,
        F.threshold_bytes,
        F.threshold_ratio,
        F.total_bytes,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_threshold = says("the threshold of the memory monitor", F.threshold_ratio)
    memory_kill_notice = says(
        "a task was killed because the node ran low on memory, without figures",
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_kill_old = says(
        "the memory monitor killed a task (2.0)",
        F.ip,
        F.used_bytes,
        F.total_bytes,
        F.used_ratio,
        F.threshold_ratio,
        F.name,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_error_old = says(
        "a task refused to run because the node was short of memory (0.6 to 1.x)",
        F.threshold_ratio,
        F.ip,
        F.used_bytes,
        F.total_bytes,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_top = says("header of the table of the largest processes")
    memory_row = says(
        "a worker in the table of the largest processes",
        F.pid,
        F.rss_bytes,
        F.name,
        failure=Failure("ray-memory-monitor", CERTAIN),
    )
    memory_summary = says(
        "how many workers were killed for memory in the last period",
        F.oom_count,
        F.other_count,
        F.node_id,
        F.ip,
    )
    memory_advice = says("the advice that follows a memory kill", failure=Failure("ray-memory-monitor", CERTAIN))
    monitor_start = says(
        "the memory monitor starts, with its threshold",
        F.threshold_bytes,
        F.share,
        F.unit_text,
        F.total_bytes,
    )
    killing = says("the raylet kills a worker")
    worker_exit_gcs = says("the GCS records the exit of a worker", F.worker_id, F.node_id, F.exit_type, F.detail_text)
    worker_died = says(
        "a worker died by an unexpected system error", F.pid, failure=Failure("sigkill-unknown", VANISHED)
    )
    worker_vanished = says(
        "a worker's connection ended without a reason",
        F.pid,
        F.ip,
        F.detail_text,
        failure=Failure("sigkill-unknown", VANISHED),
    )
    worker_exit_code = says("a worker ended itself with an exit status", F.exit_code)
    killed_on_request = says("an actor was ended by ray.kill", failure=Failure("other", VANISHED))
    actor_died = says("an exception that says that an actor, worker or node died", F.error)
    actor_lost = says("an actor cannot be reached")
    actor_class = says("class of the actor of an error", F.name)
    intended_exit = says("a worker or actor ended on request")
    stopped = says("a process of Ray received SIGTERM")
    node_dead = says("a node missed its heartbeats", failure=Failure("other", VANISHED))
    node_crashed = says("a node of Ray or its raylet is gone, as other processes say")
    raylet_died = says("the raylet ended unexpectedly", failure=Failure("sigkill-unknown", VANISHED))
    gcs_lost = says("the GCS cannot be reached")
    raylet_agent_failed = says("the raylet ended because its agent failed", failure=Failure("other", EXCEPTION))
    object_store_full = says(
        "an object does not fit into the object store",
        F.object_id,
        F.object_bytes,
        failure=Failure("object-store-full", CERTAIN),
    )
    object_store_error = says(
        "an exception that says that the object store is full", failure=Failure("object-store-full", CERTAIN)
    )
    out_of_disk = says(
        "the object store is full, and so is the disk for what it spills", failure=Failure("object-store-full", CERTAIN)
    )
    object_store_retry = says("the object store waits for space", F.object_id, F.object_bytes)
    object_store_capacity = says("capacity of the object store", F.capacity_bytes)
    object_store_usage = says("use of the object store", F.used_bytes, F.capacity_bytes)
    spilled = says("objects were spilled to disk", F.spilled_text, F.object_count)
    disk_full = says("the disk of the session is nearly full", F.path_text, F.full_text, F.available_text)
    shm_small = says("the object store does not fit into /dev/shm and uses /tmp", F.shm_bytes)
    shm_exceeded = says(
        "the configured object store is larger than /dev/shm",
        F.store_text,
        F.shm_text,
        failure=Failure("exception", EXCEPTION),
    )
    unschedulable = says("resources that no node can give")
    task_error = says("a task raised", F.error, F.name)
    unhandled_task_error = says("a task raised and nothing waited for it", F.name)
    job_failed = says("a submitted job failed", F.job_text, F.message_text, failure=Failure("exception", VANISHED))
    job_succeeded = says("a submitted job succeeded", F.job_text)


class torch(Scope):
    """PyTorch: allocators, data loader, elastic launcher."""

    cuda_oom = says(
        "the caching allocator ran out of GPU memory, with figures",
        F.request_bytes,
        F.rest_text,
        failure=Failure("cuda-oom", CERTAIN),
    )
    cuda_oom_class = says("the class of that exception alone", failure=Failure("cuda-oom", CERTAIN))
    cuda_error = says("a CUDA call failed", F.error_text)
    device_assert = says("a kernel on the GPU failed a check", failure=Failure("exception", EXCEPTION))
    gpu_fault = says("a kernel touched an address that is not mapped", failure=Failure("exception", EXCEPTION))
    pin_failed = says("page-locking host memory failed", failure=Failure("exception", EXCEPTION))
    loader_killed = says("a data loader worker was killed by a signal", F.pid, F.signal_text)
    loader_shm = says("the data loader's workers may be out of shared memory", failure=Failure("sigbus", CERTAIN))
    shm_failed = says("a shared-memory file could not be made", failure=Failure("exception", EXCEPTION))
    write_failed = says("a checkpoint could not be written")
    loader_exited = says("data loader workers exited")
    process_failed = says("the elastic agent saw a rank fail", F.exit_code, F.local_rank, F.pid)
    process_signal = says("exit code and pid of a rank, in the agent's table", F.exit_code, F.pid, F.signal, F.name)
    closing_signal = says("the agent ends the other ranks", F.pid)
    agent_signal = says(
        "the agent itself was ended by a signal",
        F.pid,
        F.signal,
        F.name,
        F.other_text,
        failure=Failure("other", EXCEPTION),
    )
    leaked_objects = says("shared-memory objects or semaphores were left behind", F.object_count, F.what_text)
    child_failed = says("the exception of the elastic launcher")
    saver_died = says("the process that writes checkpoints died", F.exit_code)


class nccl(Scope):
    """NCCL and torch's ProcessGroupNCCL."""

    timeout = says(
        "a collective ran into its timeout",
        F.rank,
        F.seq,
        F.op,
        F.numel_in,
        F.numel_out,
        F.timeout_s,
        F.ran_s,
        failure=Failure("collective-timeout", TIMEOUT),
    )
    work_status = says("last enqueued and completed collective of a rank", F.rank, F.enqueued, F.completed)
    down = says("the process is taken down after a timeout")
    heartbeat = says("the watchdog thread made no progress", F.stuck, failure=Failure("collective-timeout", TIMEOUT))
    remote_error = says("a remote process exited or had a network error", failure=Failure("exception", EXCEPTION))
    closed_by_peer = says("a peer closed its connection", F.ip, F.peer_text)
    ib_error = says("an InfiniBand transfer failed", F.ip, F.status, failure=Failure("exception", EXCEPTION))
    socket_setup = says("no network interface was found")
    unreachable = says("a network has no way to another node", F.try_count, F.most_count)
    hccl_timeout = says(
        "a collective of Ascend NPUs ran into its timeout", failure=Failure("collective-timeout", TIMEOUT)
    )
    init_timeout = says("communicators were not set up in time", failure=Failure("collective-timeout", TIMEOUT))
    cuda_oom = says("NCCL found no GPU memory", F.request_bytes, failure=Failure("cuda-oom", CERTAIN))
    shm_failed = says("NCCL could not extend its file in /dev/shm", failure=Failure("exception", EXCEPTION))
    version = says("version of NCCL", F.version)
    store_timeout = says(
        "the process group could not be set up in time", F.rank, F.wait_s, failure=Failure("exception", VANISHED)
    )
    dist_error = says("the exception of a failed collective")
    port_taken = says("the port of the process group is taken")
    monitored_barrier = says(
        "a barrier that names the missing ranks timed out",
        F.ranks_text,
        F.rank,
        failure=Failure("collective-timeout", TIMEOUT),
    )
    desync_report = says("collectives of different ranks do not match")


class gloo(Scope):
    """gloo, torch's communication on CPUs."""

    timeout = says(
        "a transfer ran into its timeout", F.limit_s, F.what_text, failure=Failure("collective-timeout", TIMEOUT)
    )
    size_mismatch = says("a rank sent another size than was expected", F.sent_bytes, F.expected_bytes)
    closed = says("a peer closed its connection")
    mesh_failed = says("the ranks could not all be connected", failure=Failure("exception", EXCEPTION))


class deepspeed(Scope):
    """DeepSpeed's engine, optimizers, checkpoints and launcher."""

    killing = says("the launcher kills the other ranks", F.pid, failure=Failure("sigkill-unknown", VANISHED))
    exit = says("a rank ended with an exit code", F.exit_code)
    saver_died = says("the process that writes checkpoints died", failure=Failure("sigkill-unknown", VANISHED))
    version = says("version of DeepSpeed", F.version)
    cpu_adam = says("Adam runs on the CPU: optimizer states are offloaded")
    zero_stage = says("ZeRO is being set up", F.stage)
    optimizer_init = says("optimizer states are being initialised")
    checkpoint_load = says("a checkpoint is being read", F.path_text, F.resume_text, F.shard_count, F.load_count)
    checkpoint_save = says("a checkpoint is being written", F.path_text, F.model_text)
    checkpoint_saved = says("a checkpoint was written", F.path_text, F.zero_text)
    pinned = says("DeepSpeed counts its page-locked memory", F.what_text, F.pinned_bytes, F.total_bytes)
    grad_accum_fp32 = says("gradients accumulate in fp32")
    leaf_modules = says("modules that ZeRO-3 gathers as a whole")


class vllm(Scope):
    """vLLM's engine."""

    no_cache_blocks = says("no memory is left for the KV cache", failure=Failure("exception", EXCEPTION))
    blocks = says("number of GPU and CPU cache blocks", F.gpu_count, F.cpu_count)
    cache_too_small = says(
        "the KV cache does not hold one sequence of full length",
        F.length,
        F.needed_text,
        failure=Failure("exception", EXCEPTION),
    )
    gpu_taken = says(
        "less GPU memory is free than the engine may claim",
        F.free_text,
        F.total_text,
        F.wanted_ratio,
        failure=Failure("exception", EXCEPTION),
    )
    sleep_backup = says(
        "a falling-asleep engine keeps a copy of its weights in host memory",
        F.freed_bytes,
        F.backup_bytes,
    )
    sleep = says("sleep mode freed GPU memory", F.freed_bytes, F.left_bytes)
    sleep_grew = says("GPU memory grew while the engine fell asleep", failure=Failure("exception", EXCEPTION))
    asleep = says("the engine is asleep", F.took)
    awake = says("the engine is awake", F.took)
    wake_oom = says("waking up found no GPU memory", failure=Failure("cuda-oom", CERTAIN))
    engine_dead = says("the engine's core process died", failure=Failure("exception", VANISHED))
    worker_died = says("a worker of the engine died", F.pid, F.exit_code)
    version = says("version of vLLM", F.version)
    cache_freed = says("the KV cache was freed or is about to be built", F.when_text, F.allocated_text)
    ascend = says("the engine runs on an Ascend NPU")


class sglang(Scope):
    """SGLang's engine."""

    profiled = says(
        "tokens that the KV cache would hold", F.wanted, F.profiled, failure=Failure("exception", EXCEPTION)
    )
    no_memory = says("not enough GPU memory for the engine", failure=Failure("exception", EXCEPTION))
    crashed = says("a process of the engine crashed", F.exit_code)
    scheduler_dead = says("a scheduler of the engine is gone", failure=Failure("exception", VANISHED))
    watchdog = says("a forward pass of the engine hung", failure=Failure("collective-timeout", TIMEOUT))


class flight(Scope):
    """torch's flight recorder."""

    collective = says(
        "a collective of one rank",
        F.rank,
        F.group_text,
        F.members_text,
        F.seq,
        F.op,
        F.size_text,
        F.state_text,
        F.where_text,
        F.unfinished,
    )
    dump = says("the dump of one rank", F.rank, F.unfinished_count)
