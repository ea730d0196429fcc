"""Every fact that a rule or patch may ask for, with its unit; all are of the host on which the run failed first."""

from __future__ import annotations

from typing import cast

from rlhfdoctor.vocabulary.names import Fact, Pending, Scope, Unit


def fact(unit: Unit, meaning: str) -> Fact:
    """Declares a fact."""
    return cast(Fact, Pending(Fact, meaning, unit=unit))


class death(Scope):
    """The first failure: who ended what, when and in which phase."""

    any = fact("flag", "whether anything died")
    killer = fact("text", "who ended the run, one of KILLERS")
    host_memory = fact("flag", "killed for host memory")
    certain = fact("flag", "the killer names itself; false where a process only vanished")
    phase = fact("text", "phase of the failure")
    step = fact("number", "step of the failure")
    later_steps_count = fact("count", "steps that the log shows behind the failure, fewer than those that disprove it")
    before_first_step = fact("flag", "no step had been finished; unknown where no step and no loading is shown")
    after_training = fact("flag", "the training was over, the program was not")
    last_mark = fact("text", "kind of the last event that marks a phase")
    first_optimizer_step = fact("flag", "a note places the failure in the first optimizer step")


class kernel(Scope):
    """The kernel's OOM report."""

    victim_of_run = fact("flag", "the victim is a process of the run, by its name")
    victim_shmem_ratio = fact("share", "shmem of the victim's anon and shmem")
    victim_shmem_bytes = fact("bytes", "the victim's RssShmem")
    constraint = fact("text", "what the kernel names as the scope of the kill")
    limit_level = fact("text", "cgroup whose limit was full")
    outer_limit = fact("flag", "the limit that was full is of a cgroup around the job's own")
    table_bytes = fact("bytes", "sum of RSS over the task table")
    largest_ratio = fact("share", "RSS of the largest process in the task table")
    large_count = fact("count", "processes of the run that hold more than 2 % each")
    driver_to_worker_ratio = fact("factor", "driver against the largest Ray worker")
    peer_count = fact("count", "processes with the largest one's name")
    top_to_second_ratio = fact("factor", "the largest process against the next of its name")
    role_count = fact("count", "roles in the task table")
    compiler_count = fact("count", "compiler processes in the task table")


class ray(Scope):
    """Ray's memory monitor."""

    total_bytes = fact("bytes", "memory that Ray takes the node to have")
    threshold_ratio = fact("share", "threshold of the memory monitor")
    role_count = fact("count", "roles among the largest processes")
    top_bytes = fact("bytes", "memory of the ten largest processes")
    worker_count = fact("count", "Ray workers among the ten largest processes")
    top_ratio = fact("share", "ten largest processes of the memory in use")
    largest_ratio = fact("share", "largest process of the memory in use")
    infra_ratio = fact("share", "Ray's own services of the table")


class host(Scope):
    """Memory of the node and limit of the job."""

    limit_bytes = fact("bytes", "memory limit of the job")
    limit_ratio = fact("share", "limit of the job, of the node's memory")
    unlimited = fact("flag", "the cgroup has no memory limit")
    used_to_limit = fact("share", "memory in use, of the limit")
    total_bytes = fact("bytes", "memory of the node")
    available_ratio = fact("share", "MemAvailable of the node's memory")
    slope_bytes_per_step = fact("bytes", "growth of host memory a step")
    rising_steps_ratio = fact("share", "steps in which host memory rose")
    growth_ratio = fact("share", "growth over the run")


class consumer(Scope):
    """Who held most of the memory that was measured in processes, and what the budget explains of it."""

    role = fact("text", "role of the processes that held most")
    role_ratio = fact("share", "what they held, of all that was measured in processes")
    component = fact("text", "what they most likely held it for, one of COMPONENTS; absent where several explain it")
    offloaded = fact(
        "flag", "they most likely held an optimizer offloaded from GPUs: states, gradients, their rounding"
    )
    copy = fact("text", "the copy made for a load or a save that they most likely held besides, one of COMPONENTS")
    rest_ratio = fact("share", "part of it that no component of a possible configuration explains")
    victim_is_bystander = fact("flag", "the process that was killed held a small part of what the largest one did")


class trace(Scope):
    """What the recorder of `doctor watch` measured."""

    kernel_silent = fact("flag", "the kernel log was read to the end and shows no kill of the run")
    full_ratio = fact("share", "peak of the limit or of the node")
    thrashed_s = fact("s", "how long use stood at the limit while programs were read back from disk")
    growth = fact("text", "level, slope, staircase or sawtooth")
    is_growing = fact("flag", "memory in use was rising at the end")
    late_growth_ratio = fact("share", "rise from the second quarter of the time to its end, of the limit")
    grown_shmem_ratio = fact("share", "shmem of the growth")
    peak_phase = fact("text", "phase in which the peak fell")
    last_phase_rise_ratio = fact("share", "rise within the last phase, of the limit")
    culprit_role = fact("text", "role of the process that held most")
    culprit_ratio = fact("share", "what that process held, of all processes")
    grower_role = fact("text", "role that grew most")
    grower_ratio = fact("share", "growth of that role, of all growth")
    role_count = fact("count", "roles that hold a tenth or more")
    shmem_ratio = fact("share", "shmem of the largest process")
    locked_ratio = fact("share", "mlocked memory of the largest process")
    shm_without_files_bytes = fact("bytes", "shmem that is no file in /dev/shm")


class share(Scope):
    """What processes of one role hold together."""

    reward_ratio = fact("share", "reward workers, of the memory in use")
    reward_bytes = fact("bytes", "memory of the reward workers")
    reward_count = fact("count", "number of reward workers")
    loader_ratio = fact("share", "data loader workers, at least, of the memory in use")
    loader_most_ratio = fact("share", "data loader workers, at most, of the memory in use")
    driver_apart = fact("flag", "the driver holds no model")
    late_grower_role = fact("text", "role that grew most since the second step")
    late_grower_ratio = fact("share", "growth of that role, of all growth")


class shm(Scope):
    """/dev/shm."""

    used_bytes = fact("bytes", "files in /dev/shm")
    size_bytes = fact("bytes", "size of /dev/shm")
    full_ratio = fact("share", "how full /dev/shm was at most")
    orphaned_bytes = fact("bytes", "files in /dev/shm that belong to no living process")
    orphaned_ratio = fact("share", "orphaned files, of the limit")
    orphaned_early = fact("flag", "the orphaned files were there when the run began")
    orphaned_growth_ratio = fact("share", "orphaned files that came during the run")
    climb_ratio = fact("share", "rise of /dev/shm over the run, of the limit")


class offload(Scope):
    """Offload of optimizer states and weights to host memory."""

    running = fact("flag", "optimizer states are in host memory")
    need_bytes = fact("bytes", "what the offloaded states need on a node")
    need_ratio = fact("share", "that need, of the node's memory")
    pinned = fact("flag", "offload buffers are page-locked at this version")
    pinned_logged = fact("flag", "DeepSpeed counts its page-locked memory")


class zero(Scope):
    """ZeRO."""

    stage = fact("number", "ZeRO stage")


class grad_accum(Scope):
    """Accumulation of gradients."""

    fp32 = fact("flag", "gradients accumulate in fp32")


class swap(Scope):
    """Swap space of the rollout engine."""

    space_bytes = fact("bytes", "vLLM's swap space of one GPU")


class store(Scope):
    """Ray's object store."""

    capacity_bytes = fact("bytes", "capacity of Ray's object store")
    full_first = fact("flag", "Ray's OutOfDiskError came of a full store that spilled nothing, not of a full disk")


class cuda(Scope):
    """The failing allocation on a GPU."""

    figures_cut = fact("flag", "the message ends before its figures do: cut off when it was copied")
    site = fact("text", "what the allocation was for")
    impossible = fact("flag", "more was asked for than any GPU has")
    request_bytes = fact("bytes", "size of the failing allocation")
    total_bytes = fact("bytes", "memory of the GPU")
    request_ratio = fact("share", "the request, of the GPU")
    allocated_ratio = fact("share", "allocated by PyTorch, of the GPU")
    foreign_ratio = fact("share", "other processes, of the GPU")
    outside_ratio = fact("share", "memory that is not PyTorch's, of the GPU")
    unallocated_covers = fact("flag", "reserved but unallocated memory would have held the request")
    unallocated_ratio = fact("share", "reserved but unallocated, of the GPU")
    unallocated_bytes = fact("bytes", "reserved but unallocated")
    fragmented = fact("flag", "free and unallocated memory together would have held the request")
    others_unknown = fact("flag", "the driver lists other processes without their use")
    others_bytes = fact("bytes", "memory of other processes on the GPU")
    logits_tokens = fact("count", "tokens whose logits the request is")


class gpu(Scope):
    """GPU memory over the run, and the GPU itself."""

    slope_bytes_per_step = fact("bytes", "growth of GPU memory a step")
    rising_steps_ratio = fact("share", "steps in which GPU memory rose")
    lengths_ratio = fact("factor", "responses of the last steps against those of the first")
    states_ratio = fact("share", "weights, gradients and optimizer states, of the GPU")
    hardware_xid = fact("number", "Xid that means broken hardware")


class engine(Scope):
    """The rollout engine."""

    backup_bytes = fact("bytes", "copies of weights that sleeping engines keep in host memory")
    backup_ratio = fact("share", "those copies, of the node's memory")
    colocated = fact("flag", "engine and trainer run on the same GPUs")
    sleep_freed_bytes = fact("bytes", "GPU memory that falling asleep freed")
    cache_build_count = fact("count", "how often the KV cache was rebuilt")
    gpu_block_count = fact("count", "GPU cache blocks")
    cpu_block_count = fact("count", "cache blocks in host memory")
    profiled_tokens = fact("number", "tokens that the KV cache would hold")


class comm(Scope):
    """Collectives, and what ranks did while others waited."""

    timeout_s = fact("s", "timeout that was reached")
    op = fact("text", "operation that timed out")
    op_differs = fact("flag", "ranks run different operations at one sequence number")
    numel_differs = fact("flag", "ranks send different sizes at one sequence number")
    seq_spread = fact("count", "difference of the ranks' sequence numbers")
    none_completed = fact("flag", "the first collective of all never ended on any rank")
    enqueued_spread = fact("count", "collectives that some ranks enqueued more than others")
    barrier_sized = fact("flag", "a barrier or a small message: the others were busy elsewhere")
    parameter_gather = fact("flag", "the collective gathers sharded parameters")
    rollout_s = fact("s", "how long a generation had been running")
    rollout_to_timeout = fact("share", "that generation, of the timeout")
    busy_to_timeout = fact("share", "a progress bar's time, of the timeout")
    in_generate = fact("flag", "a process was inside generate()")
    ranks_in_different_phases = fact("flag", "one rank generates while another computes log-probabilities")
    in_reward = fact("flag", "a rank was inside a reward function")
    behind_reward = fact("flag", "a rank had scored its responses and waited in the collective that follows")
    reward_to_timeout = fact("share", "time of scoring, of the timeout")
    reward_calls_failed_count = fact("count", "calls of a judge or sandbox that failed before it")
    reward_phase = fact("flag", "the last thing that began is scoring")
    in_checkpoint = fact("flag", "a rank was writing or reading a checkpoint")
    checkpoint_phase = fact("flag", "the last thing that began is a checkpoint")
    in_experts = fact("flag", "a rank was in the code of a mixture of experts")
    death_first = fact("flag", "a process had ended before the others waited")
    lost_peer = fact("flag", "a process lost its connection to another")
    diverged_rank = fact("number", "rank whose flight recorder shows another collective")
    absent_rank = fact("number", "rank that did not come")
    all_wait = fact("flag", "all other ranks wait in the next collective")


class nccl(Scope):
    """NCCL's own messages."""

    ib_text = fact("text", "NCCL's message on an InfiniBand error")


class config(Scope):
    """What the configuration says."""

    sequence_length = fact("number", "longest sequence, prompt and response, in tokens")
    recompute = fact("flag", "activations are recomputed")
    recompute_set = fact("flag", "the configuration sets gradient checkpointing itself")
    leaf_modules = fact("flag", "ZeRO-3 gathers the experts as a whole")
    experts = fact("flag", "the model is a mixture of experts")


class data(Scope):
    """Data sets."""

    preparing = fact("flag", "the last sign of life is the preparation of a data set")


class sched(Scope):
    """Ray's scheduler."""

    refused_count = fact("count", "how often the scheduler refused")


class limit(Scope):
    """Limits on processes, threads and open files."""

    kind = fact("text", "which limit was reached")
    first = fact("flag", "it was reached before anything else failed")
    open_files_count = fact("count", "files that a process of the run may open")


class python(Scope):
    """Errors of the program."""

    own_error = fact("flag", "the program raised an error of its own")
    error_says = fact("text", "that error")


class regression(Scope):
    """Releases that are known to hang or to use more memory."""

    host_growth = fact("flag", "a release is installed whose host memory grows")
    hang = fact("flag", "a release is installed that hangs")
    compile = fact("flag", "a release is installed that compiles at the engine's start")
    says = fact("text", "what is known of that release")
    cure = fact("text", "what to install or set instead")


class cure(Scope):
    """What a setting must become, by the figures of this case."""

    container_memory = fact("text", "memory limit that holds the peak")
    train_micro_batch = fact("number", "micro batch that fits, in training")
    logprob_micro_batch = fact("number", "micro batch that fits, in scoring")
    gpu_memory_utilization = fact("number", "share of the GPU that the engine may claim")
    collective_timeout = fact("number", "timeout that the slowest work needs, in seconds")
    object_store_memory = fact("number", "object store that holds the object, in bytes")


class frees(Scope):
    """What a change frees."""

    optimizer_bytes = fact("bytes", "host memory that optimizer states leave")
    swap_space_bytes = fact("bytes", "host memory of one GPU's swap space beyond 4 GiB")
    gradients_bytes = fact("bytes", "host memory of one node that bf16 gradients save")
