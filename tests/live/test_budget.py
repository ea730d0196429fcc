"""One run of the bench on real Ray and DeepSpeed, predicted before it is measured."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("ray")
pytest.importorskip("deepspeed")

from tests.bench.budget import grid, predict, run
from trainer.lab import place


def test_estimate_of_a_real_run() -> None:
    """ZeRO-2 with the optimizer in host memory, two ranks: every role's peak within 15 % of the kernel's high-water mark."""
    place.warm()
    name, words, zero = next(row for row in grid() if row[0] == "29M bfloat16 zero-2 opt x2")
    guess = predict({"name": name, "words": words, "zero": zero})
    found: dict[str, Any] = run(words, zero)
    assert "error" not in found, found
    for role in ("actor", "critic", "reference"):
        peaks = [row["peak"] for row in found["processes"] if row["role"] == role]
        assert len(peaks) == 2
        said = max(guess.of("host", phase, role) for phase in guess.phases) / 2
        assert said == pytest.approx(max(peaks), rel=0.15), (role, said, peaks)
