"""Stores the recorder's events; what names a process, cgroup or limit is repeated in every segment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from rlhfdoctor.trace.record import RecordEvent, StoredEvent, make_record
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE
from rlhfdoctor.vocabulary.names import Record

_REPEATED = (RECORD.cgroup.seen, RECORD.limit.seen)


class EventLog:
    """The way of all events into the store."""

    def __init__(self, folder: str, header: Mapping[str, Any]) -> None:
        """Opens the store.

        Raises:
            SourceError: the folder cannot be written, or another recorder writes there.
        """
        self._named: dict[tuple[Record, int], StoredEvent] = {}
        self.kill_count = 0
        """Processes of the run that the kernel killed."""
        self.listen: Callable[[StoredEvent], None] | None = None
        """Called with every event."""
        self.list_processes: Callable[[], Iterable[StoredEvent]] = list
        """Of each followed process what names it: of thousands, that is not kept here."""
        self.store = Writer(folder, header, registry=self._repeated)

    def _repeated(self) -> Iterable[RecordEvent]:
        return ({**event, R.again: True} for event in chain(self.list_processes(), self._named.values()))

    def emit(self, kind: Record, fields: RecordEvent) -> StoredEvent:
        """Stores an event with the time of now."""
        event = make_record(kind, fields)
        if kind == RECORD.note.oom_kill and fields.get(R.level) != NODE:  # that counter counts other jobs too
            self.kill_count += int(fields.get(R.count) or 1)
        if kind in _REPEATED:
            self._named[kind, int(fields[R.uid])] = event
        self.store.event(event)
        if self.listen is not None:
            self.listen(event)
        return event

    def forget(self, kind: Record, uids: Iterable[int]) -> None:
        """What is gone is named no more in the segments to come."""
        for uid in uids:
            self._named.pop((kind, uid), None)

    def state(self) -> StoredEvent:
        """What the store could not keep."""
        return {
            R.lost_count: self.store.lost_count,
            R.trouble: self.store.trouble,
            R.stored_bytes: self.store.stored_bytes,
        }
