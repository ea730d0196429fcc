"""Room for the command's output on a disk that fills up, since a program ends where its output cannot be written.

Some MiB behind the end of the command's log are held before they are needed (fallocate(2), FALLOC_FL_KEEP_SIZE), and
more with every tick. Where the disk has no more, the log's own middle is given back (FALLOC_FL_PUNCH_HOLE): it stands
in the file as a hole, which readers of ours pass over. File systems without them (NFS before 4.2) hold nothing.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from rlhfdoctor.files.write import append
from rlhfdoctor.i18n.message import say
from rlhfdoctor.trace.record import Emit, said
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

HELD_BYTES = 16 << 20
"""Behind the end of each log: what a program can write between two ticks on a full disk."""
LEAST_FREE_BYTES = 4 * HELD_BYTES
"""With less, nothing is kept of the command's output: it goes on to the caller's own."""
_END_BYTES = 4 << 20
"""Kept of each end of a log."""
_LEAST_BYTES = 64 << 10
_KEEP_SIZE, _PUNCH_HOLE = 1, 2
_FULL = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class _Log:
    path: str
    handle: int
    held_to: int = 0
    """Offset up to which blocks are there."""
    given_to: int = _END_BYTES
    """Where what was given back ends."""


class LogSpace:
    """The logs of one command."""

    def __init__(self, paths: Iterable[str], emit: Emit) -> None:
        """Makes the files.

        Raises:
            OSError: they cannot be made.
        """
        self._emit = emit
        self._logs = [_Log(path, append(path, real=True)) for path in dict.fromkeys(paths) if path]
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.step()

    def step(self) -> None:
        """Holds as much as before behind what was written since; costs a system call where little was."""
        for log in list(self._logs):
            size = os.fstat(log.handle).st_size
            if log.held_to - size <= HELD_BYTES // 2 and not self._hold(log, size):
                self._logs.remove(log)
                os.close(log.handle)

    def end(self, *, is_over: bool) -> None:
        """Notes what was given back; releases what is held once the command writes no more."""
        for log in self._logs:
            if is_over:
                with contextlib.suppress(OSError):
                    os.ftruncate(log.handle, os.fstat(log.handle).st_size)
            if log.given_to > _END_BYTES:
                self._note(log)
            os.close(log.handle)
        self._logs = []

    def _hold(self, log: _Log, size: int) -> bool:
        """False where the file system cannot do it."""
        count = HELD_BYTES
        while count >= _LEAST_BYTES:
            refused = self._allocate(log.handle, _KEEP_SIZE, size, count)
            if not refused:
                log.held_to = size + count
                return True
            if refused not in _FULL:
                return False
            if not self._give_back(log, size):
                count //= 2
        return True

    def _give_back(self, log: _Log, size: int) -> bool:
        """Frees the log's middle, but for what is free already."""
        end = (size - _END_BYTES) // 4096 * 4096
        if end - log.given_to < _LEAST_BYTES:
            return False
        if self._allocate(log.handle, _KEEP_SIZE | _PUNCH_HOLE, log.given_to, end - log.given_to):
            return False
        is_first, log.given_to = log.given_to == _END_BYTES, end
        if is_first:
            self._note(log)
        return True

    def _note(self, log: _Log) -> None:
        why = say(
            "the disk was full: {count:bytes} after the first {kept:bytes} were given back, so that the command could "
            "write on",
            count=log.given_to - _END_BYTES,
            kept=_END_BYTES,
        )
        self._emit(RECORD.note.gap, said({R.what: say("middle of {file}", file=Path(log.path).name), R.why: why}))

    def _allocate(self, handle: int, mode: int, start: int, count: int) -> int:
        """0, or the error's number."""
        if not hasattr(self._libc, "fallocate"):
            return errno.ENOSYS
        done = self._libc.fallocate(handle, mode, ctypes.c_int64(start), ctypes.c_int64(count))
        return ctypes.get_errno() if done else 0
