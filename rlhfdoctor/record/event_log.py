"""Stores the recorder's events; what names a process, cgroup or limit is repeated in every segment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlhfdoctor.trace.record import RecordEvent, StoredEvent, make_record
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record

_REPEATED: Mapping[Record, Record] = {
    RECORD.process.seen: RECORD.process.seen,
    RECORD.process.named: RECORD.process.seen,
    RECORD.cgroup.seen: RECORD.cgroup.seen,
    RECORD.limit.seen: RECORD.limit.seen,
}
"""Events that name something -> the event that later segments repeat."""


class EventLog:
    """The way of all events into the store."""

    def __init__(self, folder: str, header: Mapping[str, Any]) -> None:
        """Opens the store.

        Raises:
            SourceError: the folder cannot be written, or another recorder writes there.
        """
        self._named: dict[tuple[Record, int], StoredEvent] = {}
        self.store = Writer(folder, header, registry=self._repeated)

    def _repeated(self) -> list[RecordEvent]:
        return [{**event, R.again: True} for event in self._named.values()]

    def emit(self, kind: Record, fields: RecordEvent) -> RecordEvent:
        """Stores an event with the time of now."""
        event = make_record(kind, fields)
        named = _REPEATED.get(kind)
        if named is not None:
            key = (named, int(fields[R.uid]))
            self._named[key] = {**self._named.get(key, {}), **event, R.kind: named}
        self.store.event(event)
        return event

    def forget_process(self, uid: int) -> None:
        """A process is gone: later segments need not name it."""
        self._named.pop((RECORD.process.seen, uid), None)

    def state(self) -> StoredEvent:
        """What the store could not keep."""
        return {
            R.lost_count: self.store.lost_count,
            R.trouble: self.store.trouble,
            R.stored_bytes: self.store.stored_bytes,
        }
