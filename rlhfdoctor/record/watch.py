"""Waits for the run: follows the trace with the job's output, forwards signals, detects how it ended."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlhfdoctor.errors import DoctorError
from rlhfdoctor.files.read import open_descriptor
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.record.daemon import RECORDER_NAME
from rlhfdoctor.record.output import Output
from rlhfdoctor.record.phrasing import say_event, say_line
from rlhfdoctor.record.recorder_config import RecorderConfig, read_config
from rlhfdoctor.record.start import restarted, start_recorder
from rlhfdoctor.record.state import Held, State
from rlhfdoctor.sources.procfs import parse_stat, read_boot_id, read_file
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import RecordEvent, is_a, make_record, time_of
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_MOST_RESTARTS = 3
_LINE_EVERY_S = 30.0
_NEWS_S = 10.0
_JOB_S = 20.0
"""For which a command that is just being started is waited for, where the user left meanwhile."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class Outcome:
    """How the wait ended."""

    detached: bool
    """The user left; run and recorder go on."""
    exit_code: int | None
    """Exit status of the command, -N for signal N; None if there is no command or it is unknown."""
    state: State
    running: bool = False
    """The command still runs, but it is no longer recorded."""
    recorder_pid: int | None = None
    job_pid: int | None = None
    """Both only where they are surely those of this run, so that they may be named to be killed."""
    survivors: tuple[Held, ...] = ()
    """Processes that the command started and that outlive it, the largest first."""


class Detached(Exception):
    """The user left the view."""


@contextlib.contextmanager
def kept_signals() -> Iterator[list[int]]:
    """Signals that come while a recorder is started: `Watch.wait` obeys them, so that no command goes on unnoticed."""
    kept: list[int] = []
    before = {name: signal.signal(name, lambda number, _: kept.append(number)) for name in _SIGNALS}
    try:
        yield kept
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


class Watch:
    """One wait."""

    def __init__(
        self,
        folder: Path,
        recorder: subprocess.Popen[bytes] | None,
        config: RecorderConfig | None = None,
        *,
        through: bool,
        live: bool,
        bell: bool = False,
    ) -> None:
        """Waits for nothing yet.

        Args:
            recorder: our child to supervise, or None if we only attach.
            config: its options, with which another one goes on in its place.
            through: the job's output is passed on.
            live: Ctrl-C leaves, the job goes on.
            bell: rings the terminal at bad news.
        """
        self.folder, self.recorder, self.live, self.bell = folder, recorder, live, bell
        self._config = config
        self.follower = Follower(str(folder), recorder.pid if recorder is not None else 0)
        self.state = State()
        self.output = Output(folder, through)
        self.title = folder.name.partition("-")[2] or folder.name
        self._restarts = 0
        self._signal = 0
        self.runs_command = False
        self._line_s = time.monotonic() - _LINE_EVERY_S + 5
        self._seen_events = 0
        with contextlib.suppress(OSError, ValueError, TypeError):
            config = config or read_config(str(folder))
            self.title, self.runs_command = config.name, bool(config.command)

    def wait(
        self,
        show: Callable[[], None] | None = None,
        tell: Callable[[Message], None] | None = None,
        kept: Collection[int] = (),
    ) -> Outcome:
        """Until the recording has ended, or the user left.

        Args:
            show: draws the live view; called four times a second.
            tell: takes plain lines instead.
            kept: signals that came before.
        """
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # the job comes to us if the recorder dies
        libc.prctl(_PR_SET_NAME, b"rlhfdoctor", 0, 0, 0)
        before = {name: signal.signal(name, self._on_signal) for name in _SIGNALS}
        try:
            for number in kept:
                self._on_signal(number, None)
            while True:
                has_more = self.step()
                if show is not None:
                    show()
                elif tell is not None:
                    self._tell(tell)
                if self.state.ended is not None:
                    self._wait_alone(tell)
                    self._last_words(tell)
                    return self._outcome(False)
                if not self._recorder_lives() and not self._recover(tell):
                    self._last_words(tell)
                    return self._outcome(False)
                if not has_more:
                    time.sleep(0.25 if show is not None or self.output.through else 0.5)
        except Detached:
            self._learn_of_job()
            return self._outcome(self.recorder is None or self.state.exit_code is None)
        finally:
            for name, handler in before.items():
                signal.signal(name, handler)

    def _learn_of_job(self) -> None:
        """How the run can be ended, also where it is just being started; or how it has ended."""
        self.output.through = False
        until = time.monotonic() + _JOB_S
        with contextlib.suppress(Detached):
            while self.recorder is not None and self.runs_command and time.monotonic() < until:
                self.step()
                if self.state.exit_code is not None or self.job_runs():
                    return
                if self.state.ended is not None or not self._recorder_lives():
                    return
                time.sleep(0.05)

    def _wait_alone(self, tell: Callable[[Message], None] | None) -> None:
        """A recorder that was asked to stop leaves the command to us."""
        pid = self.state.job_pid
        if self.recorder is None or pid is None or self.state.exit_code is not None or not self.job_runs():
            return
        if tell is not None:
            tell(say("the recording was stopped; the command goes on"))
        self._wait_for(pid)

    def _outcome(self, detached: bool) -> Outcome:
        running = not detached and self.state.ended is None and self.state.exit_code is None and self.job_runs()
        over = self.state.exit_code is not None and not detached
        left = tuple(held for held in self.state.by_held() if over and os.path.exists(f"/proc/{held.pid}"))
        recorder, job = self._pids()
        return Outcome(detached, None if detached else self.state.exit_code, self.state, running, recorder, job, left)

    def _pids(self) -> tuple[int | None, int | None]:
        """Of recorder and job, where they are surely those: an old trace, or another user's, names anybody's."""
        if self.recorder is not None:
            return self.recorder.pid, self.state.job_pid
        known, pid = self.follower.header, self.follower.header.get("pid")
        if (known.get("host"), known.get("boot_id")) != (os.uname().nodename, read_boot_id()):
            return None, None
        if not self.folder.exists() or self.folder.stat().st_uid != os.geteuid():
            return None, None
        is_one = isinstance(pid, int) and (read_file(f"/proc/{pid}/comm", 64) or b"").strip() == RECORDER_NAME
        return pid if is_one else None, self.state.job_pid if self.job_runs() else None

    def step(self) -> bool:
        """Takes what is new; whether the command has put out more than that."""
        for item, columns in self.follower.read():
            self.state.take(item, columns)
            if self.bell and not isinstance(item, Sample) and _is_alarming(item):
                _ring()
        if self._signal and self.state.job_pid is not None:
            with contextlib.suppress(OSError):
                os.killpg(self.state.job_pid, self._signal)
            self._signal = 0
        return self.output.pump()

    def _last_words(self, tell: Callable[[Message], None] | None) -> None:
        while self.step():
            pass
        if self.state.exit_code is None and self.state.job_pid is not None and self.recorder is not None:
            self._exited(_reap(self.state.job_pid))  # its first recorder is dead, so it came to us
        if tell is not None:
            self._tell_events(tell)
        if self.recorder is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.recorder.wait(5)

    def _tell(self, tell: Callable[[Message], None]) -> None:
        self._tell_events(tell)
        if time.monotonic() - self._line_s >= _LINE_EVERY_S and self.state.last_s is not None:
            self._line_s = time.monotonic()
            tell(say_line(self.state))

    def _tell_events(self, tell: Callable[[Message], None]) -> None:
        fresh = [event for event in self.state.events if _since_boot(event) > self._seen_events]
        for event in fresh:
            says, _ = say_event(event)
            if says and not is_a(event, RECORD.recorder.end):
                tell(says)
        if fresh:
            self._seen_events = max(map(_since_boot, fresh))

    def _on_signal(self, number: int, _frame: Any) -> None:
        """Ctrl-C leaves the view; without one it goes to the job, as SIGTERM always does."""
        pid = self.state.job_pid
        leaves = number == signal.SIGHUP or (number == signal.SIGINT and self.live)
        if leaves or self.recorder is None or self.state.exit_code is not None or not self.runs_command:
            raise Detached
        if pid is None:
            self._signal = number  # the command is just being started
            return
        try:
            os.killpg(pid, number)
        except OSError:
            raise Detached from None

    def job_runs(self) -> bool:
        """Whether the command is still there, by pid and start time."""
        known = next((row for row in self.state.processes.values() if row.get(R.pid) == self.state.job_pid), None)
        stat = parse_stat(read_file(f"/proc/{self.state.job_pid}/stat", 2048) or b"") if self.state.job_pid else None
        return known is not None and stat is not None and stat.start_ticks == known.get(R.start_ticks)

    def _recorder_lives(self) -> bool:
        """Ours by its process; another one's by the lock that it holds, since a pid may have a new owner."""
        if self.recorder is not None:
            return self.recorder.poll() is None
        try:
            handle = open_descriptor(self.folder / "lock", follow=False)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        finally:
            os.close(handle)
        return False

    def _recover(self, tell: Callable[[Message], None] | None) -> bool:
        """The recorder is dead: start another one on what still runs. False where nothing does."""
        self.step()
        if self.state.ended is not None:
            return True
        pid = self.state.job_pid
        code = _reap(pid) if pid is not None and self.recorder is not None else None
        if code is not None:
            self._exited(code)
            return False
        if (
            pid is None
            or self.recorder is None
            or self._config is None
            or not os.path.exists(f"/proc/{pid}")
            or self._restarts >= _MOST_RESTARTS
        ):
            return False
        self._restarts += 1
        if tell is not None:
            tell(say("the recorder was killed; another one goes on in its place"))
        try:
            self.recorder = start_recorder(self.folder, restarted(self._config, pid))
        except (DoctorError, OSError, ValueError):
            return self._wait_for(pid)
        return True

    def _wait_for(self, pid: int) -> bool:
        """No recorder can be had: wait for the job alone. Always False: the recording is over."""
        while (code := _reap(pid)) is None and os.path.exists(f"/proc/{pid}"):
            self.output.pump()
            time.sleep(0.5)
        self._exited(code)
        return False

    def _exited(self, code: int | None) -> None:
        """An exit status known only to the watcher: it is added to the trace."""
        self.state.exit_code = code
        if code is None:
            return
        if self.recorder is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.recorder.wait(5)
        event = make_record(RECORD.job.exited, {R.pid: self.state.job_pid, R.code: code})
        with contextlib.suppress(DoctorError):
            store = Writer(str(self.folder), self.follower.header)
            store.event(event)
            store.close()


def _is_alarming(event: RecordEvent) -> bool:
    """Whether it is bad news of now; another watcher's old news are read again by --attach."""
    bad = is_a(event, RECORD.note.alarm) or (is_a(event, RECORD.job.exited) and event.get(R.code) != 0)
    return bad and not event.get(R.again) and time.time() - time_of(event) / 1e9 < _NEWS_S


def _since_boot(event: RecordEvent) -> int:
    """When it was stored, by the clock that is never set back."""
    mono_ns = event.get(R.mono_ns)
    return mono_ns if isinstance(mono_ns, int) else 0


def _ring() -> None:
    with contextlib.suppress(OSError):
        if os.isatty(2):
            os.write(2, b"\a")


def _reap(pid: int) -> int | None:
    """The exit code of an orphan that came to us; None while it runs or if it is not ours."""
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return os.waitstatus_to_exitcode(status) if done else None
