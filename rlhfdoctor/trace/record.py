"""An event of the recorder, as a trace holds it: fields by their declared words."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from rlhfdoctor.i18n.message import Message, quoted, revived
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.index import RECORDS
from rlhfdoctor.vocabulary.names import Record, RecordField

RecordEvent: TypeAlias = Mapping[RecordField, Any]
"""Any value may be damaged, and any field may be missing: of an older recorder, or of a newer one."""
StoredEvent: TypeAlias = dict[RecordField, Any]
"""An event whose owner may change it."""
Emit: TypeAlias = Callable[[Record, RecordEvent], RecordEvent]
"""Stores an event of a kind with these fields, and gives it back with its time."""


def make_record(kind: Record, fields: RecordEvent) -> StoredEvent:
    """An event of now."""
    return {R.kind: kind, R.wall_ns: time.time_ns(), R.mono_ns: time.monotonic_ns(), **fields}


def said(sentences: Mapping[RecordField, Message]) -> StoredEvent:
    """Fields of an event that are sentences: English text, and their ids and arguments for other languages."""
    texts: StoredEvent = {name: str(says) for name, says in sentences.items()}
    return {**texts, R.messages: {name: says.to_dict() for name, says in sentences.items()}}


def message_of(event: RecordEvent, name: RecordField) -> Message:
    """What an event says in one of its fields.

    It is quoted text where an older recorder stored no message, or where the message does not say in English what the
    text says (damaged, or changed by someone).
    """
    text, stored = str(event.get(name) or ""), event.get(R.messages)
    try:
        found = revived(stored.get(name)) if isinstance(stored, dict) else None
        return found if found is not None and str(found) == text else quoted(text)
    except (ValueError, TypeError, OverflowError, OSError):
        return quoted(text)


def record_of(event: RecordEvent) -> Record | None:
    """The kind of an event; None if this version does not know it."""
    word = event.get(R.kind)
    return RECORDS.get(word) if isinstance(word, str) else None


def is_a(event: RecordEvent, *kinds: Record) -> bool:
    """Whether an event is of one of these kinds."""
    return event.get(R.kind) in kinds


def time_of(event: RecordEvent) -> int:
    """Wall clock of an event in nanoseconds; 0 if it has none."""
    wall_ns = event.get(R.wall_ns)
    return wall_ns if isinstance(wall_ns, int) else 0


def mark_time_of(event: RecordEvent) -> int:
    """When the trainer set a mark, by its own clock; where that is damaged, when it was recorded."""
    at_ns = event.get(R.at_ns)
    return at_ns if isinstance(at_ns, int) and at_ns else time_of(event)
