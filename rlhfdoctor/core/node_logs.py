"""What one node of a Ray cluster has to read, where it lies: its session's logs, its kernel log.

An actor of this class scans them on the node; only events travel, with the text of configuration files. Beside this
package a node needs no more than Ray itself brings (PyYAML); without hyperscan it scans by Python's `re`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta, timezone
from functools import partial
from pathlib import Path

from rlhfdoctor.core.file_read import FileRead, read_all
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.events import make_scanner
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.read import Reading, read_log
from rlhfdoctor.logs.thin import thin, why_left_out
from rlhfdoctor.logs.window import Window
from rlhfdoctor.sources.kmsg import KernelLog
from rlhfdoctor.sources.procfs import parse_stat
from rlhfdoctor.types import Gap

KERNEL_LOG = "dmesg"
_SESSION = re.compile(r"/session_(\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d)_")
"""The folder of a Ray session (ray/_private/node.py at 2.60: `session_{date}_{pid}`, local time of the head)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlace:
    """Where a node's logs are."""

    machine: str
    """The kernel's boot id: raylets on one machine share it."""
    folder: str
    device: int
    inode: int
    """Of the folder: raylets may share it."""
    began_s: float
    """Unix seconds of the node's own clock: the kernel log before is not the cluster's."""
    utc_offset_s: int
    """Of stamps without a zone."""
    cores: int
    """That its raylet may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOrder:
    """What a node is to read."""

    node: str
    """Its name, which the names of its files begin with."""
    host: str
    """Its address, as other nodes' logs name it."""
    folder: str | None
    """None where another raylet reads it."""
    kernel_since_s: float | None
    """From when on the machine's kernel log is read; None where another raylet reads it."""
    shared: tuple[str, ...]
    """Files on a storage that every node reaches, of which this one reads a part."""
    window: Window
    """By its clock."""
    utc_offset_s: int
    cores: int
    """To read with."""
    most_events: int


class NodeLogs:
    """Becomes a Ray actor."""

    def clock(self) -> float:
        """This node's wall clock, Unix seconds."""
        return time.time()

    def look(self) -> NodePlace:
        """Where the logs of this actor's own session are."""
        from ray._private.worker import global_worker  # Ray has no public name for it

        if global_worker.node is None:
            raise RuntimeError("this Ray worker does not know its session's folder")
        folder = Path(global_worker.node.get_logs_dir_path()).resolve()
        info = folder.stat()
        return NodePlace(
            machine=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            folder=str(folder),
            device=info.st_dev,
            inode=info.st_ino,
            began_s=began_s(str(folder), _started_s(os.getppid())),
            utc_offset_s=time.localtime().tm_gmtoff,
            cores=len(os.sched_getaffinity(0)),
        )

    def read(self, order: NodeOrder) -> list[FileRead]:
        """What the order says, at most so many events of it."""
        found = list(_read_folder(order.folder, order)) if order.folder is not None else []
        if order.shared:
            found += read_all(order.shared, partial(replace, window=order.window), most_workers=order.cores)
        if order.kernel_since_s is not None:
            found.append(_read_kernel(order, order.kernel_since_s))
        left_out = thin([file.reading.events for file in found], order.most_events)
        if left_out:
            gap = Gap(what=quoted(order.node), why=why_left_out(left_out))
            found.append(FileRead(name=order.node, reading=Reading(gaps=[gap])))
        return found


def _started_s(pid: int) -> float:
    """When a process of this machine was started, Unix seconds."""
    stat = parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    ticks = stat.start_ticks if stat is not None else 0
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + ticks / os.sysconf("SC_CLK_TCK")


def began_s(folder: str, raylet_s: float) -> float:
    """When a session began, Unix seconds: as its folder's name says, at the latest with the raylet."""
    match = _SESSION.search(folder)
    if match is None:
        return raylet_s
    try:
        return min(raylet_s, time.mktime(time.strptime(match[1], "%Y-%m-%d_%H-%M-%S")))
    except (ValueError, OverflowError):
        return raylet_s


def _read_folder(folder: str, order: NodeOrder) -> Iterator[FileRead]:
    """The node's own files, by its name instead of the folder's."""
    zone = timezone(timedelta(seconds=order.utc_offset_s))
    place = partial(replace, host=order.host, zone=zone, window=order.window)
    for file in read_all((folder,), place, most_workers=order.cores):
        name = file.name.replace(folder, order.node, 1)
        events = [replace(event, origin=replace(event.origin, file=name)) for event in file.reading.events]
        yield replace(file, name=name, reading=replace(file.reading, events=events))


def _read_kernel(order: NodeOrder, since_s: float) -> FileRead:
    name = f"{order.node}/{KERNEL_LOG}"
    try:
        log = KernelLog(since_s=since_s)
    except OSError as error:
        why = say("{why}; run dmesg -T on that node, and hand it over", why=os.strerror(error.errno or 0))
        return FileRead(name=name, reading=Reading(gaps=[Gap(what=quoted(name), why=why)]))
    try:
        data = "\n".join(line for part in iter(log.read, []) for line in part).encode()
    finally:
        log.close()
    source = Source(name, lambda: iter((data,)), len(data), time.time(), host=order.host)
    reading = read_log(source, make_scanner(), Reading(), lambda _: None)
    return FileRead(name=name, modified=source.modified, reading=reading)
