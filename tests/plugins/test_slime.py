"""slime by its folder alone: recognised though its flags look like OpenRLHF's, its processes and phases named."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.estimate import estimate
from rlhfdoctor.core.session import Session
from rlhfdoctor.errors import UsageError
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.roles import find_phase, find_role
from rlhfdoctor.patch.plan import Configuration, _usable
from rlhfdoctor.settings.spell import spell

SCRIPT = """#!/bin/bash
CKPT_ARGS=(
   --hf-checkpoint /models/Qwen3-4B
   --ref-load /models/Qwen3-4B_torch_dist
   --save /ckpts/qwen
   --save-interval 20
)
ROLLOUT_ARGS=(
   --num-rollout 500
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
)
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
   --optimizer-cpu-offload
)
SGLANG_ARGS=(
   --rollout-num-gpus-per-engine 2
   --sglang-mem-fraction-static 0.7
)
ray job submit --address=http://127.0.0.1:8265 -- python3 train.py \\
   --actor-num-nodes 1 --actor-num-gpus-per-node 8 --colocate \\
   ${CKPT_ARGS[@]} ${ROLLOUT_ARGS[@]} ${PERF_ARGS[@]} ${SGLANG_ARGS[@]}
"""

OPENRLHF = """python3 -m openrlhf.cli.train_ppo_ray --pretrain meta/Llama-3-8B --rollout_batch_size 1024 \\
  --n_samples_per_prompt 8 --actor_num_nodes 1 --actor_num_gpus_per_node 8 --zero_stage 3 --adam_offload
"""

LOG = """slime==0.3.1
(RolloutManager pid=4410) Rollout generation:  31%|###       | 80/256 [02:10<04:46,  1.63s/it]
(MegatronTrainRayActor pid=5120) [2026-02-03 11:20:15] data.py:193 - rollout 3: {'rollout/raw_reward': 0.4}
(MegatronTrainRayActor pid=5120) [2026-02-03 11:22:40] timer.py:24 - Timer ref_log_probs start
(MegatronTrainRayActor pid=5120) [2026-02-03 11:23:58] timer.py:24 - Timer actor_train start
(MegatronTrainRayActor pid=5120) [2026-02-03 11:25:02] timer.py:24 - Timer save_model start
(MegatronTrainRayActor pid=5120) [2026-02-03 11:25:31] timer.py:24 - Timer update_weights start
(MegatronTrainRayActor pid=5120) [Rank 0] Memory-Usage before wake_up model: {'gpu': '0', 'allocated_GB': 44.5, 'host_used_GB': 604.5}
"""


def case_of(folder: Path, script: str = "", log: str = "") -> Case:
    """The case of a run's files."""
    (folder / "run.sh").write_text(script)
    (folder / "driver.log").write_text(log)
    with Session([str(folder)]) as session:
        return session.case


def test_script_is_not_openrlhf(tmp_path: Path) -> None:
    """Flags that OpenRLHF has, too, are outvoted by those that it has not."""
    case = case_of(tmp_path, SCRIPT)
    assert case.framework is not None and case.framework.name == "slime"
    assert {
        s.framework for s in case.settings if s.name in ("rollout.batch_size", "colocate_all", "offload_optimizer")
    } == {"slime"}
    assert case.value("offload_optimizer") is True


def test_few_flags_of_its_own_suffice(tmp_path: Path) -> None:
    """Flags that OpenRLHF has, too, count for both, so that one of its own decides."""
    case = case_of(
        tmp_path, "python3 train.py --rollout-batch-size 32 --n-samples-per-prompt 8 --advantage-estimator grpo\n"
    )
    assert case.framework is not None and case.framework.name == "slime"


def test_openrlhf_is_not_slime(tmp_path: Path) -> None:
    """The other way round as well."""
    framework = case_of(tmp_path, OPENRLHF).framework
    assert framework is not None and framework.name == "openrlhf"


def test_log(tmp_path: Path) -> None:
    """Package, phases and memory are read from the log."""
    case = case_of(tmp_path, log=LOG)
    assert case.framework is not None and (case.framework.name, case.framework.version) == ("slime", "0.3.1")
    kinds = [str(e.kind) for e in case.events if e.kind.scope in ("phase", "host", "gpu")]
    assert kinds == [
        "phase.rollout",
        "phase.step",
        "phase.score",
        "phase.update",
        "phase.checkpoint",
        "phase.weight_sync",
        "host.used",
        "gpu.used",
    ]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("MegatronTrainRayActor", "actor"),
        ("ray::MegatronTr", "actor"),
        ("ray::MegatronTrainRayActor.train", "actor"),
        ("TeacherLogpRayActor", "reference"),
        ("SGLangEngine", "rollout engine"),
        ("ray::RolloutManager.generate", "driver"),
    ],
)
def test_roles(name: str, role: str) -> None:
    """Ray's classes are roles, also as the kernel cuts their names."""
    assert find_role(name) == role


def test_functions() -> None:
    """Names of its functions are phases."""
    assert [find_phase(n) for n in ("compute_log_prob", "train_one_step", "onload_kv")] == [
        "score",
        "update",
        "weight_sync",
    ]


def test_settings_by_release() -> None:
    """A flag is proposed only for releases that have it."""
    assert spell("train.disable_weights_backup", "slime", "0.3.0") is None
    own = spell("train.disable_weights_backup", "slime", "0.2.2")
    assert own is not None and own.spelled == "--disable-weights-backuper"


def test_no_deepspeed_keys(tmp_path: Path) -> None:
    """Nobody is sent to DeepSpeed's configuration, which it does not have."""
    case = case_of(tmp_path, SCRIPT)
    assert not _usable("deepspeed", Configuration({}, case.settings, case.framework, {}))


def test_estimate_refuses_with_a_reason(tmp_path: Path) -> None:
    """Megatron's memory is not modelled yet, and the estimate says so."""
    (tmp_path / "run.sh").write_text(SCRIPT)
    with pytest.raises(UsageError, match="slime trains with Megatron, whose memory is not modelled"):
        estimate([str(tmp_path)])
