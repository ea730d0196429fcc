"""What a patch would have done to the peak: by the budget, corrected by what was measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.patch.effect import parse_value

ROOT = Path(__file__).resolve().parents[2]
Report = Mapping[str, Any]


def patch_of(name: str, setting: str) -> Any:
    incident = analyze([str(ROOT / "samples" / name / "run")])
    return next(p for f in incident.findings for p in f.patches if p.setting == setting)


@pytest.mark.parametrize(
    ("name", "setting", "least", "most"),
    [
        ("lab-save-kill", "checkpoint.in_memory", -400e6, -200e6),
        ("lab-pinned-start", "offload_optimizer.pin_memory", -850e6, -450e6),
        ("openrlhf-72b-start", "offload_optimizer.pin_memory", -350e9, -200e9),
    ],
)
def test_host_bytes(name: str, setting: str, least: float, most: float) -> None:
    """The lab's second runs peaked 109 MiB (another phase) and 461 MiB lower; the 72B run locked 32 + 30 GiB too much a rank."""
    found = patch_of(name, setting)
    assert found.host_bytes is not None
    assert least <= found.host_bytes[0] <= found.host_bytes[1] <= most
    assert "would have been" in str(found.effect) and "corrected by what was measured" in str(found.effect)


def test_gpu_bytes() -> None:
    """Smaller micro batches act on the GPU, and on nothing of the host."""
    found = patch_of("easyr1-long-prompts", "logprob.micro_batch_size")
    assert (found.host_bytes, found.gpu_bytes is not None and found.gpu_bytes < -(50 << 30)) == (None, True)


def test_no_effect_of_what_takes_no_memory() -> None:
    """A patch of a time-out, or one for a model whose size nobody tells, claims no bytes."""
    for name in ("lab-slow-reward", "recorded-leak", "ray-memory-monitor"):
        incident = analyze([str(ROOT / "samples" / name / "run")])
        assert [p.setting for f in incident.findings for p in f.patches if "would have been" in str(p.effect)] == []


def test_values_come_back(doctor: Callable[..., Any]) -> None:
    """What a patch shows is read as the setting's value."""
    assert [parse_value(text) for text in ("true", "null", "0.5", "4", "500g")] == [True, None, 0.5, 4, "500g"]
