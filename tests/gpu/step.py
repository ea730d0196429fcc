"""A step: one fact that the doctor assumes about a GPU machine, and how it is measured.

A figure is a number (most are ratios: measured over asked, or measured over predicted) or a word. What is expected of a
figure is a range, or the word itself. Figures that nothing is expected of are recorded all the same.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeAlias

ROOT = Path(__file__).resolve().parents[2]
Device: TypeAlias = Literal["cuda", "cpu"]
"""cpu: a step is tried with a stand-in for each CUDA call; its figures say nothing of a GPU."""
Figure: TypeAlias = "float | str"
Expected: TypeAlias = "tuple[float, float] | str"
Verdict: TypeAlias = Literal["holds", "differs", "unknown"]


class Unknown(Exception):
    """Why a step cannot be measured here, in one sentence."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where the doctor assumes a fact."""

    file: str
    """Below the repository."""
    text: str
    """What that file says there, word for word."""

    def line(self) -> int | None:
        """The number of the line that has the text; None: it is not there any more."""
        lines = (ROOT / self.file).read_text().splitlines()
        return next((number for number, line in enumerate(lines, 1) if self.text in line), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One fact; it is measured in a process of its own."""

    name: str
    fact: str
    """One sentence, as the doctor assumes it."""
    assumed: Place
    run: Callable[[Device], Mapping[str, Figure]]
    """Raises Unknown where this machine cannot say."""
    expected: Mapping[str, Expected]
    predict: Callable[[Device], Mapping[str, float]] | None = None
    """What the doctor predicts (bytes), stored before anything is measured."""
    environment: Mapping[str, str] = field(default_factory=dict)
    limit_s: int = 60


def verdict(expected: Mapping[str, Expected], measured: Mapping[str, Figure]) -> Verdict:
    """differs: a figure is not as expected; unknown: none is, and one was not measured.

    >>> verdict({"RssShmem": (0.9, 1.1)}, {"RssShmem": 0.0}), verdict({"RssShmem": (0.9, 1.1)}, {})
    ('differs', 'unknown')
    >>> verdict({"cause": "gpu-leak", "ratio": (1, 2)}, {"cause": "gpu-leak", "ratio": 2.0})
    'holds'
    """
    if any(name in measured and not _is_as(wanted, measured[name]) for name, wanted in expected.items()):
        return "differs"
    return "holds" if expected.keys() <= measured.keys() else "unknown"


def _is_as(wanted: Expected, found: Figure) -> bool:
    if isinstance(wanted, str) or isinstance(found, str):
        return wanted == found
    return wanted[0] <= found <= wanted[1]


def about(ratio: float, error: float = 0.1) -> tuple[float, float]:
    """A range around a figure; around 0 it is that much of what was asked for.

    >>> about(1), about(0)
    ((0.9, 1.1), (-0.1, 0.1))
    """
    spread = error * abs(ratio) if ratio else error
    return round(ratio - spread, 6), round(ratio + spread, 6)


@functools.cache
def steps() -> tuple[Step, ...]:
    """All steps, those of `page_locked.py` first."""
    return tuple(_found())


_MODULES = ("page_locked", "card", "passes", "trainings", "out_of_memory", "beside", "frames")


def _found() -> Iterator[Step]:
    package = str(Path(__file__).parent)
    assert set(_MODULES) <= {found.name for found in pkgutil.iter_modules([package])}
    for name in _MODULES:
        yield from import_module(f"tests.gpu.{name}").STEPS
