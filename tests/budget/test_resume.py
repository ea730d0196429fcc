"""Ways to read a checkpoint: every rank its own file at once, one rank after the other, a universal checkpoint, or the weights alone."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from rlhfdoctor import analyze
from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.core.estimate import Machine, estimate, suggest
from rlhfdoctor.report.estimate import render_suggestion
from rlhfdoctor.report.estimate_verdict import by_phase, sentence, verdict
from rlhfdoctor.types import Patch
from tests.build import told_of

GIB = 1 << 30
QWEN_7B = 7_615_616_512
"""Parameters."""
KEYS_AND_VALUES = 28 * 2 * 3584 * 512
"""Of these, in matrices of 7 MiB in fp32."""
OFFLOAD = {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": False}}
TRL = "accelerate launch --num_processes 8 {more} my_grpo.py --model_name_or_path Qwen/Qwen2.5-7B --deepspeed ds.json --resume_from_checkpoint out/checkpoint-20"
OPENRLHF = (
    "python3 -m openrlhf.cli.train_ppo_ray --actor_num_nodes {nodes} --actor_num_gpus_per_node 8 --ref_num_nodes 1 --ref_num_gpus_per_node 8 --vllm_num_engines 4 "
    "--vllm_tensor_parallel_size 4 --advantage_estimator reinforce --remote_rm_url http://rm --pretrain {model} --micro_train_batch_size 1 --train_batch_size 128 "
    "--zero_stage 3 --bf16 --adam_offload --gradient_checkpointing --flash_attn --save_steps 10 {more}"
)


def predict(
    folder: Path, command: str, release: str, deepspeed: str, config: dict[str, Any], host_bytes: int | None = None
) -> Estimate:
    told(folder, command, deepspeed, config)
    return estimate([str(folder)], framework=release, machine=Machine(host_bytes=host_bytes))


def told(folder: Path, command: str, deepspeed: str, config: dict[str, Any]) -> None:
    (folder / "launch.sh").write_text(command + "\n")
    (folder / "ds.json").write_text(json.dumps(config, indent=2))
    (folder / "pip-freeze.txt").write_text(f"deepspeed=={deepspeed}\n")


def beside(found: Estimate) -> float:
    """Bytes a parameter that the actors of the node hold in the resume more than in a rollout."""
    return (found.of("host", "resume", "actor") - found.of("host", "rollout", "actor")) / QWEN_7B


@pytest.mark.parametrize(
    ("deepspeed", "torch", "setting", "expected"),
    [
        ("0.16.4", "2.5.1", False, 4),
        ("0.16.4", "2.5.1", True, 4 / 8),
        ("0.17.2", "2.8.0", True, 4 / 8),
        ("0.17.3", "2.8.0", True, 4),
        ("0.17.3", "2.7.0", True, 4 / 8),
    ],
)
def test_ranks_that_read_one_after_the_other(
    deepspeed: str, torch: str, setting: bool, expected: float, tmp_path: Path
) -> None:
    """From 0.17.3 on it depends on torch whether a rank on a GPU waits: what is not known is not counted."""
    (tmp_path / "versions.txt").write_text(f"torch=={torch}\n")
    zero = {**OFFLOAD, **({"pipeline_loading_checkpoint": True} if setting else {})}
    found = predict(tmp_path, TRL.format(more=""), "trl==0.16.1", deepspeed, {"zero_optimization": zero})
    assert beside(found) == pytest.approx(expected, rel=0.01)
    assert any("is assumed to keep no rank on a GPU waiting" in str(line) for line in found.assumed) == (
        deepspeed == "0.17.3" and torch == "2.8.0"
    )
    assert found.hazards == ()


@pytest.mark.parametrize(
    ("stage", "more", "says"),
    [
        (3, "", ""),
        (2, "", "below ZeRO stage 3"),
        (3, "--num_machines 2", "the first rank of the next node"),
        (0, "", ""),
    ],
)
def test_where_reading_in_turn_does_not_work(stage: int, more: str, says: str, tmp_path: Path) -> None:
    config = {"zero_optimization": {**OFFLOAD, "stage": stage, "pipeline_loading_checkpoint": True}}
    found = predict(tmp_path, TRL.format(more=more), "trl==0.16.1", "0.16.4", config)
    assert [says in str(h.says) for h in found.hazards] == [True] * bool(says)
    assert (verdict(found) == "trap") == bool(says)


def test_ray_actors_cannot_read_in_turn(tmp_path: Path) -> None:
    """OpenRLHF gives each of them LOCAL_RANK 0 (trainer/ray/launcher.py): all would send and nobody listen."""
    config = {"zero_optimization": {**OFFLOAD, "pipeline_loading_checkpoint": True}}
    found = predict(
        tmp_path,
        OPENRLHF.format(nodes=1, model="Qwen/Qwen2.5-7B", more="--load_checkpoint"),
        "openrlhf==0.5.4",
        "0.15.0",
        config,
    )
    assert [(h.phase, h.cause) for h in found.hazards] == [
        ("resume", "other-version-regression")
    ] and "LOCAL_RANK 0" in str(sentence(found))
    found = predict(
        tmp_path, OPENRLHF.format(nodes=1, model="Qwen/Qwen2.5-7B", more=""), "openrlhf==0.5.4", "0.15.0", config
    )
    assert found.hazards == (), "a run that does not resume"
    seeing = "export RAY_EXPERIMENTAL_NOSET_CUDA_VISIBLE_DEVICES=1\n" + OPENRLHF.format(
        nodes=1, model="Qwen/Qwen2.5-7B", more="--load_checkpoint"
    )
    assert predict(tmp_path, seeing, "openrlhf==0.5.4", "0.15.0", config).hazards == (), (
        "its LOCAL_RANK is the number of its GPU"
    )


def test_a_rank_that_reads_a_universal_checkpoint_sends_nothing(tmp_path: Path) -> None:
    config = {
        "zero_optimization": {**OFFLOAD, "pipeline_loading_checkpoint": True},
        "checkpoint": {"load_universal": True},
    }
    (trap,) = predict(tmp_path, TRL.format(more=""), "trl==0.16.1", "0.18.4", config).hazards
    assert "never sends" in str(trap.says)


def test_a_checkpoint_that_only_the_shell_knows(tmp_path: Path) -> None:
    command = TRL.format(more="").replace("out/checkpoint-20", '"$CKPT"')
    found = predict(tmp_path, command, "trl==0.16.1", "0.16.4", {"zero_optimization": OFFLOAD})
    assert "resume" in found.phases and [str(line) for line in found.assumed if "CKPT" in str(line)] == [
        "it resumes from $CKPT, an unresolved shell variable"
    ]


@pytest.mark.parametrize(
    ("release", "flag"),
    [("0.6.3", "--universal_ckpt"), ("0.8.0", "--use_ds_universal_ckpt"), ("0.10.2", "--ds.use_universal_ckpt")],
)
@pytest.mark.parametrize(("deepspeed", "trapped"), [("0.16.4", True), ("0.17.6", True), ("0.18.0", False)])
def test_a_universal_checkpoint_at_stage_3(
    release: str, flag: str, deepspeed: str, trapped: bool, tmp_path: Path
) -> None:
    """Every rank reads rank 0's whole shard beside its own states: 12 bytes a parameter where the shards themselves take 4.

    The rest are files of keys and values, the only matrices of this model that malloc does not map: 0.9 of 4 bytes of them on every rank.
    """
    resume = "--ckpt.load_enable" if release == "0.10.2" else "--load_checkpoint"
    found = predict(
        tmp_path,
        OPENRLHF.format(nodes=1, model="Qwen/Qwen2.5-7B", more=f"{resume} {flag}"),
        f"openrlhf=={release}",
        deepspeed,
        {"zero_optimization": OFFLOAD},
    )
    assert beside(found) == pytest.approx(12 + 8 * 0.9 * 4 * KEYS_AND_VALUES / QWEN_7B, rel=0.01)
    assert "the universal checkpoint was made of as many ranks as there are now" in map(str, found.assumed)
    assert ["before DeepSpeed 0.18.0" in str(h.says) for h in found.hazards] == [True] * trapped


def test_a_universal_checkpoint_below_stage_3(tmp_path: Path) -> None:
    """Moments are cut out a parameter at a time, and put together then; one of the two is free by that, but for blocks that malloc does not map."""
    config = {"zero_optimization": {**OFFLOAD, "stage": 2}, "checkpoint": {"load_universal": True}}
    found = predict(tmp_path, TRL.format(more=""), "trl==0.16.1", "0.16.4", config)
    small = KEYS_AND_VALUES / QWEN_7B
    read = sum(
        need.bytes * need.count for need in found.needs if need.transient == "read" and need.phases == ("resume",)
    )
    assert read / QWEN_7B == pytest.approx(4 + 4 * small + 8 * 0.9 * 4 * small, rel=0.01) and found.hazards == ()


# --- the second seed: OpenRLHF 632, with 1.4 TB of memory ----------------------------------------

SEED = {"model": "Qwen/Qwen2.5-72B-Instruct", "nodes": 1}
TERABYTES = (round(1.4e12), round(1.4 * (1 << 40)))
"""Nobody tells which of the two is meant."""


@pytest.mark.parametrize("host_bytes", TERABYTES)
def test_the_published_cure_of_the_72b_resume_does_nothing(host_bytes: int, tmp_path: Path) -> None:
    """A ratio of 0.9 moves norms and biases only, so the estimate cannot tell it from the run that died."""
    command = OPENRLHF.format(**SEED, more="--load_checkpoint")
    without = predict(tmp_path, command, "openrlhf==0.5.4", "0.15.0", {"zero_optimization": OFFLOAD}, host_bytes)
    ratio = {"stage": 3, "offload_optimizer": {"device": "cpu", "pin_memory": False, "ratio": 0.9}}
    given = predict(tmp_path, command, "openrlhf==0.5.4", "0.15.0", {"zero_optimization": ratio}, host_bytes)
    assert by_phase(without)["resume"] == by_phase(given)["resume"] == "over"
    assert 0 <= without.of("host", "resume") - given.of("host", "resume") < 0.1 * GIB


@pytest.mark.parametrize("host_bytes", TERABYTES)
def test_the_72b_from_its_weights_alone(host_bytes: int, tmp_path: Path) -> None:
    """What works in its own version: no shard of the optimizer is read, and the steps take what they took before."""
    found = predict(
        tmp_path,
        OPENRLHF.format(**SEED, more=""),
        "openrlhf==0.5.4",
        "0.15.0",
        {"zero_optimization": OFFLOAD},
        host_bytes,
    )
    assert "resume" not in found.phases
    assert [phase for phase, word in by_phase(found).items() if word == "over"] == (
        ["final_save"] if host_bytes == TERABYTES[0] else []
    )


def test_the_sample_of_that_resume(tmp_path: Path) -> None:
    """Our own run after the report, with the setting that its user edited in: flagged in the resume, and taken from the weights alone."""
    run = Path(__file__).parents[2] / "samples" / "openrlhf-72b-resume" / "run"
    for name in ("launch.sh", "pip-freeze.txt", "free-node5.txt"):
        shutil.copy(run / name, tmp_path)
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": OFFLOAD}))
    found = estimate([str(tmp_path)])
    assert (verdict(found), by_phase(found)["resume"], by_phase(found)["update"]) == ("over", "over", "fits"), sentence(
        found
    )
    launch = tmp_path / "launch.sh"
    launch.write_text(launch.read_text().replace("   --load_checkpoint \\\n", ""))
    cured = estimate([str(tmp_path)])
    assert verdict(cured) == "tight" and "resume" not in cured.phases, sentence(cured)


# --- what is proposed ----------------------------------------------------------------------------


def propose_for(folder: Path, release: str, host_bytes: int) -> tuple[Estimate, list[Patch], str]:
    after, patches = suggest([str(folder)], framework=release, machine=Machine(host_bytes=host_bytes))
    screen = io.StringIO()
    render_suggestion(after, patches, Console(file=screen, width=300))
    return after, patches, screen.getvalue()


def test_reading_in_turn_is_proposed_where_it_works(tmp_path: Path) -> None:
    """In the user's own JSON, and nothing else."""
    command = TRL.format(more="").replace("Qwen2.5-7B", "Qwen2.5-32B-Instruct")
    told(tmp_path, command, "0.16.4", {"zero_optimization": OFFLOAD})
    after, patches, screen = propose_for(tmp_path, "trl==0.16.1", 640 * GIB)
    assert [(p.setting, p.before, p.after, p.safety) for p in patches] == [
        ("zero.pipeline_loading_checkpoint", "false", "true", "consent")
    ]
    assert '+    "pipeline_loading_checkpoint": true' in patches[0].diff and verdict(after) == "tight", sentence(after)
    assert "the ranks read one after the other" in screen


@pytest.mark.parametrize(
    ("release", "deepspeed", "command"),
    [
        ("trl==0.26.2", "0.18.4", TRL.format(more="").replace("Qwen2.5-7B", "Qwen2.5-32B-Instruct")),
        ("openrlhf==0.5.4", "0.15.0", OPENRLHF.format(nodes=1, model="Qwen/Qwen2.5-32B", more="--load_checkpoint")),
    ],
)
def test_where_no_setting_is_enough_the_weights_alone_are_named(
    release: str, deepspeed: str, command: str, tmp_path: Path
) -> None:
    """More nodes are no advice for a resume: DeepSpeed refuses the shards of another number of ranks."""
    told(tmp_path, command, deepspeed, {"zero_optimization": OFFLOAD})
    _, patches, screen = propose_for(tmp_path, release, 690 * GIB)
    assert patches == [] and "start from the saved weights alone" in screen and "more nodes" not in screen
    _, patches, screen = propose_for(tmp_path, release, 500 * GIB)
    assert patches == [] and "more nodes from the saved weights only" in screen, "the steps are short, too"


def test_a_gpu_that_is_short_is_not_cured_by_another_start(tmp_path: Path) -> None:
    """Where more than the resume is short, the advice is the common one."""
    told(
        tmp_path,
        TRL.format(more="").replace("Qwen2.5-7B", "Qwen2.5-72B"),
        "0.18.4",
        {"zero_optimization": {"stage": 2}},
    )
    after, patches = suggest(
        [str(tmp_path)], framework="trl==0.26.2", machine=Machine(host_bytes=640 * GIB, gpu_bytes=80 * GIB)
    )
    screen = io.StringIO()
    render_suggestion(after, patches, Console(file=screen, width=300))
    assert patches == [] and "GPUs and host with more memory" in screen.getvalue()


# --- after the fact ------------------------------------------------------------------------------

KILLED = """[2025-04-02 11:20:31,711] [INFO] [torch_checkpoint_engine.py:28:load] [Torch] Loading checkpoint from out/checkpoint-20/bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt...
[Wed Apr  2 11:20:40 2025] python invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0, oom_score_adj=0
[Wed Apr  2 11:20:40 2025] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/,task=python,pid=4120,uid=0
[Wed Apr  2 11:20:40 2025] Out of memory: Killed process 4120 (python) total-vm:190000000kB, anon-rss:88000000kB, file-rss:1000kB, shmem-rss:0kB, UID:0 pgtables:180000kB oom_score_adj:0
"""


@pytest.mark.parametrize(("machines", "proposed"), [(1, True), (2, False)])
def test_what_analyze_proposes_for_a_resume(machines: int, proposed: bool, tmp_path: Path) -> None:
    """Reading in turn on one node only, and the weights alone with what the steps still take."""
    command = (
        TRL.format(more=f"--num_machines {machines}")
        .replace("--num_processes 8", f"--num_processes {8 * machines}")
        .replace("Qwen2.5-7B", "Qwen2.5-32B-Instruct")
    )
    told(tmp_path, command, "0.16.4", {"zero_optimization": OFFLOAD})
    (tmp_path / "driver.log").write_text(KILLED)
    (tmp_path / "pip-freeze.txt").write_text("trl==0.16.1\ndeepspeed==0.16.4\n")
    finding = next(f for f in analyze([str(tmp_path)]).findings if f.cause == "host-checkpoint-resume")
    patches = {patch.setting: patch for patch in finding.patches}
    assert ("zero.pipeline_loading_checkpoint" in patches) == proposed, list(patches)
    alone = patches["checkpoint.resume"]
    assert alone.safety == "show" and "0 B in place" not in str(alone.effect), alone.effect
    assert "nodes" not in patches


# --- TRL's flags ---------------------------------------------------------------------------------


def test_trls_fields_are_read_as_flags(tmp_path: Path) -> None:
    """Each field of its dataclasses is one (HfArgumentParser), where the framework is known to be TRL; elsewhere it is not."""
    (tmp_path / "launch.sh").write_text(
        "accelerate launch my_grpo.py --model_name_or_path Qwen/Qwen2.5-7B --max_completion_length 4096 --per_device_train_batch_size=2 --top_k 3\n"
    )
    found = told_of(tmp_path, "trl==0.16.1")
    assert (found.value("max_response_length"), found.value("train.micro_batch_size")) == (4096, 2)
    assert found.settings["max_response_length"].spelled == "--max_completion_length"
    other = told_of(tmp_path, "openrlhf==0.8.0")
    assert "max_response_length" not in other.settings


def test_a_field_that_is_switched_off(tmp_path: Path) -> None:
    """HfArgumentParser has a --no_ flag for each field that is on by default; it is read, and not edited."""
    (tmp_path / "launch.sh").write_text(
        "accelerate launch my_grpo.py --model_name_or_path Qwen/Qwen2.5-7B --no_gradient_checkpointing\n"
    )
    found = told_of(tmp_path, "trl==0.28.0")
    assert found.value("gradient_checkpointing") is False and found.settings["gradient_checkpointing"].span is None
