"""Every field of the recorder's events, with its unit; the word is the key in the trace, so none is ever renamed."""

from __future__ import annotations

from typing import cast

from rlhfdoctor.vocabulary.names import Pending, RecordField, RecordUnit, Scope


def has(unit: RecordUnit, meaning: str) -> RecordField:
    """Declares a field."""
    return cast(RecordField, Pending(RecordField, meaning, unit=unit))


class RECORD_FIELD(Scope):
    """Fields of the recorder's events."""

    separator = ""

    # of every event
    kind = has("text", "what happened: the word of a Record")
    wall_ns = has("ns", "wall clock when it was stored, Unix time")
    mono_ns = has("ns", "monotonic clock when it was stored")
    again = has("flag", "repeated at the head of a segment, so that the segment can be read alone")

    # whose or what it is
    uid = has(
        "number", "number of a process, cgroup or limit within the trace; of a shared object, its owner's user id"
    )
    pid = has("number", "process id, as the recorder sees it")
    ppid = has("number", "process id of the parent")
    start_ticks = has("number", "start time of a process, in clock ticks since boot")
    command = has("text", "command line, without secrets")
    name = has("text", "name of a process, cgroup or limit")
    role = has("text", "role of a process in the run")
    rank = has("number", "global rank, as the trainer gives it")
    basis = has("text", "what a role, phase or step rests on")
    level = has("text", "path of the cgroup or index of the GPU; of a kill counter also `node`")
    path = has("text", "path of a cgroup or of an object in /dev/shm")
    node = has("text", "name of a node of the cluster")
    file = has("text", "name of the log file that a mark was found in")

    # how a process ended
    code = has("number", "exit status, or minus the signal")
    state = has("text", "state letter of the kernel at the last sample")
    argv = has("list", "the command's arguments, without secrets")
    rss_anon_bytes = has("bytes", "RssAnon at the last sample")
    rss_file_bytes = has("bytes", "RssFile at the last sample")
    rss_shmem_bytes = has("bytes", "RssShmem at the last sample")
    peak_bytes = has("bytes", "largest RSS so far")

    # limits
    limit = has("number", "uid of the limit that an alarm is about")
    limit_bytes = has("bytes", "the limit")
    max_bytes = has("bytes", "memory.max of the cgroup")
    used_bytes = has("bytes", "memory in use that cannot be reclaimed")
    left_s = has("s", "forecast time until the limit is full")
    count = has("count", "by how much a kill counter rose")
    version = has("number", "version of the cgroup hierarchy, 1 or 2")
    own = has("flag", "whether followed processes are in the cgroup itself, not only below it")

    # the training
    phase = has("text", "phase that begins or ends")
    step = has("number", "step of the training")
    edge = has("text", "start or end of a phase; a start where it is missing")
    at_ns = has("ns", "wall clock of the trainer when it set the mark, Unix time")

    # a snapshot of torch's allocator
    asked_bytes = has("bytes", "what torch was asked for when it ran out of memory")
    held_bytes = has("bytes", "what tensors of a process hold of its GPUs")
    reserved_bytes = has("bytes", "what its allocator reserves of them")
    unknown_bytes = has("bytes", "held by tensors that are older than the history of allocations")
    lines = has("list", "lines of code, each the innermost one outside of torch that allocated; the largest first")
    sizes = has("list", "bytes that tensors of each line hold")

    # shared memory
    inode = has("number", "inode of an object in /dev/shm")
    size_bytes = has("bytes", "allocated size of an object")
    modified = has("number", "when an object was changed last, Unix seconds")
    owners = has("list", "process ids that map an object")
    deleted = has("flag", "whether an object has no name any more")
    orphaned = has("flag", "whether no process maps an object")

    # Ray
    session = has("text", "folder of the Ray session")
    address = has("text", "address of the Ray node")
    store_bytes = has("bytes", "size of Ray's object store")
    raylet = has("number", "process id of a node's raylet")
    clock_offset_s = has("s", "wall clock of a node less that of the collector")

    # the recorder
    what = has("text", "what is not available")
    why = has("text", "reason")
    text = has("text", "line of the kernel log, or an alarm as a sentence")
    messages = has("messages", "what of `what`, `why` and `text` is a sentence, for other languages than English")
    port = has("number", "TCP port of the Prometheus page")
    subreaper = has("flag", "whether orphans of the command come to the recorder")
    oom_score_adj = has("number", "the recorder's oom_score_adj")
    oom_score_adj_inherited = has("number", "the oom_score_adj that it was started with")
    oom_score_adj_refused = has("text", "why it could not be lowered")
    memory_locked = has("flag", "whether the recorder's memory is locked")
    capabilities = has("list", "what the recorder kept of root's capabilities; missing where it gave up none")
    memory_locked_refused = has("text", "why it is not")
    lost_count = has("count", "frames that were dropped")
    kept_count = has("count", "frames that were kept in memory while the disk took nothing")
    stored_bytes = has("bytes", "bytes written to disk")
    trouble = has("text", "why the disk takes nothing, or empty")
    segments_count = has("count", "segments that were deleted")
