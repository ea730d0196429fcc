"""Every kind of event that the recorder stores in a trace, by `scope.kind`; the words are the trace's format."""

from __future__ import annotations

from typing import Final, cast

from rlhfdoctor.vocabulary.names import Pending, Record, RecordField, Scope
from rlhfdoctor.vocabulary.record_fields import RECORD_FIELD as R

COMMON: tuple[RecordField, ...] = (R.kind, R.wall_ns, R.mono_ns, R.again)
"""Fields of every event."""
KERNEL_LOG: Final = "kernel log"
"""What is not available, in a gap: the kernel log, so that kills are seen by their counters alone."""


def stores(meaning: str, *fields: RecordField) -> Record:
    """Declares a kind of event with the fields that it may have besides the common ones."""
    return cast(Record, Pending(Record, meaning, fields=fields))


class process(Scope):
    """Processes that are followed."""

    seen = stores(
        "a process is followed from now on", R.uid, R.pid, R.start_ticks, R.ppid, R.command, R.name, R.role, R.basis
    )
    named = stores("name or role of a process changed", R.uid, R.pid, R.name, R.role, R.basis, R.command)
    gone = stores(
        "a process ended; what it held at its last sample",
        R.uid,
        R.pid,
        R.name,
        R.role,
        R.rss_anon_bytes,
        R.rss_file_bytes,
        R.rss_shmem_bytes,
        R.peak_bytes,
        R.state,
    )
    snapshot = stores(
        "lines of code that hold most of a GPU, at one moment",
        R.uid,
        R.pid,
        R.why,
        R.at_ns,
        R.asked_bytes,
        R.held_bytes,
        R.reserved_bytes,
        R.unknown_bytes,
        R.lines,
        R.sizes,
    )
    exited = stores("an orphan of the command ended with a failure", R.pid, R.code)


class job(Scope):
    """The command that is recorded."""

    started = stores("the command was started", R.pid, R.argv)
    exited = stores("the command ended, or could not be started", R.pid, R.code, R.why)


class cgroup(Scope):
    """Cgroups of the followed processes."""

    seen = stores("a cgroup is read from now on", R.uid, R.path, R.name, R.version, R.own)
    oom = stores("the cgroup's OOM notification", R.why)


class limit(Scope):
    """Limits of what is followed."""

    seen = stores("a limit is there, or changed its size", R.uid, R.name, R.level, R.limit_bytes)


class kernel(Scope):
    """Kills in the kernel log."""

    line = stores("the OOM killer ended a process of the run", R.text, R.pid)
    other = stores("the OOM killer ended a process of another job", R.text, R.pid)


class shm(Scope):
    """Objects in /dev/shm."""

    object = stores(
        "an object is new, grew or changed its owners",
        R.path,
        R.inode,
        R.size_bytes,
        R.modified,
        R.uid,
        R.owners,
        R.deleted,
        R.orphaned,
    )
    gone = stores("an object is gone", R.path, R.inode, R.size_bytes)


class ray(Scope):
    """Ray on this machine."""

    node = stores("a raylet is followed", R.pid, R.session, R.address, R.store_bytes)


class node(Scope):
    """Nodes of a cluster, in the collector's trace."""

    found = stores("a node is recorded", R.node, R.raylet, R.clock_offset_s)
    back = stores("a node that was lost is recorded again", R.node, R.raylet, R.clock_offset_s)
    lost = stores("a node does not answer any more", R.node, R.why, R.messages)


class courier(Scope):
    """Agents of the collector on the nodes."""

    lost = stores("the agent on a node ended; another one was started", R.node, R.why)


class metrics(Scope):
    """The Prometheus page."""

    serving = stores("the page is served", R.port)


class store(Scope):
    """The trace's own files."""

    recovered = stores("the disk takes writes again", R.why, R.kept_count, R.lost_count)
    dropped = stores("the oldest segments were deleted", R.segments_count)


class recorder(Scope):
    """The recorder itself."""

    start = stores(
        "recording begins; what the recorder could do for its own safety",
        R.subreaper,
        R.oom_score_adj,
        R.oom_score_adj_inherited,
        R.oom_score_adj_refused,
        R.memory_locked,
        R.memory_locked_refused,
        R.capabilities,
    )
    end = stores("recording ended", R.why, R.messages, R.lost_count, R.trouble, R.stored_bytes)


class note(Scope):
    """Events whose word has no scope."""

    separator = ""

    mark = stores(
        "a phase or step begins, or a phase ends",
        R.step,
        R.rank,
        R.at_ns,
        R.phase,
        R.edge,
        R.role,
        R.basis,
        R.file,
        R.pid,
        R.uid,
    )
    oom_kill = stores("a kill counter of the kernel rose", R.level, R.count, R.used_bytes, R.max_bytes)
    alarm = stores("a limit will soon be full, or is", R.limit, R.name, R.level, R.text, R.messages, R.left_s)
    gap = stores("something cannot be read", R.what, R.why, R.messages)
