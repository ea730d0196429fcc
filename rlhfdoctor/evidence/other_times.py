"""Failures of a time at which the run cannot have lived: of other runs, jobs, programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.steps import STEPS
from rlhfdoctor.types import Event

Span = tuple[float, float]
"""First and last time, Unix seconds."""
_BEFORE_S = 26 * 3600.0
"""Stamps of two machines, without their time zones, differ by so much at most (UTC-12 to UTC+14)."""
_AFTER_S = 8 * 86400.0
"""Judgement: so long a run may have stood still, without one line, until it was ended: a week, and a day of zones."""
_AFTER_TRACE_S = _BEFORE_S
"""A recording goes on while the run stands still."""
_YEAR = re.compile(r"(?<!\d)20\d\d(?!\d)")
_YEAR_S = 365.25 * 86400.0
_MOST_YEARS = 3
"""A stamp without a year was given that of its file, which a copy may have changed."""


def without_other_times(events: Sequence[Event], recorded: Span | None) -> tuple[list[Event], list[Event]]:
    """Events without failures of other times, and these.

    Args:
        recorded: the time of the recording. None: that of the files with steps, if any.
    """
    span = recorded or _logged(events)
    if span is None:
        return list(events), []
    after_s = _AFTER_S if recorded is None else _AFTER_TRACE_S
    bounds = span[0] - _BEFORE_S, span[1] + after_s
    others = [event for event in events if classify(event) is not None and _is_out(event, bounds)]
    gone = set(map(id, others))
    return [event for event in events if id(event) not in gone], others


def _logged(events: Sequence[Event]) -> Span | None:
    """The time of the run's own logs: those in which there are steps."""
    files = {event.origin.file for event in events if event.kind in STEPS}
    times = [event.time for event in events if event.time is not None and event.origin.file in files]
    return (min(times), max(times)) if times else None


def _is_out(event: Event, bounds: Span) -> bool:
    if event.time is None:
        return False
    years = [0] if _YEAR.search(event.text) else range(-_MOST_YEARS, _MOST_YEARS + 1)
    return not any(bounds[0] <= event.time + year * _YEAR_S <= bounds[1] for year in years)
