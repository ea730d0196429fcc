"""Of more events than can be held, the first or last ones of each kind in each log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rlhfdoctor.i18n.message import Message, plural
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary.names import Kind


def thin(logs: Sequence[list[Event]], most_count: int) -> int:
    """Keeps of each kind in each log as many of the first and of the last events as fit; how many were left out.

    A kind of which there are few keeps all of them; one event at either end stays whatever the limit.
    """
    counts = [Counter(event.kind for event in events) for events in logs]
    every = [n for count in counts for n in count.values()]
    if sum(every) <= most_count:
        return 0
    low, high = 1, max(every)
    while low < high:  # the largest number at either end that fits
        middle = (low + high + 1) // 2
        low, high = (middle, high) if sum(min(n, 2 * middle) for n in every) <= most_count else (low, middle - 1)
    for events, count in zip(logs, counts):
        events[:] = ends(events, count, low)
    return sum(every) - sum(map(len, logs))


def ends(events: Sequence[Event], counts: Counter[Kind], keep: int) -> Iterator[Event]:
    """So many of the first and of the last events of each kind; `counts` has how many there are."""
    seen: Counter[Kind] = Counter()
    for event in events:
        seen[event.kind] += 1
        if seen[event.kind] <= keep or seen[event.kind] > counts[event.kind] - keep:
            yield event


def why_left_out(count: int) -> Message:
    """The reason of a gap."""
    return plural(
        "{n} event between the first and last ones of its kind in its log left out: there are more than are held",
        "{n} events between the first and last ones of their kind in their log left out: there are more than are held",
        count,
    )
