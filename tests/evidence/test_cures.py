"""Sizes of cures: the arithmetic behind a proposed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rlhfdoctor.core.estimate import estimate
from rlhfdoctor.types import Incident, Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]
GIB = 1 << 30


def oom(request: str, free: str, unallocated: str, frames: str = "") -> str:
    """torch's message on an 80 GB card."""
    return (
        f"{frames}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU 0 has a total capacity of 79.00 GiB of which {free} is free. "
        f"Of the allocated memory 60.00 GiB is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated.\n"
    )


VERL = (
    "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=/models/Qwen2.5-7B data.max_prompt_length=1024 data.max_response_length=3072 "
    "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={batch} actor_rollout_ref.model.enable_gradient_checkpointing=True {more}\n"
)
BACKWARD = '  File "/opt/verl/workers/actor/dp_actor.py", line 301, in update_policy\n    loss.backward()\n'


def sequence(folder: Path, script: str) -> int:
    """What one more sequence takes of a GPU in the update, as `doctor estimate` says it."""
    sizes = []
    for batch in (1, 2):
        (folder / "run.sh").write_text(
            script.replace("micro_batch_size_per_gpu=12", f"micro_batch_size_per_gpu={batch}")
        )
        sizes.append(estimate([str(folder)]).of("gpu", "update", "actor"))
    return sizes[1] - sizes[0]


@pytest.mark.parametrize(("request_gib", "fits", "divisor"), [("7.20", 6, 6), ("8.20", 5, 4), ("10.00", 3, 3)])
def test_micro_batch_by_the_bytes_of_a_sequence(
    request_gib: str, fits: int, divisor: int, facts: Facts, tmp_path: Path
) -> None:
    """Of twelve sequences of 1024 tokens some fit beside what stays: a divisor, since it keeps what the batch divided."""
    script = VERL.format(batch=12, more="").replace("=1024", "=512").replace("=3072", "=512")
    log = oom(f"{request_gib} GiB", "7.00 GiB", "0 bytes", BACKWARD).replace("60.00", "70.00")
    found = facts({"driver.log": log, "run.sh": script})
    one = sequence(tmp_path, script)
    assert int((77 * GIB * 0.95 - (70 + float(request_gib)) * GIB + 12 * one) // one) == fits
    assert found["cure.train_micro_batch"] == divisor


@pytest.mark.parametrize(("batch", "more"), [(1, ""), (8, "actor_rollout_ref.actor.use_dynamic_bsz=True"), (64, "")])
def test_no_micro_batch_is_told(batch: int, more: str, facts: Facts) -> None:
    """One sequence already, dynamic batches, or an estimate that exceeds what was allocated."""
    files = {
        "driver.log": oom("6.00 GiB", "3.00 GiB", "0 bytes", BACKWARD),
        "run.sh": VERL.format(batch=batch, more=more),
    }
    assert "cure.train_micro_batch" not in facts(files)


def test_share_of_the_engine(facts: Facts) -> None:
    """79 GiB less a quarter more than 20 + 4 GiB, less 2 GiB: 0.59 is left; at least 0.05 goes."""
    run = "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization={}\n"
    log = oom("4.00 GiB", "1.00 GiB", "0 bytes").replace("60.00", "20.00")
    for before, after in ((0.8, 0.59), (0.6, 0.55)):
        assert facts({"driver.log": log, "run.sh": run.format(before)})["cure.gpu_memory_utilization"] == after


def test_share_that_leaves_nothing_for_the_engine(facts: Facts) -> None:
    """A trainer that needs the whole GPU is not helped by the engine's share."""
    files = {
        "driver.log": oom("4.00 GiB", "1.00 GiB", "0 bytes"),
        "run.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization=0.3\n",
    }
    assert "cure.gpu_memory_utilization" not in facts(files)


def wait(limit_s: int) -> str:
    """A watchdog's line."""
    return f"[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)={limit_s}000) ran for {limit_s}100 milliseconds before timing out.\n"


def test_time_out_by_what_the_others_waited_for(facts: Facts) -> None:
    """A bar that ran for about the limit: two hours are the least, half as much again the rule, beyond four hours it is no cure."""
    bar = " 50%|#####     | 5/10 [{0}<{1}, 360s/it]\n"
    for left, wanted in (("30:00", None), ("1:30:00", 11400), ("5:00:00", None)):
        assert facts({"driver.log": bar.format("30:10", left) + wait(1800)}).get("cure.collective_timeout") == wanted


def test_time_out_ignores_a_bar_of_the_whole_training(facts: Facts) -> None:
    """A bar that had run for hours is not what a rank waited ten minutes for."""
    assert "cure.collective_timeout" not in facts(
        {"driver.log": " 50%|#####     | 5/10 [3:00:00<3:00:00, 2160s/it]\n" + wait(600)}
    )


def test_object_store_with_room_for_the_object(facts: Facts) -> None:
    """What is in it, the object, and a quarter, in whole GiB."""
    text = "Failed to put object ab in object store because it is full. Object size is 4294967296 bytes.\n(global lru) capacity: 8589934592\n"
    assert facts({"driver.log": text})["cure.object_store_memory"] == 15 * 1024**3


def test_swap_space_frees_all_but_four(facts: Facts) -> None:
    """36 of 40 GiB for each GPU."""
    assert (
        facts({"run.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.swap_space=40\n"})[
            "frees.swap_space_bytes"
        ]
        == 36 * 1024**3
    )


@pytest.mark.parametrize(
    ("setting", "kept"),
    [
        ("ddp_timeout: 36000", True),
        ("ddp_timeout: 600", False),
        ("ddp_timeout: ${timeout}", True),
        ("bf16: true", False),
    ],
)
def test_a_limit_is_never_lowered(setting: str, kept: bool, case: Callable[[Mapping[str, str]], Incident]) -> None:
    """Ten hours stay; ten minutes become two hours."""
    files = {
        "config.yaml": f"model_name_or_path: /models/Qwen2.5-7B\n{setting}\n",
        "pip-freeze.txt": "trl==0.26.2\n",
        "driver.log": "Saving model checkpoint to /nfs/step-10\n" + wait(600),
        "dump.txt": "    save_pretrained (transformers/modeling_utils.py:3402)\n",
    }
    best = case(files).best
    assert best is not None
    assert (best.cause, any(p.setting == "collective_timeout" and p.diff for p in best.patches)) == (
        "comm-checkpoint-timeout",
        not kept,
    )


def test_a_limit_that_only_the_log_shows_is_not_lowered(case: Callable[[Mapping[str, str]], Incident]) -> None:
    """The ranks waited four hours: two are no cure, whatever the files lack."""
    files = {
        "config.yaml": "model_name_or_path: /models/Qwen2.5-7B\n",
        "pip-freeze.txt": "trl==0.26.2\n",
        "driver.log": "Saving model checkpoint to /nfs/step-10\n" + wait(14400),
        "dump.txt": "    save_pretrained (transformers/modeling_utils.py:3402)\n",
    }
    best = case(files).best
    assert best is not None
    assert [p.after for p in best.patches if p.setting == "collective_timeout"] == []


def test_a_share_at_its_least_is_left(case: Callable[[Mapping[str, str]], Incident]) -> None:
    """0.15 of the GPU is never raised to the least that is proposed; 1 is a share, not a count."""
    for before, after in (("0.15", []), ("1", ["0.75"])):
        files = {
            "launch.sh": f"python3 -m openrlhf.cli.train_ppo_ray --pretrain Qwen/Qwen2.5-7B --colocate_all_models --vllm_num_engines 8 --vllm_gpu_memory_utilization {before}\n",
            "pip-freeze.txt": "openrlhf==0.6.2\n",
            "driver.log": "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 512.00 MiB. GPU 0 has a total capacity of 79.10 GiB of which 100.00 MiB is free. Of the allocated memory 20.00 GiB is allocated by PyTorch, and 200.00 MiB is reserved by PyTorch but unallocated.\n",
        }
        found = [
            p.after
            for f in case(files).findings
            if f.cause == "gpu-rollout-reservation"
            for p in f.patches
            if p.setting == "rollout.gpu_memory_utilization"
        ]
        assert (found == []) == (after == [])
