"""The nouns of curves: what a recording measured over time, one number for each name with its labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Measure:
    """Something that is measured; named as Prometheus asks for, with the unit at the end."""

    name: str
    """Without the prefix of the program; of a counter without `_total`."""
    says: str
    """What it is, in English: the HELP line."""
    labels: tuple[str, ...] = ()
    counts: bool = False
    """Only ever rises: a counter."""
    worst_is_least: bool = False
    """Of several values the lowest is the one to look at: time that is left."""


class Figure(NamedTuple):
    """One measured number."""

    measure: Measure
    labels: tuple[str, ...]
    """Values of the measure's labels."""
    value: float

    @property
    def tag(self) -> str:
        """Its name where there are no labels: TensorBoard and Weights & Biases group by what is before the slash.

        >>> Figure(Measure("limit_bytes", "", ("limit", "level")), ("cgroup", "/a b/c"), 1.0).tag
        'limit_bytes/cgroup_a_b_c'
        >>> Figure(Measure("step", ""), (), 1.0).tag
        'step'
        """
        labels = re.sub(r"[^\w.-]+", "_", " ".join(self.labels)).strip("_")
        return f"{self.measure.name}/{labels}" if labels else self.measure.name


class Point(NamedTuple):
    """Everything that was measured at one time."""

    at_s: float
    """Unix seconds."""
    step: int | None
    """The step that the run was in; None before the first one that was marked."""
    figures: Sequence[Figure]


@dataclass(frozen=True, slots=True)
class Curves:
    """One recorder's points in order of time."""

    run: str
    node: str
    points: Sequence[Point]
    every: int = 1
    """One of so many samples was kept."""

    @property
    def has_steps(self) -> bool:
        """Whether the run went through more than one step."""
        return len({point.step for point in self.points} - {None}) > 1

    def by_step(self) -> Iterator[tuple[int, float, Mapping[str, float]]]:
        """(number, Unix seconds, tag -> the worst value in it) of each step; of each second where no steps are known.

        What was before the first step is left out where steps are known. Seconds count from the first point.
        """
        has_steps = self.has_steps
        begin_s = self.points[0].at_s if self.points else 0.0
        points = [point for point in self.points if point.step is not None or not has_steps]
        for number, group in groupby(points, lambda p: int(p.step or 0) if has_steps else int(p.at_s - begin_s)):
            inside = list(group)
            worst: dict[str, float] = {}
            for figure in (figure for point in inside for figure in point.figures):
                choose = min if figure.measure.worst_is_least else max
                worst[figure.tag] = choose(worst.get(figure.tag, figure.value), figure.value)
            yield number, inside[-1].at_s, worst
