"""The labelled incidents that the exam uses: the shared ones where they are at hand, and this project's samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
SHARED = ROOT.parent / "shared" / "incidents" / "cases"
OWN = ROOT.parent / "own_rounds"
OPENED = ("1", "2", "3", "4")
OWN_OPENED = ("r1", "r2", "r3", "r4", "r5", "r6", "r7", "r8")
"""Rounds (ROUNDS.md), given and collected, that were scored unseen and have been read since."""


@dataclass(frozen=True)
class Case:
    """An incident and what is true about it; the doctor sees `files` only."""

    name: str
    source: str
    """shared, or samples."""
    kind: str
    """decidable, undecidable, quiet, grey."""
    killer: str
    accept: tuple[str, ...]
    files: tuple[Path, ...]
    label: Mapping[str, Any]


def shared_cases(folder: Path = SHARED, source: str = "shared") -> Iterator[Case]:
    """The incidents from public reports, if this checkout lies beside them."""
    for path in sorted(folder.glob("*/label.yaml")):
        label = yaml.safe_load(path.read_text())
        files = tuple(sorted(p for p in path.parent.rglob("*") if p.is_file() and p != path))
        yield Case(path.parent.name, source, label["kind"], label["killer"], tuple(label["accept"]), files, label)


def sample_cases() -> Iterator[Case]:
    """What this project recorded or wrote itself."""
    for path in sorted((ROOT / "samples").glob("*/truth.yaml")):
        truth = yaml.safe_load(path.read_text())
        kind = {"cause": "decidable", "undecided": "undecidable", "healthy": "quiet"}[truth["verdict"]]
        yield Case(
            path.parent.name,
            "samples",
            kind,
            truth.get("killer") or "none",
            tuple(truth.get("accept", ())),
            (path.parent / "run",),
            truth,
        )


def round_cases() -> Iterator[Case]:
    """Those of the rounds that have been read."""
    for number in OPENED:
        yield from shared_cases(SHARED.parent / "rounds" / number, f"round {number}")
    for name in OWN_OPENED:
        yield from shared_cases(OWN / name, f"own round {name[1:]}")


def all_cases() -> list[Case]:
    """All of them."""
    return [*shared_cases(), *round_cases(), *sample_cases()]
