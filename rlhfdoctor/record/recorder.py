"""The recorder: a process of its own that samples without drift, writes, warns, and outlives the job.

    python -m rlhfdoctor.record.recorder DIR

It reads its options from DIR/orders.json, starts the command if there is one, and imports neither
polars nor rich. Nothing here waits for, signals or stops what it follows.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.privacy.secrets import cut_line, cut_words
from rlhfdoctor.record import daemon
from rlhfdoctor.record.activity import Activity
from rlhfdoctor.record.alarm import Alarms
from rlhfdoctor.record.encode import limit_rows, process_tables
from rlhfdoctor.record.limits import Limit, Limits, RayLimit, find_ray_limit
from rlhfdoctor.record.machine import Machine
from rlhfdoctor.record.recorder_config import RecorderConfig, read_config, write_config
from rlhfdoctor.record.target import FORKED, Process, Target
from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.sources.procfs import has_host_pids, read_boot_id
from rlhfdoctor.trace.store import Writer

_FAST_S = 0.1
_BRISK_S = 0.25
_FAST_LEFT_S = 15.0
_BRISK_LEFT_S = 90.0
_HELD_S = 3.0
"""How long to keep fast sampling after a wake-up."""
_DUE_EVERY_S = 10.0
"""Interval for reading CPU time and title of a process, and everything of an idle one."""
_TITLE_TICKS = 2
"""A Ray worker's title changes with every method that it runs."""
_YOUNG_TICKS = 5
"""A launcher moves its child into a cgroup soon after the start, or never."""
_MOST_COST = 0.05
"""Share of one core; above it, the rate is lowered."""
_MAPS_GROWTH_BYTES = 64 << 20
_MOST_FAULTS = 100
_LINGER_S = 1.0
_ENDING_S = 0.2


class Recorder:
    """One run of the loop."""

    def __init__(self, folder: str, config: RecorderConfig) -> None:
        """Opens the store first: from then on, everything is recorded.

        Raises:
            SourceError: the folder cannot be written, or another recorder writes there.
        """
        self.folder, self.config = folder, config
        self.limits = Limits()
        self.notifier = Notifier()
        self.target = Target(
            ignore=[os.getpid(), *config.ignore],
            adopt=os.getpid() if config.command else None,
            pids=config.pids,
            cgroup=config.cgroup,
        )
        self.alarms = Alarms(config.alert_at_s, config.alert_command, helpers=self.target.ignore)
        header = {
            "run": config.name,
            "node": config.node,
            "host": os.uname().nodename,
            "boot_id": read_boot_id(),
            "pid": os.getpid(),
            "ticks_per_s": os.sysconf("SC_CLK_TCK"),
            "page_bytes": os.sysconf("SC_PAGE_SIZE"),
            "host_pids": has_host_pids(),
        }
        self.seen: dict[tuple[str, int], dict[str, Any]] = {}
        self.store = Writer(folder, header, registry=lambda: [{**event, "again": True} for event in self.seen.values()])
        self.machine = Machine(self.target, self.emit)
        self.activity = Activity(folder, self.target, self.emit)
        self.interval_s = config.interval_s
        self.fast_until = 0.0
        self.tick = 0
        self.cost_ratio = 0.0
        self.late_us = 0
        self.job_pid, self.job_fd = 0, -1
        self.empty_since_s: float | None = None
        self.rss_bytes = 0
        self.ray_limit: RayLimit | None = None
        self.due: list[Process] = []
        self.young: list[Process] = []
        self.stopped = False
        self.failures = 0
        self.faults: set[str] = set()

    def emit(self, kind: str, **fields: Any) -> dict[str, Any]:
        """Stores an event with the time of now."""
        event = {"kind": kind, "wall_ns": time.time_ns(), "mono_ns": time.monotonic_ns(), **fields}
        if kind.endswith(".seen") or kind == "process.named":
            table = kind.partition(".")[0]
            self.seen[table, int(fields["uid"])] = {
                **self.seen.get((table, int(fields["uid"])), {}),
                **event,
                "kind": f"{table}.seen",
            }
        self.store.event(event)
        return event

    def run(self) -> None:
        """Until what is followed has ended, or SIGTERM."""
        self._start()
        deadline = time.monotonic()
        cpu_before, wall_before = time.process_time(), time.monotonic()
        while not self.stopped:
            began = time.monotonic()
            self.late_us = max(0, int((began - deadline) * 1e6))
            try:
                over = self.step()
            except Exception as error:  # a fault of ours must not end the record of theirs
                over = self._failed(error)
            if self.tick % 10 == 0:
                cpu, wall = time.process_time(), time.monotonic()
                self.cost_ratio = (cpu - cpu_before) / max(wall - wall_before, 1e-3)
                cpu_before, wall_before = cpu, wall
            if over is not None:
                self.emit("recorder.end", why=over, **self.store_state())
                return
            deadline += self.interval_s
            now = time.monotonic()
            if deadline < now:  # a tick was missed: go on from here, never catch up in a burst
                deadline = now + self.interval_s * 0.1
            while time.monotonic() < deadline and not self.stopped:
                for name in self.notifier.wait(deadline):
                    self._woken(name)
                    if name != "kmsg":
                        deadline = min(deadline, max(began + _FAST_S, time.monotonic() + 0.02))
        self.emit("recorder.end", why="asked to stop", **self.store_state())

    def _failed(self, error: Exception) -> str | None:
        """A failed tick is reported once per kind of fault; too many in a row end the recording."""
        self.failures += 1
        why = f"{type(error).__name__}: {error}"[:300]
        if why not in self.faults:
            self.faults.add(why)
            traceback.print_exc()  # into recorder.log
            self.emit("gap", what="a tick of the recorder", why=why)
        return f"too many faults of the recorder itself ({why})" if self.failures > _MOST_FAULTS else None

    def _start(self) -> None:
        facts = daemon.prepare()
        if self.config.command:
            self._launch()
        facts |= daemon.protect()
        self.emit("recorder.start", **facts)
        for gap in self.activity.start(self.notifier):
            self.emit("gap", what=gap.what, why=gap.why)
        self.machine.start(self.config.metrics)
        self.notifier.watch_pressure("/proc/pressure/memory")
        if self.config.port is not None:
            self._serve(self.config.port)
        gc.collect()
        gc.freeze()
        gc.disable()  # what we allocate each tick has no cycles; one collection a minute below

    def _launch(self) -> None:
        try:
            self.job_pid = daemon.launch(self.config)
        except OSError as error:
            self.emit("job.exited", pid=0, code=127, why=f"{self.config.command[0]}: {error.strerror}")
            self.stopped = True
            return
        self.target.add_root(self.job_pid)
        shown = cut_words(self.config.command)
        self.emit("job.started", pid=self.job_pid, argv=shown)
        with contextlib.suppress(OSError):  # it is running: its full command line need not stay on disk
            write_config(self.folder, replace(self.config, command=tuple(shown)))

    def step(self) -> str | None:
        """One tick; why the recording is over, or None."""
        began = time.monotonic()
        self.tick += 1
        if self.tick % 60 == 0:
            gc.collect()
        for process in self.target.discover():
            self._process_started(process)
        self.due.clear()
        gone = self.target.sweep(self._is_due)
        tables = self.machine.read()
        for process in gone:
            self._process_ended(process)
        self._look_closer()
        list(self.activity.read(self.tick))  # stores the marks that it finds
        tables |= process_tables(self.target.processes.values(), self.activity.probes)
        fresh = self.limits.update(
            began, self.machine.host, self.machine.levels, self.machine.shm, self.machine.gpus, self._ray_limit()
        )
        for limit in fresh:
            self.emit("limit.seen", uid=limit.uid, name=limit.name, level=limit.level, limit_bytes=limit.limit_bytes)
            if limit.name == "cgroup" and self.machine.hierarchy is not None:
                self.notifier.watch_level(self.machine.hierarchy, limit.level, limit.limit_bytes)
        for limit, text in self.alarms.check(self.limits.all.values()):
            self.emit("alarm", limit=limit.uid, name=limit.name, level=limit.level, text=text, left_s=limit.left_s)
        tables["limit"] = limit_rows(list(self.limits.all.values()))
        tables["recorder"] = self._own_row(began)
        self.store.sample(time.time_ns(), time.monotonic_ns(), tables)
        self.failures = 0
        over = self._ended()
        self.interval_s = self._pace(began)
        return over

    def _is_due(self, process: Process) -> bool:
        """Every process in full once in some seconds, each in a tick of its own."""
        if self.tick < process.due:
            return False
        every = max(1, round(_DUE_EVERY_S / self.interval_s))
        process.due = self.tick + every - (process.due == 0) * (process.uid % every)
        self.due.append(process)
        return True

    def _process_started(self, process: Process) -> None:
        self.emit(
            "process.seen",
            uid=process.uid,
            pid=process.pid,
            start_ticks=process.start_ticks,
            ppid=process.ppid,
            command=cut_line(process.command),
            name=process.name,
            role=process.role,
            basis=process.basis,
        )
        process.first_tick = self.tick
        self.young.append(process)
        self.machine.add_process(process)
        self.activity.add_process(process)

    def _process_ended(self, process: Process) -> None:
        """The last sample of a process that is gone, stored before the next tick may lose it."""
        s = process.status
        fields: dict[str, Any] = {"uid": process.uid, "pid": process.pid, "name": process.name, "role": process.role}
        if s is not None:
            fields |= {
                "rss_anon_bytes": s.rss_anon_bytes,
                "rss_file_bytes": s.rss_file_bytes,
                "rss_shmem_bytes": s.rss_shmem_bytes,
                "peak_bytes": s.peak_bytes,
                "state": s.state,
            }
        self.target.drop(process)
        self.seen.pop(("process", process.uid), None)
        for pid, code in daemon.reap():
            self._exited(pid, code)
        self.emit("process.gone", **fields)

    def _exited(self, pid: int, code: int) -> None:
        """An exit status that the kernel gave us: of the command, or of an orphan that came to us."""
        if pid == self.job_pid:
            self.emit("job.exited", pid=pid, code=code)
            self.job_pid = 0
        elif code != 0 and pid not in self.alarms.helpers:
            self.emit("process.exited", pid=pid, code=code)

    def _look_closer(self) -> None:
        """`maps` of one process whose RssShmem grew most since it was last looked at; names that changed."""
        grown, most = None, 0
        for process in self.target.processes.values():
            if process.command.startswith("ray::") and (self.tick + process.uid) % _TITLE_TICKS == 0:
                self._rename(process)
            if process.row or process.status is None:
                continue  # it did not move
            growth = (process.status.rss_shmem_bytes or 0) - process.mapped_at_bytes
            if growth > most and growth > (_MAPS_GROWTH_BYTES if process.mappings else _MAPS_GROWTH_BYTES // 4):
                grown, most = process, growth
        for process in (*self.young, *self.due):
            self.machine.place(process)
        if self.tick % 3 == 0:
            self.young = [
                p for p in self.young if self.tick - p.first_tick < _YOUNG_TICKS and p.pid in self.target.processes
            ]
        for process in self.young:
            if process.basis == FORKED and process.pid in self.target.processes:
                self._rename(process)  # torch names a loader's process a moment after the fork
        for process in self.due:
            self._rename(process)
            if self.tick % 2:
                io = process.reader.io()
                if io is not None:
                    process.slow = (*process.slow[:2], *io)
        if grown is not None and grown.status is not None:
            grown.mappings = grown.reader.maps() or grown.mappings
            grown.mapped_at_bytes = grown.status.rss_shmem_bytes or 0

    def _rename(self, process: Process, ray_name: str | None = None) -> None:
        command = process.reader.cmdline()
        if command and command != process.command:
            process.command = command
            self.machine.title(process)
        if self.target.name(process, ray_name or self.activity.names.get(process.pid)):
            self.emit(
                "process.named",
                uid=process.uid,
                pid=process.pid,
                name=process.name,
                role=process.role,
                basis=process.basis,
                command=cut_line(process.command),
            )

    def _ray_limit(self) -> RayLimit | None:
        """What Ray's memory monitor logged at its start; looked for until found."""
        if self.ray_limit is None and self.tick % 5 == 0 and self.activity.sessions:
            self.ray_limit = next((found for logs in self.activity.sessions if (found := find_ray_limit(logs))), None)
        return self.ray_limit if any(p.name == "raylet" for p in self.target.processes.values()) else None

    def _own_row(self, began: float) -> tuple[list[int], list[list[int]]]:
        sweep_us = int((time.monotonic() - began) * 1e6)
        cpu_us = int(time.process_time() * 1e6)
        if self.tick % 10 == 1:
            self.rss_bytes = daemon.rss_bytes()
        row = (
            cpu_us,
            self.rss_bytes,
            sweep_us,
            int(self.interval_s * 1e6),
            self.late_us,
            self.store.kept_count,
            self.store.stored_bytes,
        )
        return [0], [[value] for value in row]

    def _pace(self, now: float) -> float:
        """The next interval: shorter as a limit comes near, longer when we cost too much."""
        base = self.config.interval_s
        if self.empty_since_s is not None:
            return min(base, _ENDING_S)
        limit = self.limits.binding()
        left = limit.left_s if limit is not None else None
        wanted_s = base
        if now < self.fast_until or (left is not None and left < _FAST_LEFT_S):
            wanted_s = min(base, _FAST_S)
        elif (left is not None and left < _BRISK_LEFT_S) or (
            limit is not None and limit.name != "node" and limit.full_ratio > 0.9
        ):
            wanted_s = min(base, _BRISK_S)
        if wanted_s < base and self.cost_ratio > _MOST_COST:
            wanted_s = min(base, wanted_s * self.cost_ratio / _MOST_COST)
        return wanted_s

    def _woken(self, name: str) -> None:
        """A notification: look more often for a while, and take a kernel line at once."""
        if name == "kmsg":
            self.activity.read_kernel()
        elif name == "job":
            self.notifier.remove(self.job_fd)  # it ended; the next tick reaps it
        elif name != "pressure" or self.interval_s < self.config.interval_s:
            self.fast_until = time.monotonic() + _HELD_S
            self.interval_s = min(self.config.interval_s, _FAST_S)
            if name == "oom":
                self.emit("cgroup.oom", why="the cgroup's OOM notification")

    def _ended(self) -> str | None:
        """Why the recording is over: some ticks after the last followed process, so that late facts are in."""
        for pid, code in daemon.reap():
            self._exited(pid, code)
        alive = self.job_pid or (self.target.processes and not self.config.command)
        now = time.monotonic()
        if alive:
            self.empty_since_s = None
            return None
        self.empty_since_s = self.empty_since_s or now
        if now - self.empty_since_s < _LINGER_S:
            return None  # late facts: counters, the kernel's lines, the last output
        self.activity.finish()
        return "the command ended" if self.config.command else "no followed process is left"

    def _serve(self, port: int) -> None:
        try:
            from rlhfdoctor.record.metrics import serve

            self.emit("metrics.serving", port=serve(port, self._figures))
        except ImportError as error:
            self.emit("gap", what=f"Prometheus port {port}", why=f"{error}: pip install 'rlhfdoctor[metrics]'")
        except OSError as error:
            self.emit("gap", what=f"Prometheus port {port}", why=error.strerror or str(error))

    def _figures(self) -> tuple[list[Limit], dict[str, int], int]:
        roles: dict[str, int] = {}
        for process in list(self.target.processes.values()):
            role = process.role or "other"
            roles[role] = roles.get(role, 0) + process.rss_bytes
        return list(self.limits.all.values()), roles, len(self.alarms.standing)

    def store_state(self) -> dict[str, Any]:
        """What the store could not keep."""
        return {
            "lost_count": self.store.lost_count,
            "trouble": self.store.trouble,
            "stored_bytes": self.store.stored_bytes,
        }


def main(arguments: Sequence[str]) -> int:
    """Records into the folder that is given; errors are written to DIR/recorder.log by the caller's redirection."""
    import signal

    folder = arguments[1]
    config = read_config(folder)
    try:
        recorder = Recorder(folder, config)
    except SourceError as error:
        print(f"doctor: {error}", file=sys.stderr, flush=True)
        return 2

    def stop(_signal: int, _frame: object) -> None:
        recorder.stopped = True

    signal.signal(signal.SIGTERM, stop)
    for name in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(name, signal.SIG_IGN)
    try:
        recorder.run()
    finally:
        recorder.store.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
