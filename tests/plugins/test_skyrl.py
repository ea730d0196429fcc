"""SkyRL by its folder alone: recognised, read by release, its processes and phases named, its memory estimated."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.core.estimate import Machine, estimate
from rlhfdoctor.core.session import Session
from rlhfdoctor.errors import UsageError
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.offload import find_offload
from rlhfdoctor.evidence.roles import find_phase, find_role
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.framework import find_framework, find_versions
from rlhfdoctor.settings.spell import spell
from tests.build import make_event, read_log

SCRIPT = """#!/bin/bash
export CKPT=/ckpts/math
uv run --isolated --extra vllm -m skyrl_train.entrypoints.main_base \\
  data.train_data="['/data/math/train.parquet']" \\
  trainer.algorithm.advantage_estimator=grpo \\
  trainer.policy.model.path=Qwen/Qwen2.5-7B-Instruct \\
  trainer.placement.colocate_all=true \\
  trainer.strategy=fsdp2 \\
  trainer.placement.policy_num_gpus_per_node=8 \\
  trainer.placement.ref_num_gpus_per_node=8 \\
  generator.num_inference_engines=4 \\
  generator.inference_engine_tensor_parallel_size=2 \\
  generator.gpu_memory_utilization=0.7 \\
  generator.n_samples_per_prompt=8 \\
  generator.sampling_params.max_generate_length=2048 \\
  trainer.train_batch_size=256 \\
  trainer.micro_train_batch_size_per_gpu=4 \\
  trainer.ckpt_path=$CKPT
"""

LOG = """skyrl-train==0.3.0
(skyrl_entrypoint pid=501) 2026-02-11 10:00:01.100 | INFO     | skyrl_train.entrypoints.main_base:_setup_trainer:250 - data:
(skyrl_entrypoint pid=501)   train_data:
(skyrl_entrypoint pid=501)   - /data/math/train.parquet
(skyrl_entrypoint pid=501) trainer:
(skyrl_entrypoint pid=501)   placement:
(skyrl_entrypoint pid=501)     colocate_all: true
(skyrl_entrypoint pid=501)   strategy: fsdp2
(skyrl_entrypoint pid=501) 2026-02-11 10:02:00.000 | INFO     | skyrl_train.trainer:train:200 - Started: 'generate'
(skyrl_entrypoint pid=501) Training Batches Processed:   1%|1         | 2/140 [05:00<5:00:00, 150.00s/it]
(skyrl_entrypoint pid=501) 2026-02-11 10:07:00.000 | INFO     | skyrl_train.trainer:train:300 - Started: 'policy_train'
(skyrl_entrypoint pid=501) 2026-02-11 10:08:00.000 | INFO     | skyrl_train.trainer:train:320 - Started: 'sync_weights'
(FSDPPolicyWorkerBase pid=601) [rank-0]: Saving optim to /ckpts/math/global_step_2/policy/optim_world_size_8_rank_0.pt
"""


def write(folder: Path, script: str = SCRIPT, log: str = "") -> list[str]:
    """The run's files."""
    (folder / "run.sh").write_text(script)
    if log:
        (folder / "driver.log").write_text(log)
    return [str(folder)]


def read_case(paths: list[str]) -> Case:
    with Session(paths) as session:
        return session.case


def test_script_alone(tmp_path: Path) -> None:
    """Its own command and settings name it, and nothing is taken for another framework's."""
    case = read_case(write(tmp_path))
    assert case.framework is not None and case.framework.name == "skyrl"
    assert {
        s.framework for s in case.settings if s.name in ("colocate_all", "rollout.num_engines", "trainer.strategy")
    } == {"skyrl"}
    assert case.value("rollout.gpu_memory_utilization") == 0.7


def test_settings_alone(tmp_path: Path) -> None:
    """Without the command, the spellings decide, and bound the release."""
    script = SCRIPT.replace("-m skyrl_train.entrypoints.main_base", "main.py")
    framework = read_case(write(tmp_path, script)).framework
    assert framework is not None and (framework.name, framework.version) == ("skyrl", None)
    assert framework.since is not None


def test_log(tmp_path: Path) -> None:
    """Package, printed configuration, steps and phases are read from the log."""
    case = read_case(write(tmp_path, "", LOG))
    assert case.framework is not None
    assert (case.framework.name, case.framework.version, case.framework.package) == ("skyrl", "0.3.0", "skyrl-train")
    assert case.value("colocate_all") is True and case.value("trainer.strategy") == "fsdp2"
    kinds = [str(e.kind) for e in case.events if e.kind.scope == "phase"]
    assert kinds == ["phase.rollout", "phase.step", "phase.update", "phase.weight_sync", "phase.checkpoint"]


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("FSDPPolicyWorkerBase", "actor"),
        ("FSDPCriticWorkerBase", "critic"),
        ("ray::FSDPRefWorkerBase.forward", "reference"),
        ("DeepSpeedRewardWorkerBase", "reward"),
        ("AsyncVLLMInferenceEngine", "rollout engine"),
        ("VLLMServerActor", "rollout engine"),
        ("skyrl_entrypoint", "driver"),
        ("ray::FSDPPolicy", "actor"),
        ("ray::DeepSpeedR", None),
    ],
)
def test_roles(name: str, role: str | None) -> None:
    """Ray's classes are roles, also as the kernel cuts their names; a cut name that fits two is none."""
    assert find_role(name) == role


def test_functions() -> None:
    """Names of its functions are phases."""
    assert [find_phase(n) for n in ("fwd_logprobs_values_reward", "policy_train", "sync_weights")] == [
        "score",
        "update",
        "weight_sync",
    ]


def test_two_packages_count_on() -> None:
    """The second package is newer than all of the first, and is shown under its own name."""
    events = read_log("skyrl==0.1.0\n")
    found = find_framework(events, [], find_versions(events))
    assert found is not None and (found.version, found.package) == ("1!0.1.0", "")
    old = find_framework([], [], {}, "skyrl-train==0.3.0")
    assert old is not None and (old.name, old.version, old.package) == ("skyrl", "0.3.0", "skyrl-train")
    new, before = (spell("rollout.num_engines", "skyrl", version) for version in ("1!0.3.0", "0.2.0"))
    assert new is not None and before is not None
    assert folders.shown("skyrl", "1!0.3.0") == "0.3.0" and folders.shown("skyrl", "0.3.0") == "skyrl-train 0.3.0"
    assert (before.spelled, new.spelled) == (
        "generator.num_inference_engines",
        "generator.inference_engine.num_engines",
    )


@pytest.mark.parametrize(
    ("version", "level"), [("skyrl-train==0.1.0", 1), ("skyrl-train==0.3.0", 2), ("skyrl==0.3.0", 2)]
)
def test_estimate(tmp_path: Path, version: str, level: int) -> None:
    """Weights in fp32 and Adam's moments wait on the host while others run; a sleeping engine of 0.1.0 keeps its weights there."""
    script = (
        SCRIPT
        if "train" in version
        else SCRIPT.replace("generator.num_inference_engines", "generator.inference_engine.num_engines")
    )
    found = estimate(
        write(tmp_path, script), framework=version, machine=Machine(host_bytes=512 << 30, gpu_bytes=80 << 30)
    )
    host = {
        str(need.what): need.bytes * need.count for need in found.needs if need.place == "host" and need.role == "actor"
    }
    assert sum(host.values()) > 12 * 7e9
    engine = [need for need in found.needs if need.place == "host" and need.role == "rollout engine" and need.pinned]
    assert bool(engine) == (level == 1)


def test_hazards(tmp_path: Path) -> None:
    """States on the host and a NUMA binding go badly together."""
    script = SCRIPT.replace(
        "trainer.strategy=fsdp2", "trainer.strategy=fsdp2 trainer.policy.fsdp_config.cpu_offload=true"
    )
    assert [h.cause for h in estimate(write(tmp_path, script)).hazards] == ["host-numa-binding"]
    assert list(estimate(write(tmp_path)).hazards) == []


def test_size_that_only_the_shell_knows(tmp_path: Path) -> None:
    """The machine's GPUs stand for a variable that nothing sets, and the page says so."""
    script = SCRIPT.replace("gpus_per_node=8", "gpus_per_node=$NUM_GPUS")
    found = estimate(write(tmp_path, script), machine=Machine(gpus_per_node=8))
    assert "actor x8" in str(found.node)
    assert any("an unresolved shell variable; using --gpus-per-node" in str(text) for text in found.assumed)


def test_estimate_refuses_what_is_not_modelled(tmp_path: Path) -> None:
    """Megatron is refused with a sentence."""
    with pytest.raises(UsageError, match=r"trainer\.strategy=megatron: its memory is not modelled"):
        estimate(write(tmp_path, SCRIPT.replace("fsdp2", "megatron")))


def test_offload_is_page_locked(tmp_path: Path) -> None:
    """What its own code settles is evidence."""
    found = {str(e.name): e.value for e in find_offload(read_case(write(tmp_path)))}
    assert found["offload.pinned"] is True


def test_every_class_is_a_sign() -> None:
    """Lines of its own processes name it."""
    spec = folders.get("skyrl")
    assert spec is not None
    events = [make_event(actor=actor) for actor in spec.actors]
    found = find_framework(events, [], {})
    assert found is not None and found.name == "skyrl"
