"""A sample of the mangler: `make mangle` runs all of it."""

from __future__ import annotations

import random

import pytest

from rlhfdoctor.logs.events import PATTERNS
from tests.build import make_scanner
from tests.exam.mangle import LEAST_SURVIVAL, folders, judge, lost
from tests.exam.mangling import OPERATIONS, mangled

_LONG = "Out of memory: Killed process 4711 (python3) total-vm:9008816kB, anon-rss:1169716kB, file-rss:256kB, shmem-rss:0kB\n" * 3


def test_events_survive() -> None:
    """Of every fifth pattern, whatever was done to its line, an event comes out."""
    chosen = list(enumerate(PATTERNS))[::5]
    gone = list(lost(chosen, OPERATIONS, make_scanner()))
    assert len(gone) <= (1 - LEAST_SURVIVAL) * len(chosen) * len(OPERATIONS), gone


def test_verdicts_only_weaken() -> None:
    """Samples or cases of rules, some operations each: never healthy for a run that died, never another cause."""
    rng = random.Random(19)
    chosen = rng.sample(folders(), 12)
    outcomes = [one for folder in chosen for one in judge(folder, rng.sample([*OPERATIONS], 2))]
    assert ([one for one in outcomes if one.wrong], len(outcomes)) == ([], 24)


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_an_operation_is_the_same_for_the_same_seed(name: str) -> None:
    """The mangler is deterministic."""
    assert mangled(_LONG, name, "7") == mangled(_LONG, name, "7")
