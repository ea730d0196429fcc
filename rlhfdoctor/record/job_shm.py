"""Which /dev/shm the followed processes see: in a container it is another one than the recorder's."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping

from rlhfdoctor.record.target import Process
from rlhfdoctor.sources.shm import SharedMemory, SharedObject, list_objects, open_shm, read_shm

_OURS = 0


class JobShm:
    """The /dev/shm of the largest process: a launcher outside of the container and a small sandbox inside do not count.

    A process is asked now and then (`open_shm`), and a tick reads one file system. Where we may not look into a
    process's root (another user's), or no tmpfs is there, it counts as having ours.
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
        self._pid: int | None = None
        """Whose is measured; None: ours, or nothing."""
        self._is_gone = False

    def place(self, pid: int) -> None:
        """Looks which one a process has; a launcher may give it another one after the start."""
        try:
            with self._opened(pid) as handle:
                device = os.fstat(handle).st_dev
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
        self._is_gone = self.device != _OURS and not pids
        self._pid = None if self.device == _OURS or not pids else pids[0]
        if self._pid is None:
            return None if self._is_gone else read_shm(self._own)
        with contextlib.suppress(OSError), self._opened(self._pid) as handle:
            return read_shm(handle)
        return None

    def list_objects(self) -> tuple[int, list[SharedObject], int | None]:
        """(number of the file system, its named objects by the path that the job knows, bytes of unnamed ones)."""
        device, pid = self.device, self._pid
        if pid is None and not self._is_gone:
            return device, *_listed(self._own, read_shm(self._own), None)
        if pid is not None:
            with contextlib.suppress(OSError), self._opened(pid) as handle:
                return device, *_listed(f"/proc/self/fd/{handle}/.", read_shm(handle), "/dev/shm")
        return device, [], None

    @contextlib.contextmanager
    def _opened(self, pid: int) -> Iterator[int]:
        """
        Raises:
            OSError: it has none that is read.
        """
        handle = open_shm(self._root, pid)
        if handle is None:
            raise FileNotFoundError("/dev/shm")
        try:
            yield handle
        finally:
            os.close(handle)


def _listed(path: str, whole: SharedMemory | None, known_as: str | None) -> tuple[list[SharedObject], int | None]:
    objects = list_objects(path, known_as)
    named = sum(item.size_bytes for item in objects)
    return objects, None if whole is None else max(0, whole.used_bytes - named)  # both of the same moment
