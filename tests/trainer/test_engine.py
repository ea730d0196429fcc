"""What a rank does before its first engine."""

from __future__ import annotations

import pytest

pytest.importorskip("deepspeed")
pytest.importorskip("cpuinfo")

import cpuinfo

from trainer.engine import ask_for_the_cpu_once


def test_the_cpu_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's questions after the first one start no process."""
    real, asked = cpuinfo.get_cpu_info, []

    def ask() -> dict[str, object]:
        asked.append(1)
        return dict(real())

    monkeypatch.setattr(cpuinfo, "get_cpu_info", ask)
    for _ in range(2):
        ask_for_the_cpu_once()
    from deepspeed.ops.op_builder import CPUAdamBuilder

    builder = CPUAdamBuilder()
    assert (builder.cpu_arch(), builder.simd_width()) == (builder.cpu_arch(), builder.simd_width())
    assert asked == [1]
