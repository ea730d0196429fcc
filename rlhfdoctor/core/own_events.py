"""The events that are the run's: without documents, other times, kills of other jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from rlhfdoctor.evidence.documents import without_documents
from rlhfdoctor.evidence.other_times import without_other_times
from rlhfdoctor.evidence.ownership import may_be_own, sort_kills
from rlhfdoctor.i18n.message import plural, quoted, say
from rlhfdoctor.trace.events import Recorded, drop_foreign, span_of
from rlhfdoctor.types import Event, Gap


@dataclass(slots=True)
class OwnEvents:
    """Events, and what was left out."""

    events: list[Event]
    gaps: list[Gap] = field(default_factory=list)
    untied: list[Event] = field(default_factory=list)
    """Kills that nothing ties to the run, and nothing speaks against."""
    is_end_in_doubt: bool = False
    """Whether a kill that was left out is of a process such as the run has."""


def own_events(events: Sequence[Event], named: Collection[str], traces: Sequence[Recorded]) -> OwnEvents:
    """Leaves out what is of other runs.

    Args:
        events: in order of time.
        named: paths that the user gave; documents among them count.
    """
    kept, documents = without_documents(events, named, is_recorded=bool(traces))
    kept, others = without_other_times(kept, span_of(traces))
    found = OwnEvents(kept)
    for name in documents:
        why = say("left out: no log by its name; pass the file itself to read it")
        found.gaps.append(Gap(what=quoted(name), why=why))
    for name, count in Counter(event.origin.file for event in others).items():
        why = plural(
            "left out: {n} failure of a time at which the run did not live",
            "left out: {n} failures of a time at which the run did not live",
            count,
        )
        found.gaps.append(Gap(what=quoted(name), why=why))
    if traces:
        found.events, foreign = drop_foreign(found.events, traces)
    else:
        kills = sort_kills(found.events)
        found.events, found.untied = kills.events, kills.untied
        foreign, found.is_end_in_doubt = len(kills.foreign), any(map(may_be_own, kills.foreign))
    if foreign:
        why = say("{kills} of other jobs on this node left out", kills=plural("{n} kill", "{n} kills", foreign))
        found.gaps.append(Gap(what=say("kernel log"), why=why))
    return found
