"""Recorded runs -> curves: what the page of a recording showed at each sample, from the segments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhfdoctor.curves import Curves, Point
from rlhfdoctor.record.figures import figures_of, label
from rlhfdoctor.record.state import State
from rlhfdoctor.trace.events import Recorded
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import RecordEvent, time_of
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import SUFFIX

_MOST_POINTS = 10_000
"""Of a node: nearly three hours of a sample a second; of a longer run, one of so many samples."""


def read_curves(traces: Sequence[Recorded]) -> list[Curves]:
    """Those of each node that has samples; the session of the traces has to be open, as they are read once more."""
    found = []
    for trace in traces:
        points, every = _read_points(trace)
        if points:
            name = str(trace.node.header.get("run") or Path(trace.node.folder).name)
            found.append(Curves(label(name), label(trace.node.node), points, every))
    return found


def _read_points(trace: Recorded) -> tuple[list[Point], int]:
    """At most so many points, the last one among them; one of how many samples that is."""
    kept: list[Point] = []
    state, every, at_s, step = State(), 1, 0.0, None
    for number, (at_s, step) in enumerate(_samples(trace, state)):
        if number % every == 0:
            kept.append(Point(at_s, step, tuple(figures_of(state))))
        if len(kept) > _MOST_POINTS:
            kept, every = kept[::2], every * 2
    if kept and kept[-1].at_s < at_s:
        kept.append(Point(at_s, step, tuple(figures_of(state))))
    return kept, every


def _samples(trace: Recorded, state: State) -> Iterator[tuple[float, int | None]]:
    """Time and step of each sample while the state has it; what a clock that was set back repeats is left out."""
    last_s, last_step = -1.0, -1
    for name in sorted(Path(trace.node.path).glob(f"*{SUFFIX}")):
        segment = SegmentReader(str(name))
        try:
            for item in sorted(segment.read([], final=True), key=_wall_ns):
                state.take(item, segment.columns)
                if not isinstance(item, Sample):
                    continue
                at_s = round(trace.seconds(item.wall_ns), 3)
                step = state.step if state.step is not None else -1
                if step != last_step - 1:  # one less than the last is another rank's
                    last_step = step
                if at_s > last_s:
                    last_s = at_s
                    yield at_s, last_step if last_step >= 0 else None
        except OSError:
            continue  # it is a gap of the verdict


def _wall_ns(item: Sample | RecordEvent) -> int:
    return item.wall_ns if isinstance(item, Sample) else time_of(item)
