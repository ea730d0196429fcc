"""The command that is recorded: its start, its exit status, those of its orphans."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import replace

from rlhfdoctor.privacy.secrets import cut_words
from rlhfdoctor.record import daemon
from rlhfdoctor.record.recorder_config import RecorderConfig, write_config
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

    def launch(self, folder: str, config: RecorderConfig) -> bool:
        """Starts the command; whether it could be started."""
        try:
            self.pid = daemon.launch(config)
        except OSError as error:
            self._emit(RECORD.job.exited, {R.pid: 0, R.code: 127, R.why: f"{config.command[0]}: {error.strerror}"})
            return False
        shown = cut_words(config.command)
        self._emit(RECORD.job.started, {R.pid: self.pid, R.argv: shown})
        with contextlib.suppress(OSError):  # it is running: its full command line need not stay on disk
            write_config(folder, replace(config, command=tuple(shown)))
        return True

    def reap(self) -> None:
        """Stores the exit statuses that the kernel gave us: of the command, or of orphans that came to us."""
        for pid, code in daemon.reap():
            if pid == self.pid:
                self._emit(RECORD.job.exited, {R.pid: pid, R.code: code})
                self.pid = 0
            elif code != 0 and pid not in self._helpers:
                self._emit(RECORD.process.exited, {R.pid: pid, R.code: code})
