"""A run's trace as it grows: on disk, or in the recorder's memory while the disk takes nothing."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import RecordEvent, time_of
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import RING_NAME, SUFFIX
from rlhfdoctor.types import Gap
from rlhfdoctor.vocabulary import RECORD_FIELD as R

Item = tuple[Sample | RecordEvent, Mapping[str, Sequence[str]]]
"""A sample or an event, with the columns of its tables."""


class Follower:
    """Gives every sample and event once, whether it was read from memory first and from disk later or not."""

    def __init__(self, folder: str, pid: int = 0) -> None:
        """`folder` of the run; `pid` of the recorder, where it is known already."""
        self.folder = folder
        self.gaps: list[Gap] = []
        self._segments: dict[str, SegmentReader] = {}
        self._last: dict[str, tuple[int, int]] = {}
        """Writer -> sequence of its last sample, monotonic clock of its last event."""
        self._pid = pid

    @property
    def header(self) -> Mapping[str, Any]:
        """The newest header that was read."""
        return next((s.header for s in reversed(self._segments.values()) if s.header), {})

    def read(self) -> list[Item]:
        """What is new, in order of time."""
        found: list[Item] = []
        for path in self._paths():
            segment = self._segments.setdefault(path, SegmentReader(path))
            found.extend(self._new(segment))
        pid = self.header.get("pid")
        self._pid = pid if isinstance(pid, int) else self._pid
        for path in self._rings():
            found.extend(self._new(SegmentReader(path)))  # read whole: it may have been rewritten
        found.sort(key=lambda item: item[0].wall_ns if isinstance(item[0], Sample) else time_of(item[0]))
        return found

    def _new(self, segment: SegmentReader) -> Iterator[Item]:
        """Items of a segment that were not given before."""
        items: list[Sample | RecordEvent] = []
        with contextlib.suppress(OSError):
            items = list(segment.read(self.gaps, final=False))
        writer = str(segment.header.get("writer") or segment.path)
        for item in items:
            sequence, mono_ns = self._last.get(writer, (0, -1))
            if isinstance(item, Sample):
                if item.sequence <= sequence:
                    continue
                self._last[writer] = (item.sequence, mono_ns)
            elif not item.get(R.again):
                own_ns = item.get(R.mono_ns)
                if isinstance(own_ns, int):
                    if own_ns <= mono_ns:
                        continue
                    self._last[writer] = (sequence, own_ns)
            yield item, segment.columns

    def _paths(self) -> list[str]:
        try:
            return [f"{self.folder}/{name}" for name in sorted(os.listdir(self.folder)) if name.endswith(SUFFIX)]
        except OSError:
            return []

    def _rings(self) -> list[str]:
        """The segment in the recorder's memory, below /proc/PID/fd."""
        if not self._pid:
            return []
        descriptors, found = f"/proc/{self._pid}/fd", []
        with contextlib.suppress(OSError):
            for name in os.listdir(descriptors):
                with contextlib.suppress(OSError):  # it may be closed meanwhile
                    if RING_NAME in os.readlink(f"{descriptors}/{name}"):
                        found.append(f"{descriptors}/{name}")
        return found
