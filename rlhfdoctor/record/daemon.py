"""The recorder as a process: locked in memory, killed last, parent of the command, reaper of its orphans.

`oom_score_adj` is inherited: inside a Ray worker it is +1000 and we would die first. Lowering needs
CAP_SYS_RESOURCE, and Python's buffered write hides the refusal, hence os.write.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import resource
import shutil
import signal
from collections.abc import Iterator
from typing import Any

from rlhfdoctor.files.write import append
from rlhfdoctor.record import privileges
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.sources.procfs import parse_status, read_file
from rlhfdoctor.trace.record import StoredEvent
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_MCL_CURRENT, _MCL_FUTURE, _MCL_ONFAULT = 1, 2, 4
RECORDER_NAME = b"rlhfdoctor-rec"
"""Of the process, in /proc/PID/comm."""


def prepare() -> StoredEvent:
    """Before the command starts: name, subreaper. What is inherited by a child is not touched yet."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NAME, RECORDER_NAME, 0, 0, 0)
    subreaper = libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    return {R.subreaper: subreaper}


def protect() -> StoredEvent:
    """After the command has started: die late, keep memory resident, run before the job's threads, may less.

    What was refused is returned under its name.
    """
    before = (read_file("/proc/self/oom_score_adj", 16) or b"0").decode().strip()
    scores = ["-999", "0"] if int(before) > 0 else ["-999"]
    after, refused = before, ""
    for score in scores:
        try:
            handle = os.open("/proc/self/oom_score_adj", os.O_WRONLY)
            try:
                os.write(handle, score.encode())
                after = score
            finally:
                os.close(handle)
            break
        except OSError as error:
            refused = error.strerror or str(error)
    libc = ctypes.CDLL(None, use_errno=True)
    locked = libc.mlockall(_MCL_CURRENT | _MCL_FUTURE | _MCL_ONFAULT) == 0
    facts: StoredEvent = {
        R.oom_score_adj: int(after),
        R.oom_score_adj_inherited: int(before),
        R.memory_locked: locked,
    }
    if refused:
        facts[R.oom_score_adj_refused] = refused
    if not locked:
        facts[R.memory_locked_refused] = os.strerror(ctypes.get_errno())
    with contextlib.suppress(OSError):
        os.nice(-5)
    with contextlib.suppress(OSError, ValueError):  # three descriptors a process; the job keeps its own limit
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    if (kept := privileges.drop()) is not None:
        facts[R.capabilities] = kept
    return facts


def launch(config: RecorderConfig) -> int:
    """Starts the command in a session of its own, with the signals and the environment that we were given.

    Raises:
        OSError: no such program, or it may not be run.
    """
    logs = [_open_log(path) for path in dict.fromkeys((config.stdout, config.stderr)) if path]
    actions: list[tuple[Any, ...]] = []
    if logs:
        actions += [(os.POSIX_SPAWN_DUP2, logs[0], 1), (os.POSIX_SPAWN_DUP2, logs[-1], 2)]
    for number, stream in enumerate(config.streams, 1):
        actions += [(os.POSIX_SPAWN_DUP2, stream, number), (os.POSIX_SPAWN_CLOSE, stream)]
    defaults = [signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGPIPE]

    def spawn(words: list[str]) -> int:
        return os.posix_spawnp(
            words[0], words, os.environ, file_actions=actions, setsid=True, setsigdef=defaults, setsigmask=[]
        )

    try:
        return spawn(list(config.command))
    except OSError as error:
        script = shutil.which(config.command[0])
        if error.errno != errno.ENOEXEC or script is None:
            raise
        return spawn(["/bin/sh", script, *config.command[1:]])  # no `#!` in it: as every shell does
    finally:
        for log in logs:
            os.close(log)


def _open_log(path: str) -> int:
    """A descriptor of a file for the command's output, which no link leads elsewhere."""
    if path == os.devnull:
        return os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    handle = append(path, real=True)
    os.set_blocking(handle, True)
    return handle


def reap() -> Iterator[tuple[int, int]]:
    """Exit codes of children that ended: the command and adopted orphans; -N for signal N."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def rss_bytes() -> int:
    """Our own RSS."""
    status = parse_status(read_file("/proc/self/status", 4096) or b"")
    if status is None:
        return 0
    return (status.rss_anon_bytes or 0) + (status.rss_file_bytes or 0) + (status.rss_shmem_bytes or 0)
