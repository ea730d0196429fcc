"""Writes a trace: append-only segments that stay readable however the writer dies.

    000001.trace, 000002.trace, ...   frames; the first is a header that describes the tables

Each frame is written whole at its own offset, so that a write that failed half-way is done again over
itself. When the disk is full or gone, frames go to a segment in memory (a memfd that readers find
below /proc/PID/fd), and from there to disk as soon as that works again. Two writers never share a
file: segments are created exclusively, and a lock keeps a second writer out.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from rlhfdoctor.errors import SourceError
from rlhfdoctor.files.write import append, create
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.trace.frames import EVENT, HEADER, Encoder, Rows, json_payload, pack
from rlhfdoctor.trace.record import RecordEvent, make_record
from rlhfdoctor.trace.schema import FORMAT, TABLES
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R

SUFFIX = ".trace"
RING_NAME = "rlhfdoctor-ring"
_LOOK_S = 5.0


class Writer:
    """The only writer of one run's trace; `sample` and `event` never raise once it is open."""

    def __init__(
        self,
        folder: str,
        header: Mapping[str, Any],
        *,
        registry: Callable[[], Iterable[RecordEvent]] = list,
        segment_bytes: int = 4 << 20,
        most_bytes: int = 2 << 30,
        ring_bytes: int = 4 << 20,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Opens the first segment.

        Args:
            header: facts about the run that every segment repeats.
            registry: events that every segment must repeat to be understood alone (names of processes).
            most_bytes: of all segments; beyond, the oldest are deleted.
            ring_bytes: of the segment in memory while the disk takes nothing.

        Raises:
            SourceError: another recorder writes here, or the folder cannot be written.
        """
        self._folder, self._header, self._registry = folder, dict(header), registry
        self._segment_bytes, self._most_bytes, self._ring_bytes, self._clock = (
            segment_bytes,
            most_bytes,
            ring_bytes,
            clock,
        )
        self._encoder = Encoder(TABLES)
        self._number, self._end, self._fd = 0, 0, -1
        self._in_memory = False
        self._base = 0
        self._retry_at, self._pause_s, self._look_at = 0.0, 1.0, 0.0
        self._writer = f"{os.getpid()}-{time.time_ns()}"
        self.stored_bytes = 0
        self.kept_count = 0
        """Frames that are only in memory."""
        self.lost_count = 0
        """Frames that were dropped because the memory for them was full."""
        self.trouble = ""
        """Why the disk takes nothing, or empty."""
        self._lock = self._take_lock()
        try:
            self._fd = self._create()
        except OSError as error:
            os.close(self._lock)
            raise SourceError(joined(quoted(folder), quoted(error.strerror), by=": ")) from None
        self._begin()

    def _take_lock(self) -> int:
        try:
            handle = append(f"{self._folder}/lock", real=True)
        except OSError as error:
            raise SourceError(joined(quoted(self._folder), quoted(error.strerror), by=": ")) from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise SourceError(
                say("{folder}: another recorder is writing here; use another --out", folder=self._folder)
            ) from None
        except OSError:
            pass  # a network file system without locks: exclusive creation still keeps the files apart
        return handle

    def _create(self) -> int:
        """The next segment's descriptor. Raises OSError."""
        while True:
            self._number += 1
            path = f"{self._folder}/{self._number:06d}{SUFFIX}"
            try:
                return create(path, real=True)
            except FileExistsError:
                continue

    def _begin(self) -> None:
        """Header and registry of a new segment; they do not count against its size."""
        self._end = self._base = 0
        self._encoder.restart()
        tables = {name: list(columns) for name, columns in TABLES.items()}
        header = {
            **self._header,
            "writer": self._writer,
            "format": FORMAT,
            "segment": self._number,
            "wall_ns": time.time_ns(),
            "mono_ns": time.monotonic_ns(),
            "tables": tables,
        }
        events = (pack(EVENT, json_payload(event)) for event in self._registry())
        for frame in chain([pack(HEADER, json_payload(header))], events):
            try:
                self._write(frame)
            except OSError as error:
                if self._in_memory:
                    self.lost_count += 1
                    continue
                self._to_memory(error)  # starts again there
                return
        self._base = self._end

    def sample(self, wall_ns: int, mono_ns: int, tables: Mapping[str, Rows]) -> None:
        """Stores one tick."""
        self._roll()
        self._append(lambda: self._encoder.encode(wall_ns, mono_ns, tables))

    def event(self, event: RecordEvent) -> None:
        """Stores something that happened; it should bear `kind`, `wall_ns` and `mono_ns`."""
        frame = pack(EVENT, json_payload(event))
        self._append(lambda: frame)

    def _append(self, make: Callable[[], bytes]) -> None:
        """Writes a frame; it is encoded again if it goes to another segment, whose key frame it must match."""
        frame = make()
        if self._in_memory and self._end - self._base + len(frame) > self._ring_bytes:
            self.lost_count += self.kept_count
            self._restart_ring()
            frame = make()
        try:
            self._write(frame)
        except OSError as error:
            if not self._in_memory:
                self._to_memory(error)
                frame = make()
            try:
                self._write(frame)
            except OSError:
                self.lost_count += 1
                self._encoder.restart()  # nothing may build upon a frame that is not there
                return
        self.kept_count += self._in_memory

    def _write(self, frame: bytes) -> None:
        """The whole frame at the segment's end, or an error and the end unmoved."""
        done = 0
        while done < len(frame):
            done += os.pwrite(self._fd, frame[done:], self._end + done)
        self._end += done
        if not self._in_memory:
            self.stored_bytes += done
            self.trouble = ""

    def _roll(self) -> None:
        """A new segment where this one is full, and back to disk where that is possible again."""
        if self._in_memory:
            if self._clock() >= self._retry_at:
                self._to_disk()
        elif self._end - self._base >= self._segment_bytes or self._is_gone():
            with contextlib.suppress(OSError):
                os.posix_fadvise(
                    self._fd, 0, 0, os.POSIX_FADV_DONTNEED
                )  # our page cache is charged to the job's cgroup
            try:
                fresh = self._create()
            except OSError as error:
                self._to_memory(error)
                return
            os.close(self._fd)
            self._fd = fresh
            self._begin()
            self._thin()

    def _is_gone(self) -> bool:
        """Whether our file was deleted under us; asked every few seconds."""
        if self._clock() < self._look_at:
            return False
        self._look_at = self._clock() + _LOOK_S
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:
            return True

    def _to_memory(self, error: OSError) -> None:
        self.trouble = error.strerror or str(error)
        self._pause_s = 1.0
        self._retry_at = self._clock() + self._pause_s
        try:
            fresh = os.memfd_create(RING_NAME, os.MFD_CLOEXEC)
        except OSError:
            self._encoder.restart()
            return  # neither disk nor memory: the next frame tries the disk again
        os.close(self._fd)
        self._fd, self._in_memory, self.kept_count = fresh, True, 0
        self._begin()

    def _restart_ring(self) -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(self._fd, 0)
        self.kept_count = 0
        self._begin()

    def _to_disk(self) -> None:
        """Copies the segment in memory to a new file; on failure tries again after a longer pause."""
        try:
            fresh = self._create()
        except OSError as error:
            self.trouble = error.strerror or str(error)
            self._wait_longer()
            return
        done = 0
        try:
            while done < self._end:
                done += os.pwrite(fresh, os.pread(self._fd, 1 << 20, done), done)
        except OSError as error:
            os.close(fresh)
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{self._number:06d}{SUFFIX}")
            self.trouble = error.strerror or str(error)
            self._wait_longer()
            return
        os.close(self._fd)
        self._fd, self._in_memory = fresh, False
        self.stored_bytes += done
        recovered: RecordEvent = {R.why: self.trouble, R.kept_count: self.kept_count, R.lost_count: self.lost_count}
        self.trouble, self.kept_count = "", 0
        self.event(make_record(RECORD.store.recovered, recovered))

    def _wait_longer(self) -> None:
        self._pause_s = min(self._pause_s * 2, 30.0)
        self._retry_at = self._clock() + self._pause_s

    def _thin(self) -> None:
        """Deletes the oldest segments when all of them together are too large."""
        try:
            names = sorted(name for name in os.listdir(self._folder) if name.endswith(SUFFIX))
            sizes = {name: os.stat(f"{self._folder}/{name}").st_size for name in names}
        except OSError:
            return
        total, dropped = sum(sizes.values()), 0
        for name in names[:-1]:
            if total <= self._most_bytes:
                break
            with contextlib.suppress(OSError):
                os.unlink(f"{self._folder}/{name}")
                total -= sizes[name]
                dropped += 1
        if dropped:
            self.event(make_record(RECORD.store.dropped, {R.segments_count: dropped}))

    def close(self) -> None:
        """Brings what is in memory to disk where possible, and syncs."""
        if self._in_memory:
            self._to_disk()
        with contextlib.suppress(OSError):
            os.fsync(self._fd)
        os.close(self._fd)
        os.close(self._lock)
