"""What a tick reads besides the processes: host, cgroups, /dev/shm, GPUs, engines -> rows of the trace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from rlhfdoctor.evidence.roles import find_phase
from rlhfdoctor.record.background import SlowLane
from rlhfdoctor.record.columns import number
from rlhfdoctor.record.job_shm import JobShm
from rlhfdoctor.record.levels import Levels
from rlhfdoctor.record.target import Process, Target
from rlhfdoctor.sources.gpu_drivers import Driver, find_drivers
from rlhfdoctor.sources.gpus import Gpu, GpuProcess, GpuReading, GpuSource
from rlhfdoctor.sources.kept import KeptFiles
from rlhfdoctor.sources.meminfo import parse_meminfo, parse_vmstat, parse_zoneinfo
from rlhfdoctor.sources.nvml import find_own_pid
from rlhfdoctor.sources.pressure import parse_pressure
from rlhfdoctor.sources.procfs import Mappings, parse_maps, read_file
from rlhfdoctor.sources.shm import SharedMemory, SharedObject, find_orphans, find_owners
from rlhfdoctor.sources.vllm import EngineLoad, find_port, read_metrics
from rlhfdoctor.trace.record import Emit, said
from rlhfdoctor.trace.schema import NULL, RATIO_SCALE, TABLES
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_MOST_ENGINES = 16
"""That are asked because of a process's title, which any program can give itself."""
_MOST_OBJECTS = 40
_LEAST_SHM_BYTES = 1 << 20
"""Below this, owners in /dev/shm are not looked up."""
_COUNTER_TICKS = 3
_PLACES = {name: number for number, name in enumerate(TABLES["host"])}


def _reader(driver: Driver) -> Callable[[], GpuReading]:
    """Reads a driver's devices; its library is opened by the first call, in the slow lane's thread."""
    opened: list[GpuSource] = []

    def read() -> GpuReading:
        if not opened:
            opened.append(driver.open())
        return opened[0].read()

    return read


class Machine:
    """All of this machine that is not a process."""

    def __init__(self, target: Target, emit: Emit, root: str = "") -> None:
        """`emit` stores an event; `root` is where /proc and /sys are looked for."""
        self._target, self._emit, self._root = target, emit, root
        self._kept = KeptFiles()
        self.levels = Levels(emit, root, self._kept)
        self.host: dict[str, int] = {}
        self.shm: SharedMemory | None = None
        self._job_shm = JobShm(root)
        self._objects_of = self._job_shm.device
        """Number of the file system that the objects are in."""
        self._counters: dict[str, int] = {}
        self.gpus: list[Gpu] = []
        self._drivers = find_drivers(root)
        self._gpu_readings: dict[str, GpuReading] = {}
        self._gpu_processes: list[GpuProcess] = []
        self._engines: dict[str, EngineLoad] = {}
        self._ticks = 0
        self._objects: dict[int, SharedObject] = {}
        self._lost: set[int] = set()
        """Inodes of the orphaned ones."""
        self._unlinked_bytes: int | None = None
        self._orphaned_bytes: int | None = None
        self._lane, self._engine_lane = SlowLane(), SlowLane()
        """Engines have one of their own: a port that does not answer takes a second of it."""
        self._ports: set[str] = set()
        self._titles: dict[int, str] = {}

    def start(self, metrics: Iterable[str]) -> None:
        """Starts the slow lane with what this machine has."""
        self._lane.add("/dev/shm", 5.0, self._read_objects)
        for driver in self._drivers:
            self._lane.add(driver.name, 1.0, _reader(driver))
        for address in metrics:
            self._add_engine(address)
        self._lane.start()

    def _add_engine(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if address not in self._ports and port.isdecimal():
            if not self._ports:
                self._engine_lane.start()
            self._ports.add(address)

            def read() -> EngineLoad:
                load = read_metrics(host or "127.0.0.1", int(port))
                if load is None:
                    raise OSError(f"no metrics of vLLM at {address}")
                return load

            self._engine_lane.add(f"vLLM {address}", 2.0, read)

    def add_process(self, process: Process) -> None:
        """A new process: its cgroup's levels, its engine's metrics, the phase in its title."""
        self.place(process)
        port = find_port(process.command)
        if port is not None and len(self._ports) < _MOST_ENGINES:
            self._add_engine(f"127.0.0.1:{port}")
        self.title(process)

    def place(self, process: Process) -> None:
        """Its /dev/shm, and the levels of the cgroup that it is in now; a launcher may move it after the start."""
        self._job_shm.place(process.pid)
        self.levels.place(process.pid)

    def title(self, process: Process) -> None:
        """A Ray worker's title names the running method; if that implies a phase, it is stored as a mark."""
        phase = find_phase(process.command) if process.command.startswith("ray::") else None
        if phase is not None and self._titles.get(process.uid) != phase:
            self._titles[process.uid] = phase
            self._emit(
                RECORD.note.mark,
                {
                    R.phase: phase,
                    R.basis: "process title",
                    R.uid: process.uid,
                    R.pid: process.pid,
                    R.role: process.role,
                },
            )

    def read(self) -> dict[str, Any]:
        """The rows of this tick."""
        self._ticks += 1
        self.host = parse_meminfo(self._kept.read(f"{self._root}/proc/meminfo", 16384) or b"")
        if self._ticks % _COUNTER_TICKS == 1:
            self._counters = parse_vmstat(self._kept.read(f"{self._root}/proc/vmstat", 32768) or b"")
            pressure = parse_pressure(self._kept.read(f"{self._root}/proc/pressure/memory", 512) or b"")
            if pressure is not None:
                self._counters |= {"some_us": pressure.some_us, "full_us": pressure.full_us}
            zones = self._kept.read(f"{self._root}/proc/zoneinfo", 1 << 20)
            if zones is not None:
                self._counters["cpu_lists_bytes"] = parse_zoneinfo(zones)
        self.shm = self._job_shm.read(self._target.processes)
        values = {**self.host, **self._counters}
        if self.shm is not None:
            values |= {"shm_size_bytes": self.shm.size_bytes, "shm_used_bytes": self.shm.used_bytes}
        self._take_slow()
        if self._unlinked_bytes is not None:
            values["shm_unlinked_bytes"] = self._unlinked_bytes
        if self._orphaned_bytes is not None:
            values["shm_orphaned_bytes"] = self._orphaned_bytes
        tables: dict[str, Any] = {"host": ([0], [[values.get(name, NULL)] for name in _PLACES])}
        levels = self.levels.read()
        if levels is not None:
            tables["cgroup"] = levels
        self.levels.emit_kills(values.get("oom_kill_count"))
        if self.gpus:
            tables["gpu"] = (
                list(range(len(self.gpus))),
                [
                    [number(g.total_bytes) for g in self.gpus],
                    [number(g.used_bytes) for g in self.gpus],
                    [number(None if g.busy_ratio is None else g.busy_ratio * RATIO_SCALE) for g in self.gpus],
                ],
            )
            tables |= self._gpu_rows()
        if self._engines:
            loads = list(self._engines.values())
            tables["engine"] = (
                list(range(len(loads))),
                [
                    [number(e.running_count) for e in loads],
                    [number(e.waiting_count) for e in loads],
                    [number(None if e.cache_ratio is None else e.cache_ratio * RATIO_SCALE) for e in loads],
                    [number(e.preempted_count) for e in loads],
                ],
            )
        return tables

    def _gpu_rows(self) -> dict[str, Any]:
        pids = list(self._target.processes)
        keys, sizes = [], []
        for item in self._gpu_processes:
            process = self._target.processes.get(item.pid)
            if process is None:
                own = find_own_pid(item.pid, pids, self._root)
                process = self._target.processes.get(own) if own is not None else None
            keys.append((process.uid if process else 0) * 4096 + item.gpu)
            sizes.append(number(item.used_bytes))
        return {"gpu_process": (keys, [sizes])} if keys and len(set(keys)) == len(keys) else {}

    def _read_objects(self) -> tuple[list[SharedObject], int | None, int]:
        """Runs in the slow lane: the objects, with owners among the followed processes and all others we may read.

        Behind them: bytes without a name, and the number of the file system.
        """
        device, objects, unlinked = self._job_shm.list_objects()
        maps: dict[int, Mappings] = {}
        if self.shm is not None and self.shm.used_bytes < _LEAST_SHM_BYTES:
            return objects, unlinked, device
        for process in list(self._target.processes.values()):
            if process.status is not None and (process.status.rss_shmem_bytes or 0) > 0:
                data = read_file(f"{self._root}/proc/{process.pid}/maps", 16 << 20)
                if data is not None:
                    maps[process.pid] = parse_maps(data)
        return find_owners(objects, maps), unlinked, device

    def _take_gpus(self, name: str, reading: GpuReading | None) -> None:
        if reading is None:
            return
        self._gpu_readings[name] = reading
        self.gpus = [gpu for gpus, _, _ in self._gpu_readings.values() for gpu in gpus]
        self._gpu_processes = [process for _, processes, _ in self._gpu_readings.values() for process in processes]
        for gap in reading[2]:
            self._emit(RECORD.note.gap, said({R.what: gap.what, R.why: gap.why}))

    def _take_slow(self) -> None:
        objects = self._lane.take("/dev/shm")
        if objects is not None:
            self._unlinked_bytes = objects[1]
            if objects[2] != self._objects_of:  # another file system than before: of that one nothing has gone
                self._objects, self._lost, self._objects_of = {}, set(), objects[2]
            self._take_objects(objects[0])
        for driver in self._drivers:
            self._take_gpus(driver.name, self._lane.take(driver.name))
        for address in self._ports:
            load = self._engine_lane.take(f"vLLM {address}")
            if load is not None:
                self._engines[address] = load
        for gap in (*self._lane.gaps(), *self._engine_lane.gaps()):
            self._emit(RECORD.note.gap, said({R.what: gap.what, R.why: gap.why}))

    def _take_objects(self, objects: list[SharedObject]) -> None:
        orphans = find_orphans(objects, time.time())
        self._orphaned_bytes = sum(item.size_bytes for item in orphans)
        lost = {item.inode for item in orphans}
        current = {item.inode: item for item in objects[:_MOST_OBJECTS]}
        for inode, item in current.items():
            before = self._objects.get(inode)
            grown = before is None or item.size_bytes > before.size_bytes * 1.25 or before.owners != item.owners
            if grown or (inode in lost and inode not in self._lost):
                self._emit(
                    RECORD.shm.object,
                    {
                        R.path: item.path,
                        R.inode: inode,
                        R.size_bytes: item.size_bytes,
                        R.modified: item.modified,
                        R.uid: item.uid,
                        R.owners: item.owners,
                        R.deleted: item.deleted,
                        R.orphaned: inode in lost,
                    },
                )
        for inode, item in self._objects.items():
            if inode not in current and item.size_bytes and len(objects) < _MOST_OBJECTS:
                self._emit(RECORD.shm.gone, {R.path: item.path, R.inode: inode, R.size_bytes: item.size_bytes})
        self._objects, self._lost = current, lost
