"""Sizes of cures: the arithmetic behind a proposed value."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from rlhfdoctor.types import Value

Facts = Callable[[Mapping[str, str]], dict[str, Value]]


def oom(request: str, free: str, unallocated: str, frames: str = "") -> str:
    """torch's message on an 80 GB card."""
    return (
        f"{frames}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {request}. GPU 0 has a total capacity of 79.00 GiB of which {free} is free. "
        f"Of the allocated memory 60.00 GiB is allocated by PyTorch, and {unallocated} is reserved by PyTorch but unallocated.\n"
    )


@pytest.mark.parametrize(
    ("request_size", "free", "scale"),
    [("8.00 GiB", "5.00 GiB", 0.5), ("8.00 GiB", "3.00 GiB", 0.25), ("8.00 GiB", "1.20 GiB", 0.125), ("8.00 GiB", "7.90 GiB", 0.5)],
)
def test_batch_shrinks_until_the_request_fits(request_size: str, free: str, scale: float, facts: Facts) -> None:
    """The largest power of two with a tenth to spare."""
    assert facts({"driver.log": oom(request_size, free, "0 bytes")})["cure.batch_scale"] == scale


def test_logits_live_twice(facts: Facts) -> None:
    """Where the code works on logits the fp32 copy and its softmax must both fit."""
    frames = '  File "/opt/loss.py", line 4, in forward\n    logps = logits.float().log_softmax(-1)\n'
    assert facts({"driver.log": oom("8.00 GiB", "5.00 GiB", "0 bytes", frames)})["cure.batch_scale"] == 0.25


@pytest.mark.parametrize(("request_size", "free", "unused"), [("2.00 GiB", "1.00 GiB", "3.00 GiB"), ("2.00 GiB", "0 bytes", "0 bytes"), ("90.00 GiB", "1.00 GiB", "0 bytes")])
def test_no_size_helps(request_size: str, free: str, unused: str, facts: Facts) -> None:
    """In pieces, with nothing left, or larger than the card: no factor is told."""
    assert "cure.batch_scale" not in facts({"driver.log": oom(request_size, free, unused)})


def test_share_of_the_engine(facts: Facts) -> None:
    """0.60 less the 4 GiB that are lacking (a quarter more asked for, 1 GiB there) and a fiftieth: 0.529 rounded down."""
    files = {"driver.log": oom("4.00 GiB", "1.00 GiB", "0 bytes"), "run.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.gpu_memory_utilization=0.6\n"}
    assert facts(files)["cure.gpu_memory_utilization"] == 0.52


def test_time_out_by_the_slowest_bar(facts: Facts) -> None:
    """Two hours are the least; three hours of bar ask for four and a half."""
    short, long = " 50%|#####     | 5/10 [30:00<30:00, 360s/it]\n", " 50%|#####     | 5/10 [1:30:00<1:30:00, 1080s/it]\n"
    assert "cure.collective_timeout" not in facts({"driver.log": short})
    assert facts({"driver.log": long})["cure.collective_timeout"] == 16200


def test_object_store_with_room_for_the_object(facts: Facts) -> None:
    """What is in it, the object, and a quarter, in whole GiB."""
    text = "Failed to put object ab in object store because it is full. Object size is 4294967296 bytes.\n(global lru) capacity: 8589934592\n"
    assert facts({"driver.log": text})["cure.object_store_memory"] == 15 * 1024**3


def test_swap_space_frees_all_but_four(facts: Facts) -> None:
    """36 of 40 GiB for each GPU."""
    assert facts({"run.sh": "python3 -m verl.trainer.main_ppo actor_rollout_ref.rollout.swap_space=40\n"})["frees.swap_space_bytes"] == 36 * 1024**3
