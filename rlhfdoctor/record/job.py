"""The command that is recorded: its start, room for its output, its exit status, those of its orphans."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection

from rlhfdoctor.privacy.secrets import cut_words
from rlhfdoctor.record import daemon
from rlhfdoctor.record.log_space import LogSpace
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.trace.record import Emit
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R


class Job:
    """The command, if there is one."""

    def __init__(self, emit: Emit, helpers: Collection[int]) -> None:
        """`helpers`: children of ours that are not the run's."""
        self._emit, self._helpers = emit, helpers
        self.pid = 0
        """0: there is none, or it ended."""
        self.code: int | None = None
        """Its exit status, once it ended."""
        self._space: LogSpace | None = None

    def hold_space(self, config: RecorderConfig) -> None:
        """Room for its output, from before its start on; once more with every tick."""
        if self._space is not None:
            self._space.step()
        elif config.stdout:
            with contextlib.suppress(OSError):
                self._space = LogSpace((config.stdout, config.stderr), self._emit)

    def end_space(self, *, is_over: bool) -> None:
        """Gives back what is held; `is_over`: the command writes no more."""
        if self._space is not None:
            self._space.end(is_over=is_over)

    def launch(self, config: RecorderConfig) -> bool:
        """Starts the command; whether it could be started."""
        try:
            self.pid = daemon.launch(config)
        except OSError as error:
            self._emit(RECORD.job.exited, {R.pid: 0, R.code: 127, R.why: f"{config.command[0]}: {error.strerror}"})
            return False
        finally:
            for stream in config.streams:
                os.close(stream)
        self._emit(RECORD.job.started, {R.pid: self.pid, R.argv: cut_words(config.command)})
        return True

    def reap(self) -> None:
        """Stores the exit statuses that the kernel gave us: of the command, or of orphans that came to us."""
        for pid, code in daemon.reap():
            if pid == self.pid:
                self._emit(RECORD.job.exited, {R.pid: pid, R.code: code})
                self.pid, self.code = 0, code
            elif code != 0 and pid not in self._helpers:
                self._emit(RECORD.process.exited, {R.pid: pid, R.code: code})
