"""Which /dev/shm the followed processes see: in a container it is another one than the recorder's."""

from __future__ import annotations

import os
from collections.abc import Mapping

from rlhfdoctor.record.target import Process
from rlhfdoctor.sources.shm import SharedMemory, SharedObject, list_objects, read_shm

_OURS = 0


class JobShm:
    """The /dev/shm of the largest process: a launcher outside of the container and a small sandbox inside do not count.

    A process is asked now and then (one stat of /proc/PID/root/dev/shm, which is the path in its mount namespace,
    proc_pid_root(5)), and a tick reads one file system. Where we may not look into a process's root (another user's)
    it counts as having ours.
    """

    def __init__(self, root: str = "") -> None:
        """`root` is where /proc and /dev are looked for."""
        self._root, self._own = root, f"{root}/dev/shm"
        self._devices: dict[int, int] = {}
        """Pid -> number of the file system that it has."""
        self._most_bytes = {_OURS: 0}
        """Resident size of the largest process that each of them ever had."""
        self.device = _OURS
        self._is_mixed = False
        """Whether a process has ever had another one than ours."""
        self._path: str | None = self._own

    def place(self, pid: int) -> None:
        """Looks which one a process has; a launcher may give it another one after the start."""
        try:
            device = os.stat(f"{self._root}/proc/{pid}/root/dev/shm").st_dev
            self._devices[pid] = _OURS if device == os.stat(self._own).st_dev else device
            self._is_mixed |= self._devices[pid] != _OURS
        except OSError:
            self._devices.setdefault(pid, _OURS)

    def read(self, processes: Mapping[int, Process]) -> SharedMemory | None:
        """Size and use of the job's; None if there is none, or the last process that has it is gone."""
        if len(self._devices) > 2 * len(processes) or self._is_mixed:
            self._devices = {pid: device for pid, device in self._devices.items() if pid in processes}
        if not self._is_mixed:  # nearly always
            return read_shm(self._own)
        for pid, device in self._devices.items():
            self._most_bytes[device] = max(self._most_bytes.get(device, 0), processes[pid].rss_bytes)
        self.device = max(self._most_bytes, key=self._most_bytes.__getitem__)
        pids = [pid for pid, device in self._devices.items() if device == self.device]
        if self.device == _OURS:
            self._path = self._own
        else:
            self._path = f"{self._root}/proc/{pids[0]}/root/dev/shm" if pids else None
        return None if self._path is None else read_shm(self._path)

    def list_objects(self) -> tuple[int, list[SharedObject], int | None]:
        """(number of the file system, its named objects by the path that the job knows, bytes of unnamed ones)."""
        device, path = self.device, self._path
        if path is None:
            return device, [], None
        objects, whole = list_objects(path, None if device == _OURS else "/dev/shm"), read_shm(path)
        named = sum(item.size_bytes for item in objects)
        return device, objects, None if whole is None else max(0, whole.used_bytes - named)  # both of the same moment
