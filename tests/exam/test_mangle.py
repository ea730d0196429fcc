"""A sample of the mangler: `make mangle` runs all of it."""

from __future__ import annotations

import zlib

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
    """Some samples or cases of rules, two operations each: never healthy for a run that died, never another cause."""
    marks = {folder: zlib.crc32(folder.name.encode()) for folder in folders()}
    names = list(OPERATIONS)
    outcomes = [
        one
        for folder, mark in marks.items()
        if mark % 12 == 0
        for one in judge(folder, [names[mark // 12 % len(names)], names[mark // 300 % len(names)]])
    ]
    assert ([one for one in outcomes if one.wrong], len(outcomes) >= 10) == ([], True)


@pytest.mark.parametrize(
    ("case", "operation"),
    [
        ("samples/ray-cgroup-kill", "cut at the edge"),
        ("gpu-fragmentation/fires/pieces", "wrapped within words"),
        ("gpu-checkpoint-spike/fires/save", "wrapped at blanks"),
        ("gpu-checkpoint-spike/fires/save", "quoted, wrapped"),
        ("gpu-leak/fires/steady", "names cut"),
        ("gpu-leak/fires/steady", "wrapped within words"),
        ("gpu-leak/silent/longer", "wrapped within words"),
        ("other-version-regression/fires/samples", "no line ends"),
        ("comm-long-generation/silent/fast-engine", "cut at the edge"),
        ("gpu-logits-upcast/silent/small-request", "cut at the edge"),
        ("host-pin-limit/silent/allocator", "tails cut"),
        ("host-pin-limit/silent/allocator", "middles cut"),
        ("host-reward-workers/silent/ranks-in-table", "numbered"),
        ("other-disk-full/silent/shared-memory", "middles cut"),
    ],
)
def test_figures_that_are_gone_are_no_other_cause(case: str, operation: str) -> None:
    """Verdicts that were another cause once, since what spoke against it was cut away."""
    folder = next(folder for folder in folders() if folder.name == case)
    assert [one for one in judge(folder, [operation]) if one.wrong] == []


@pytest.mark.parametrize("name", [*OPERATIONS])
def test_an_operation_is_the_same_for_the_same_seed(name: str) -> None:
    """The mangler is deterministic."""
    assert mangled(_LONG, name, "7") == mangled(_LONG, name, "7")
