"""Which progress bars without a description are the training's.

The trainer of Hugging Face draws such a bar of its steps, and a shorter one of each evaluation between them
(transformers/trainer_callback.py, ProgressCallback, v4.46 to v5.0); any loop of a script may draw one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlhfdoctor.types import Event, Value
from rlhfdoctor.units import is_whole
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.names import Field, Kind

_STILL = re.compile(r"\| {0,12}0/\d|\[\d\d:\d\d<\?")
_NEAR_LINES = 2
_LEAST_RATIO = 0.2
"""Bars of stages one after the other are before metrics about as often; one of an evaluation is by chance."""
_TRAINER_CODE = re.compile(r"transformers/trainer|\btrl[./]trainer|'train_runtime'")
_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(s/it|it/s)")
_FASTEST_STEP_S = 0.05
"""A loop whose items are faster prepares data; a step of training takes longer."""
_SIGNS: tuple[Kind, ...] = (EVENT.python.frame, EVENT.framework.module, EVENT.phase.finished)


def is_still(event: Event) -> bool:
    """Whether it is a bar that has not moved, which shows that steps are readable and that none is over.

    A run that goes on from a checkpoint begins its bar at the step of the checkpoint, without a time left.
    """
    return "%|" in event.text and _STILL.search(event.text) is not None


def name_training_bars(events: Sequence[Event]) -> list[Event]:
    """The events with the training's bars as `phase.step`; other bars without a description stay what they are.

    A bar is the training's if its number of items is the number of steps that the trainer announced, or that of the
    bar which stood before a line of metrics. Where neither is in the log (metrics are buffered when a process is
    killed) but the trainer of Hugging Face is, the first bar is, because it draws its own before one of an evaluation.
    """
    totals = _planned(events) or _before_metrics(events) or _first(events)
    return [_as_step(event) if event.fields.get(FIELD.total_count) in totals else event for event in events]


def _as_step(event: Event) -> Event:
    if event.kind != EVENT.progress.bar:
        return event
    fields = {name: event.fields[name] for name in (FIELD.step, FIELD.total_count)}
    return replace(event, kind=EVENT.phase.step, fields=fields)


def _planned(events: Sequence[Event]) -> set[Value]:
    """The numbers of steps that a trainer announced."""
    found = (str(e.fields.get(FIELD.total_count)).replace(",", "") for e in events if e.kind == EVENT.progress.planned)
    return {int(count) for count in found if is_whole(count)}


def _before_metrics(events: Sequence[Event]) -> set[Value]:
    """Numbers of items of the bars that stood right before lines of metrics, without those that did so by chance."""
    last: dict[str, Event] = {}
    counts: Counter[Value] = Counter()
    for event in events:
        file, line = event.origin.file, event.origin.line or 0
        if event.kind == EVENT.progress.bar:
            last[file] = event
        elif _is_metrics(event) and file in last and line - (last[file].origin.line or 0) <= _NEAR_LINES:
            counts[last[file].fields.get(FIELD.total_count)] += 1
    most = max(counts.values(), default=0)
    return {total for total, count in counts.items() if count >= most * _LEAST_RATIO}


def _first(events: Sequence[Event]) -> set[Value]:
    """The number of items of the first bar, where the trainer of Hugging Face runs."""
    bar = next((e for e in events if e.kind == EVENT.progress.bar), None)
    runs = bar is not None and any(
        _is_metrics(e) or (e.kind in _SIGNS and _TRAINER_CODE.search(e.text) is not None) for e in events
    )
    return {bar.fields.get(FIELD.total_count)} if bar is not None and runs else set()


def _is_metrics(event: Event) -> bool:
    return event.kind == EVENT.phase.step and FIELD.step not in event.fields


class LiveBars:
    """Which bars are the training's while a run goes on, so without the lines that are still to come.

    The first bar of a file whose items take long enough is, until a line of metrics stands behind another one.
    """

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._training: dict[str, Value] = {}
        self._last: dict[str, Value] = {}

    def read(self, kind: Kind, fields: Mapping[Field, Value], file: str) -> Kind:
        """The kind of a line: `phase.step` for a bar of the training, otherwise the kind that it has."""
        if kind == EVENT.phase.step and FIELD.step not in fields and file in self._last:
            self._training[file] = self._last.pop(file)
        if kind != EVENT.progress.bar:
            return kind
        total = self._last[file] = fields.get(FIELD.total_count)
        if _seconds(fields.get(FIELD.rate_text)) >= _FASTEST_STEP_S:
            self._training.setdefault(file, total)
        return EVENT.phase.step if fields.get(FIELD.step) and self._training.get(file) == total else kind


def _seconds(rate: Value) -> float:
    """Seconds an item, by tqdm's rate; 0 where the bar has not moved.

    >>> _seconds("1.15s/it"), _seconds("20.0it/s"), _seconds(None)
    (1.15, 0.05, 0.0)
    """
    found = _RATE.match(str(rate))
    if found is None or not float(found[1]):
        return 0.0
    return float(found[1]) if found[2] == "s/it" else 1 / float(found[1])
