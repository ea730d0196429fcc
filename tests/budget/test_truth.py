"""The estimate against recorded runs of the bundled trainer (tests/bench/budget.jsonl), predicted anew from their configurations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.bench.budget import RESULTS, predict

ROWS: list[dict[str, Any]] = [json.loads(line) for line in RESULTS.read_text().splitlines()]


@pytest.fixture(scope="module")
def errors() -> list[tuple[str, str, float]]:
    """(run, role, error of the peak as a share of what was measured)."""
    found = []
    for row in ROWS:
        guess = predict(row)
        for role in ("actor", "critic", "reference"):
            peaks = [p["peak"] for p in row["processes"] if p["role"] == role]
            peak = max(guess.of("host", phase, role) for phase in guess.phases) / len(peaks)
            found.append((row["name"], role, (peak - max(peaks)) / max(peaks)))
    return found


def test_forty_configurations() -> None:
    """Stages, offloads, both data types, two sizes, one and two ranks, savings, long sequences."""
    assert len({row["name"] for row in ROWS}) >= 40
    assert {row["zero"]["stage"] for row in ROWS} == {0, 1, 2, 3}


def test_error_of_the_peak(errors: list[tuple[str, str, float]]) -> None:
    """Half of the peaks are within 5 %, nine of ten within 10 %, and at most one in 50 is under by more than 5 %."""
    sizes = sorted(abs(error) for _, _, error in errors)
    under = [row for row in errors if row[2] < -0.05]
    assert sizes[len(sizes) // 2] <= 0.05
    assert sizes[int(len(sizes) * 0.9)] <= 0.10
    assert len(under) <= 0.02 * len(errors), under


def test_page_locked_bytes_are_exact() -> None:
    """Where buffers are page-locked, the estimate's rounded sizes are what the kernel showed as shared memory."""
    seen = 0
    for row in ROWS:
        if "pinned" not in row["name"]:
            continue
        guess = predict(row)
        for role in ("actor", "critic", "reference"):
            shown = max(p["locked"] for p in row["processes"] if p["role"] == role)
            told = sum(n.bytes for n in guess.needs if n.role == role and n.pinned and not n.moment)
            assert told == pytest.approx(shown, rel=0.02, abs=1 << 20), (row["name"], role)
            seen += shown > 0
    assert seen >= 6
