"""What a pass takes of a GPU: activations and logits, by the sources of the frameworks. Nothing here was measured on a GPU."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.core.estimate import Machine, estimate
from rlhfdoctor.report.estimate_verdict import sentence, verdict

GIB = 1 << 30
TOKENS, WORDS, HIDDEN = 4096, 152_064, 3584
"""Of a sequence below, of Qwen2.5-7B's vocabulary, of its hidden states."""
VERL = (
    "python -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B data.max_prompt_length=2048 data.max_response_length=2048 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1 actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu=1 "
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu=1 actor_rollout_ref.actor.use_kl_loss=True algorithm.adv_estimator=grpo trainer.n_gpus_per_node=8 actor_rollout_ref.model.use_remove_padding=True {}"
)


def predict(folder: Path, command: str, framework: str) -> Estimate:
    (folder / "launch.sh").write_text(command + "\n")
    return estimate([str(folder)], framework=framework)


def logits(found: Estimate, role: str, phase: str) -> float:
    """Bytes a token and word of the logits of one pass of one sequence."""
    sizes = [n.bytes for n in found.needs if n.role == role and phase in n.phases and str(n.what).startswith("logits")]
    return sum(sizes) / (TOKENS * WORDS)


@pytest.mark.parametrize(
    ("version", "setting", "scored", "reference", "trained"),
    [
        ("0.3.0.post1", "", 6, 6, 8),  # an entropy in every pass, and its gradients by default
        ("0.6.1", "", 6, 2, 4),  # one while the actor is scored
        ("0.6.1", "actor_rollout_ref.actor.entropy_coeff=0.001", 6, 2, 8),
        ("0.6.1", "actor_rollout_ref.actor.entropy_from_logits_with_chunking=True", 2, 2, 4),
        ("0.8.0", "actor_rollout_ref.actor.calculate_entropy=True", 6, 2, 8),
        ("0.9.0", "", 8, 4, 4),  # divided by the temperature into new ones
        (
            "0.6.1",
            "actor_rollout_ref.model.use_remove_padding=False",
            7,
            3,
            4,
        ),  # half of a sequence is the response, whose logits are copied
    ],
)
def test_logits_of_verl(
    version: str, setting: str, scored: float, reference: float, trained: float, tmp_path: Path
) -> None:
    """bf16 logits, an entropy of 4 bytes where one is computed, gradients in place where none is (dp_actor.py at these tags)."""
    found = predict(tmp_path, VERL.format(setting), f"verl=={version}")
    assert [logits(found, "actor", "score"), logits(found, "reference", "score"), logits(found, "actor", "update")] == [
        scored,
        reference,
        trained,
    ]


@pytest.mark.parametrize(("padding_free", "scored"), [("true", 2), ("false", 3)])
def test_logits_of_easyr1(padding_free: str, scored: float, tmp_path: Path) -> None:
    """flash-attn's cross entropy takes the bf16 logits as they are; without padding_free those of the responses are copied."""
    text = EASYR1.format(prompt=2048, answer=2048, batch=512, offload="true").replace(
        "padding_free: true", f"padding_free: {padding_free}"
    )
    (tmp_path / "config.yaml").write_text(re.sub(r"experience: 16", "experience: 1", text))
    assert logits(estimate([str(tmp_path)], framework="easyr1==0.3.0"), "actor", "score") == scored


def test_one_layer_and_the_logits_take_turns(tmp_path: Path) -> None:
    """Forward, the head computes when the last layer's own activations are gone; the larger of the two counts."""
    found = predict(
        tmp_path, VERL.format("actor_rollout_ref.actor.entropy_from_logits_with_chunking=True"), "verl==0.6.1"
    )
    scoring = {
        (n.transient, str(n.what)): n.bytes
        for n in found.needs
        if n.role == "actor" and n.phases == ("score",) and n.at_longest
    }
    layer, head = (sum(size for (moment, _), size in scoring.items() if moment == name) for name in ("forward", "head"))
    assert layer == 34 * TOKENS * HIDDEN < head == 2 * TOKENS * (WORDS + 2 * HIDDEN)
    surely = found.of("gpu", "score", "actor", surely=True)
    assert found.of("gpu", "score", "actor") - surely == head


EASYR1 = """\
data:
  max_prompt_length: {prompt}
  max_response_length: {answer}
  rollout_batch_size: {batch}
algorithm:
  adv_estimator: grpo
  disable_kl: false
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 4
    micro_batch_size_per_device_for_experience: 16
    padding_free: true
    model: {{model_path: Qwen/Qwen2.5-7B-Instruct, enable_gradient_checkpointing: true}}
    fsdp: {{enable_full_shard: true, enable_cpu_offload: false}}
    offload: {{offload_params: {offload}, offload_optimizer: {offload}}}
  rollout: {{n: 5, gpu_memory_utilization: 0.6, tensor_parallel_size: 2}}
  ref:
    fsdp: {{enable_full_shard: true, enable_cpu_offload: true}}
trainer: {{n_gpus_per_node: 8, nnodes: 1, save_freq: 5}}
"""
"""What EasyR1's own examples/config.yaml sets at 0.3.0, as far as it takes memory."""


def test_the_fifth_seed_by_the_settings_of_easyr1s_own_example(tmp_path: Path) -> None:
    """Prompts of 22000 tokens, offload on: the pass that died may not fit. With the cures that were given the run fits, also at its longest."""
    gpu = Machine(gpu_bytes=80 * GIB)
    (tmp_path / "config.yaml").write_text(EASYR1.format(prompt=22000, answer=4096, batch=512, offload="true"))
    dead = estimate([str(tmp_path)], framework="easyr1==0.3.0", machine=gpu)
    assert str(sentence(dead)).startswith("may not fit: log-probs takes"), sentence(dead)
    for offload in ("false", "true"):
        (tmp_path / "config.yaml").write_text(EASYR1.format(prompt=8192, answer=2048, batch=256, offload=offload))
        cured = estimate([str(tmp_path)], framework="easyr1==0.3.0", machine=gpu)
        assert verdict(cured) == "fits", sentence(cured)


@pytest.mark.parametrize(
    ("release", "packages", "late"),
    [
        ("0.3.0.post1", "vllm==0.8.2", False),
        ("0.4.1", "vllm==0.8.2", False),
        ("0.4.1", "vllm==0.8.5", True),
        ("0.9.0", "vllm==0.11.0", True),
    ],
)
def test_the_kv_cache_comes_when_the_weights_are_in(release: str, packages: str, late: bool, tmp_path: Path) -> None:
    """verl since 0.4 wakes the weights, fills them and then wakes the KV cache, where vLLM knows tags (0.8.3): the engine's share is not there while they are synchronised."""
    (tmp_path / "pip-freeze.txt").write_text(packages + "\n")
    (tmp_path / "launch.sh").write_text(VERL.format("actor_rollout_ref.rollout.gpu_memory_utilization=0.6") + "\n")
    found = estimate([str(tmp_path)], framework=f"verl=={release}", machine=Machine(gpu_bytes=80 * GIB))
    assert found.of("gpu", "rollout", "rollout engine") == int(0.6 * 80 * GIB)
    assert (found.of("gpu", "weight_sync", "rollout engine") < 16 * GIB) == late
