"""Wakes the recorder before its time: cgroup thresholds, OOM events, memory pressure, kernel log lines.

v1: eventfds registered in cgroup.event_control (cgroup-v1/memory.rst 9 and 10); v2: POLLPRI on
memory.events; PSI triggers if the kernel permits. Measured: 95 % of the limit is crossed about
0.4 s before the kill at 1 GiB/s, pressure mostly after it unless page cache is reclaimed first.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time

from rlhfdoctor.sources.cgroupfs import Hierarchy
from rlhfdoctor.sources.pressure import open_trigger

_THRESHOLDS = (0.80, 0.90, 0.95, 0.99)
_GONE = select.POLLERR | select.POLLHUP | select.POLLNVAL
_MOST_LEVELS = 32
"""Whose events are waited for at a time: each takes five descriptors, and registering it up to 0.1 s (synchronize_rcu).
The others are read at every tick all the same."""


class Notifier:
    """The recorder's clock: sleeps until a deadline or until something happens."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._names: dict[int, str] = {}
        self._owned: set[int] = set()
        self._levels: dict[int, str] = {}
        """Descriptor of an event -> folder of its cgroup."""

    def add(self, fd: int, name: str, events: int = select.POLLIN) -> None:
        """Watches a descriptor that the caller reads from."""
        self._poll.register(fd, events)
        self._names[fd] = name

    def remove(self, fd: int) -> None:
        """Forgets a descriptor."""
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._poll.unregister(fd)
        self._names.pop(fd, None)

    def watch_level(self, hierarchy: Hierarchy, folder: str, max_bytes: int | None) -> None:
        """Thresholds below the limit of one cgroup, and its OOM events; what is not allowed is left out."""
        if len(set(self._levels.values())) >= _MOST_LEVELS:
            return
        if hierarchy.version == 1:
            if max_bytes is not None:
                for share in _THRESHOLDS:
                    self._event_control(
                        folder, "memory.usage_in_bytes", f"threshold {share:.0%}", str(int(max_bytes * share))
                    )
            self._event_control(folder, "memory.oom_control", "oom", "")
            return
        with contextlib.suppress(OSError):
            fd = os.open(f"{folder}/memory.events", os.O_RDONLY | os.O_CLOEXEC)
            os.read(fd, 4096)
            self._add_event(fd, folder, "memory.events", select.POLLPRI)

    def _event_control(self, folder: str, file: str, name: str, argument: str) -> None:
        try:
            target = os.open(f"{folder}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return
        event = -1
        try:
            event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
            control = os.open(f"{folder}/cgroup.event_control", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(control, f"{event} {target} {argument}".encode())
            finally:
                os.close(control)
        except OSError:
            if event >= 0:
                os.close(event)
            return
        finally:
            os.close(target)
        self._add_event(event, folder, name, select.POLLIN)

    def _add_event(self, fd: int, folder: str, name: str, events: int) -> None:
        self._owned.add(fd)
        self._levels[fd] = folder
        self.add(fd, name, events)

    def watch_signals(self) -> None:
        """Signals that have a handler wake it, too: Python goes on waiting once the handler ran (PEP 475)."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        self._owned |= {read, write}
        self.add(read, "signal")

    def watch_end(self, pid: int) -> None:
        """The end of a process, once; a kernel before 5.3 has no such descriptor."""
        with contextlib.suppress(OSError):
            fd = os.pidfd_open(pid)
            self._owned.add(fd)
            self.add(fd, "end")

    def watch_pressure(self, path: str) -> None:
        """A PSI trigger, if the kernel permits."""
        fd = open_trigger(path)
        if fd is not None:
            self._owned.add(fd)
            self.add(fd, "pressure", select.POLLPRI)

    def wait(self, deadline: float) -> set[str]:
        """Sleeps until the monotonic deadline; what woke it earlier is named."""
        left_ms = max(0.0, (deadline - time.monotonic()) * 1000)
        woken: set[str] = set()
        try:
            ready = self._poll.poll(left_ms)
        except InterruptedError:
            return woken
        for fd, event in ready:
            name = self._names.get(fd, "?")
            if fd in self._levels and not self._is_read(fd, name):
                self._discard(fd)
                continue
            woken.add(name)
            if name == "signal":
                with contextlib.suppress(OSError):
                    os.read(fd, 4096)
            elif name == "end" or (event & _GONE and not event & select.POLLPRI):
                self._discard(fd)
        return woken

    def _is_read(self, fd: int, name: str) -> bool:
        """Takes an event of a cgroup; False where it is the kernel's last one, since the cgroup was removed.

        v1 signals every eventfd then (mm/memcontrol.c, memcg_event_remove), v2 makes the file readable for ever
        (fs/kernfs/file.c, kernfs_fop_poll).
        """
        try:
            if name == "memory.events":
                os.pread(fd, 4096, 0)
                return True
            os.eventfd_read(fd)
        except OSError:
            return False
        return os.path.exists(self._levels[fd])

    def _discard(self, fd: int) -> None:
        """Forgets a descriptor, and closes what is ours."""
        self.remove(fd)
        self._levels.pop(fd, None)
        if fd in self._owned:
            self._owned.discard(fd)
            with contextlib.suppress(OSError):
                os.close(fd)

    def close(self) -> None:
        """Gives the descriptors back."""
        if "signal" in self._names.values():
            signal.set_wakeup_fd(-1)
        for fd in list(self._owned):
            self._discard(fd)
