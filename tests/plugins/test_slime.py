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
from rlhfdoctor.types import Framework
from tests.patch.build import patched, plan, value_of

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


SLIME = Framework(name="slime", version="0.3.1")
TIMED = SCRIPT.replace(
    "   --use-dynamic-batch-size\n", "   --use-dynamic-batch-size\n   --distributed-timeout-minutes 10\n"
)


def test_unit_of_the_time_out() -> None:
    """It is written in minutes, and is in seconds as that of any framework; a patch writes minutes again."""
    assert value_of("run.sh", TIMED, "collective_timeout", SLIME) == 600
    row = spell("collective_timeout", "slime", "0.3.1")
    assert row is not None and (row.default, row.factor) == (600, 60)
    text = patched("run.sh", TIMED, "collective_timeout", 7200, framework=SLIME)
    assert "--distributed-timeout-minutes 120\n" in text
    assert value_of("run.sh", text, "collective_timeout", SLIME) == 7200
    proposed = plan("run.sh", TIMED, "collective_timeout", 7200, framework=SLIME)
    assert proposed is not None and (proposed.before, proposed.after) == ("10", "120")


def test_unit_is_rounded_up() -> None:
    """Minutes are whole: a limit is never below what was wanted."""
    assert "--distributed-timeout-minutes 84\n" in patched("run.sh", TIMED, "collective_timeout", 5000, framework=SLIME)
    assert plan("run.sh", TIMED, "collective_timeout", 600, framework=SLIME) is None


def test_unit_of_an_added_setting() -> None:
    """A flag that was not there is added in its unit; up to 0.1.0 it is in the code, and only shown."""
    text = patched("run.sh", SCRIPT, "collective_timeout", 7200, add=True, framework=SLIME)
    assert "--distributed-timeout-minutes 120" in text
    early = plan(
        "run.sh", SCRIPT, "collective_timeout", 7200, add=True, framework=Framework(name="slime", version="0.0.1")
    )
    assert early is not None and (early.diff, early.after, early.safety) == ("", "120", "show")


def test_what_is_not_proposed() -> None:
    """Megatron refuses the optimizer's offload alone, so it is never added; a path is no switch."""
    alone = SCRIPT.replace("   --optimizer-cpu-offload\n", "")
    assert plan("run.sh", alone, "offload_optimizer", True, add=True, framework=SLIME) is None
    ready = alone.replace("   --use-dynamic-batch-size\n", "   --use-precision-aware-optimizer\n")
    assert "--optimizer-cpu-offload" in patched("run.sh", ready, "offload_optimizer", True, add=True, framework=SLIME)
    assert "--optimizer-cpu-offload" not in patched("run.sh", SCRIPT, "offload_optimizer", False, framework=SLIME)
    assert plan("run.sh", SCRIPT + "#", "checkpoint.save_hf", False, framework=SLIME) is None
