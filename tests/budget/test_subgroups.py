"""The sub-groups of ZeRO-3, and what `ratio` makes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlhfdoctor.budget.plan import Model
from rlhfdoctor.budget.shapes import Shape, find_shape
from rlhfdoctor.budget.subgroups import elements_on_gpu
from rlhfdoctor.core.estimate import estimate

SMALL = Shape(
    name="small",
    layers=6,
    hidden=256,
    heads=4,
    kv_heads=2,
    head_dim=64,
    intermediate=768,
    vocabulary=3000,
    tied=False,
    attention_bias=True,
)
CUT = {
    1_000_000: [1161216, 1179648, 1179648, 1179648, 1554432, 6400],
    500_000: [768000, 589824, 589824, 524288, 655360, 589824, 589824, 524288, 655360, 768000, 6400],
}
"""Elements of each sub-group of the small one, by sub_group_size: fp16_partitioned_groups_flat_numel of DeepSpeed 0.19.8 run here on one rank."""


def model(shape: Shape, version: str | None, ratio: float, *, sub_group: int = 10**9, ranks: int = 1) -> Model:
    return Model(
        role="actor",
        shape=shape,
        trained=True,
        ranks=ranks,
        local_ranks=ranks,
        backend="deepspeed",
        version=version,
        stage=3,
        offload_optimizer=True,
        ratio=ratio,
        sub_group=sub_group,
    )


@pytest.mark.parametrize("size", CUT)
def test_as_deepspeed_cuts_them(size: int) -> None:
    """Whole sub-groups: from 0.18.0 the first int((1 - ratio) n) go to the GPU, before all but the first int(ratio n)."""
    cut = CUT[size]
    for tenths in range(11):
        ratio = tenths / 10
        assert elements_on_gpu(model(SMALL, "0.18.0", ratio, sub_group=size)) == sum(cut[: int((1 - ratio) * len(cut))])
        assert elements_on_gpu(model(SMALL, "0.17.6", ratio, sub_group=size)) == sum(cut[int(ratio * len(cut)) :])
    assert elements_on_gpu(model(SMALL, "0.12.2", 0.5, sub_group=size)) == 0, "no such setting yet"


def test_the_published_ratio_moves_next_to_nothing() -> None:
    """0.9 for Qwen2.5-72B on 8 ranks, the second seed's cure: ten sub-groups, of which it takes that of norms and biases, or none."""
    shape = find_shape("Qwen/Qwen2.5-72B-Instruct")
    assert shape is not None
    assert elements_on_gpu(model(shape, "0.15.0", 0.9, ranks=8)) < 1e6
    assert elements_on_gpu(model(shape, "0.19.5", 0.9, ranks=8)) == 0
    assert elements_on_gpu(model(shape, "0.15.0", 0.8, ranks=8)) == pytest.approx(1e9, rel=0.05)


def test_states_move_from_the_host_to_the_gpu(tmp_path: Path) -> None:
    """Five of ten sub-groups, a little over 1e8 each; of each parameter that moves 16 bytes leave the host (master, moments, fp32 gradient) and lie on the GPU."""
    sizes = {}
    for ratio in (1.0, 0.5):
        offload = {"device": "cpu", "pin_memory": False, "ratio": ratio}
        (tmp_path / "ds.json").write_text(
            json.dumps({"zero_optimization": {"stage": 3, "offload_optimizer": offload, "sub_group_size": 1e8}})
        )
        (tmp_path / "launch.sh").write_text(
            "accelerate launch --num_processes 8 -m trl.scripts.grpo --model_name_or_path Qwen/Qwen2.5-7B --deepspeed ds.json --bf16 true\n"
        )
        found = estimate([str(tmp_path)], framework="trl==0.20.0")
        sizes[ratio] = found.of("host", "rollout", "actor"), found.of("gpu", "rollout", "actor")
    (host, gpu), (less, more) = sizes[1.0], sizes[0.5]
    assert (host - less) / 8 == more - gpu == pytest.approx(16 * 5 * 1.05e8, rel=0.01)
