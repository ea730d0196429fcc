"""The recorder: a process of its own that samples without drift, writes, warns, outlives the job.

It takes its options from the process that starts it (`start`), starts the command if there is one, and imports neither
polars nor rich. Nothing here waits for, signals or stops what it follows.
"""

from __future__ import annotations

import gc
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.faults import attempt, described
from rlhfdoctor.i18n.message import NOTHING, Message, quoted, say
from rlhfdoctor.record import daemon
from rlhfdoctor.record.activity import Activity
from rlhfdoctor.record.alarm import Alarms
from rlhfdoctor.record.encode import limit_rows, process_tables
from rlhfdoctor.record.event_log import EventLog
from rlhfdoctor.record.followed import Followed
from rlhfdoctor.record.hang import Hangs
from rlhfdoctor.record.job import Job
from rlhfdoctor.record.limits import Limits, RayLimit
from rlhfdoctor.record.machine import Machine
from rlhfdoctor.record.notices import Notices, take_urls
from rlhfdoctor.record.pace import Pace
from rlhfdoctor.record.recorder_config import RecorderConfig, take_config
from rlhfdoctor.record.target import Target
from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.sources.procfs import has_host_pids, parse_stat, read_boot_id, read_file
from rlhfdoctor.trace.record import said
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

if TYPE_CHECKING:
    from rlhfdoctor.record.figures import Latest

_MOST_FAULTS = 100
_LINGER_S = 1.0
_MOST_FRESH = 64
_OOM_ECHO_S = 2.0


def _header(config: RecorderConfig) -> dict[str, Any]:
    """What every segment says of the recorder and its machine."""
    return {
        "run": config.name,
        "node": config.node,
        "host": os.uname().nodename,
        "boot_id": read_boot_id(),
        "pid": os.getpid(),
        "ticks_per_s": os.sysconf("SC_CLK_TCK"),
        "page_bytes": os.sysconf("SC_PAGE_SIZE"),
        "host_pids": has_host_pids(),
    }


class Recorder:
    """One run of the loop."""

    def __init__(self, folder: str, config: RecorderConfig) -> None:
        """Opens the store first: from then on, everything is recorded.

        Raises:
            SourceError: the folder cannot be written, or another recorder writes there.
        """
        self.folder, self.config = folder, config
        self.limits, self.hangs = Limits(), Hangs()
        self.notifier = Notifier()
        self.target = Target(
            ignore=[os.getpid(), *config.ignore],
            adopt=os.getpid() if config.command else None,
            pids=config.pids,
            cgroup=config.cgroup,
            named_ticks=_started_ticks(),
        )
        run = f"{config.name} ({os.uname().nodename})"
        self.notices = Notices(config.alert_command, take_urls(), run, helpers=self.target.ignore)
        self.alarms = Alarms(config.alert_at_s, self.notices)
        self.log = EventLog(folder, _header(config))
        self.emit, self.store = self.log.emit, self.log.store
        self.latest: Latest | None = None
        """With a port only."""
        self.machine = Machine(self.target, self.emit)
        self.activity = Activity(folder, self.target, self.emit)
        self.job = Job(self.emit, self.notices.helpers)
        self.followed = Followed(self.target, self.machine, self.activity, self.job, self.log)
        self.fresh_levels: deque[tuple[str, int]] = deque(maxlen=_MOST_FRESH)
        """Cgroups whose events are still to be waited for, one a tick: the kernel takes its time. And their limits."""
        self.pace = Pace(config.interval_s)
        self.began_s = time.monotonic()
        self.tick = 0
        self.late_us = 0
        self.empty_since_s: float | None = None
        self.rss_bytes = 0
        self.oom_s = -1e9
        """When the last OOM notification was stored."""
        self.stopped = False
        self.failures = 0
        self.faults: set[str] = set()

    def run(self) -> None:
        """Until what is followed has ended, or SIGTERM."""
        self._start()
        self.pace.start()
        deadline = time.monotonic()
        while not self.stopped:
            began = time.monotonic()
            self.late_us = max(0, int((began - deadline) * 1e6))
            over = attempt(self.step)
            if isinstance(over, Exception):
                over = self._failed(over)
            if self.tick % 10 == 0:
                self.pace.measure_cost()
            if over:
                self._end(over)
                return
            deadline += self.pace.interval_s
            now = time.monotonic()
            if deadline < now:  # a tick was missed: go on from here, never catch up in a burst
                deadline = now + self.pace.interval_s * 0.1
            while time.monotonic() < deadline and not self.stopped:
                for name in self.notifier.wait(deadline):
                    self._woken(name)
                    if name not in ("kmsg", "signal") or (self.config.command and not self.job.pid):
                        deadline = min(deadline, self.pace.earliest_s(began))
        self._end(say("asked to stop"))

    def _end(self, why: Message) -> None:
        self.job.end_space(is_over=not self.target.processes)
        self.emit(RECORD.recorder.end, {**said({R.why: why}), **self.log.state()})
        if not self.stopped and (self.job.code or self.log.kill_count):
            after_s = time.monotonic() - self.began_s
            self.notices.died(self.job.code, self.log.kill_count, after_s, self.limits.step)

    def _failed(self, error: Exception) -> Message:
        """A failed tick is reported once per kind of fault; too many in a row end the recording."""
        self.failures += 1
        why = described(error)
        if why not in self.faults:
            self.faults.add(why)
            traceback.print_exception(error)  # into recorder.log
            self.emit(RECORD.note.gap, said({R.what: say("a tick of the recorder"), R.why: quoted(why)}))
        return (
            say("too many faults of the recorder itself ({why})", why=why) if self.failures > _MOST_FAULTS else NOTHING
        )

    def _start(self) -> None:
        facts = daemon.prepare()
        self.job.hold_space(self.config)
        if self.config.command:
            if self.job.launch(self.config):
                self.target.add_root(self.job.pid)
            else:
                self.stopped = True
        facts |= daemon.protect()
        self.emit(RECORD.recorder.start, facts)
        for gap in self.activity.start(self.notifier):
            self.emit(RECORD.note.gap, said({R.what: gap.what, R.why: gap.why}))
        for pid in self.config.pids:
            self.activity.files.follow_output(pid)
            self.notifier.watch_end(pid)
        self.machine.start(self.config.metrics)
        self.notifier.watch_pressure("/proc/pressure/memory")
        if self.config.port is not None:
            self._serve(self.config.port)
        gc.collect()
        gc.freeze()
        gc.disable()  # what we allocate each tick has no cycles; one collection a minute below

    def step(self) -> Message:
        """One tick; why the recording is over, or nothing."""
        began = time.monotonic()
        self.tick += 1
        if self.tick % 60 == 0:
            gc.collect()
        self.job.hold_space(self.config)
        gone = self.followed.sweep(self.tick, self.pace.interval_s, every=self.pace.is_raised)
        tables = self.machine.read()
        gone += self.followed.sweep_rest(self.machine.host)
        for process in gone:
            self.followed.drop(process)
        self.followed.look_closer()
        for mark in self.activity.read(self.tick):
            if isinstance(mark.get(R.step), int):
                self.limits.begin_step(began, mark[R.step])
        tables |= process_tables(self.target.processes.values(), self.activity.probes)
        fresh = self.limits.update(
            began, self.machine.host, self.machine.levels.all, self.machine.shm, self.machine.gpus, self._ray_limit()
        )
        for limit in fresh:
            self.emit(
                RECORD.limit.seen,
                {R.uid: limit.uid, R.name: limit.name, R.level: limit.level, R.limit_bytes: limit.limit_bytes},
            )
            if limit.name == "cgroup":
                self.fresh_levels.append((limit.level, limit.limit_bytes))
        self.log.forget(RECORD.limit.seen, self.limits.take_gone())
        self.log.forget(RECORD.cgroup.seen, self.machine.levels.take_gone())
        if self.fresh_levels and self.machine.levels.hierarchy is not None:
            self.notifier.watch_level(self.machine.levels.hierarchy, *self.fresh_levels.popleft())
        self.hangs.check(began, self.limits.all.values(), self._faults)
        for limit, says in self.alarms.check(self.limits.all.values()):
            self.emit(
                RECORD.note.alarm,
                {
                    R.limit: limit.uid,
                    R.name: limit.name,
                    R.level: limit.level,
                    R.left_s: limit.left_s,
                    **said({R.text: says}),
                },
            )
        tables["limit"] = limit_rows(list(self.limits.all.values()))
        tables["recorder"] = self._own_row(began)
        self.store.sample(time.time_ns(), time.monotonic_ns(), tables)
        if self.latest is not None:
            self.latest.take_sample(tables, self.alarms.active)
        self.failures = 0
        over = self._ended()
        self.pace.update(began, self.limits.binding(), self.empty_since_s is not None)
        return over

    def _ray_limit(self) -> RayLimit | None:
        """Only while Ray runs."""
        return self.activity.ray_limit if any(p.name == "raylet" for p in self.target.processes.values()) else None

    def _faults(self) -> dict[int, int]:
        """Major faults of each followed process, as last read."""
        return {process.uid: process.slow[1] for process in self.target.processes.values()}

    def _own_row(self, began: float) -> tuple[list[int], list[list[int]]]:
        sweep_us = int((time.monotonic() - began) * 1e6)
        cpu_us = int(time.process_time() * 1e6)
        if self.tick % 10 == 1:
            self.rss_bytes = daemon.rss_bytes()
        row = (
            cpu_us,
            self.rss_bytes,
            sweep_us,
            int(self.pace.interval_s * 1e6),
            self.late_us,
            self.store.kept_count,
            self.store.stored_bytes,
        )
        return [0], [[value] for value in row]

    def _woken(self, name: str) -> None:
        """A notification: look more often for a while, and take a kernel line at once."""
        if name == "kmsg":
            self.activity.read_kernel()
        elif name == "signal":  # one of very many orphans may have ended: that alone is no reason to look
            self.job.reap()
        elif name != "pressure" or self.pace.is_raised:
            self.pace.wake()
            if name == "oom" and time.monotonic() - self.oom_s > _OOM_ECHO_S:  # one for each allocation that fails
                self.oom_s = time.monotonic()
                self.emit(RECORD.cgroup.oom, {R.why: "the cgroup's OOM notification"})

    def _ended(self) -> Message:
        """Why the recording is over: some ticks after the last followed process, so that late facts are in."""
        self.job.reap()
        alive = self.job.pid or (self.target.processes and not self.config.command)
        now = time.monotonic()
        if alive:
            self.empty_since_s = None
            return NOTHING
        self.empty_since_s = self.empty_since_s or now
        if now - self.empty_since_s < _LINGER_S:
            return NOTHING  # late facts: counters, the kernel's lines, the last output
        self.activity.finish()
        return say("the command ended") if self.config.command else say("no followed process is left")

    def _serve(self, port: int) -> None:
        try:
            from rlhfdoctor.record.figures import Latest
            from rlhfdoctor.record.metrics import serve

            latest = Latest()
            taken = serve(port, latest.read, self.config.name, self.config.node or os.uname().nodename)
            self.latest, self.log.listen = latest, latest.take_event
            self.emit(RECORD.metrics.serving, {R.port: taken})
        except ImportError as error:
            why = say("{error}: pip install 'rlhfdoctor[metrics]'", error=str(error))
            self.emit(RECORD.note.gap, said({R.what: say("Prometheus port {port}", port=port), R.why: why}))
        except OSError as error:
            why = quoted(error.strerror or error)
            self.emit(RECORD.note.gap, said({R.what: say("Prometheus port {port}", port=port), R.why: why}))


def _started_ticks() -> int:
    """When this process started, in the kernel's ticks since the boot: the pids that it was given are older."""
    stat = parse_stat(read_file("/proc/self/stat", 1024) or b"")
    return sys.maxsize if stat is None else stat.start_ticks


def main(arguments: Sequence[str]) -> int:
    """Records into the folder that is given, with the options behind the descriptor that follows.

    Errors are written to DIR/recorder.log by the caller's redirection.
    """
    import signal

    folder, config = arguments[1], take_config(int(arguments[2]))
    try:
        recorder = Recorder(folder, config)
    except SourceError as error:
        print(f"doctor: {error}", file=sys.stderr, flush=True)
        return 2

    def stop(_signal: int, _frame: object) -> None:
        recorder.stopped = True

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    recorder.notifier.watch_signals()
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, signal.SIG_IGN)
    try:
        recorder.run()
    finally:
        recorder.store.close()
    return 0
