"""Scaled treatments get the largest value with which the run would have fitted, and keep the rule's factor where nobody can tell."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhfdoctor import analyze
from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.inputs import change
from rlhfdoctor.core.estimate import Machine
from rlhfdoctor.patch.effect import Counterfactual, make_counterfactual
from tests.build import told_of

ROOT = Path(__file__).resolve().parents[2]
GIB = 1 << 30


def swapping(room_bytes: int | None) -> Counterfactual:
    """simpleRL-reason's swap blocks, 2 GiB of them a layer and GPU, against a limit of the node."""
    told = told_of(ROOT / "samples/simplerl-third-generation/run")
    use = fullest(told)
    measured = max(use.of("host", phase) for phase in use.phases)
    found = make_counterfactual(
        told, None, of_host=True, measured_bytes=measured, limit_bytes=room_bytes and measured + room_bytes
    )
    assert found is not None
    return found


def test_of_host_memory_the_largest_that_fits() -> None:
    """The proposed value leaves a tenth free by the same budget; the next larger one does not."""
    run = swapping(-100 * GIB)
    found = run.size("rollout.swap_space", 40, None)
    assert found is not None and "keep a tenth free" in str(found[1])

    def use(value: int) -> int:
        after = fullest(change(run.inputs, "rollout.swap_space", value))
        return (run.measured_bytes or 0) + after.of("host", run.phase) - run.now.of("host", run.phase)

    assert use(int(found[0])) <= 0.9 * (run.limit_bytes or 0) < use(int(found[0]) + 5)


@pytest.mark.parametrize("room_bytes", [None, -10_000 * GIB])
def test_nobody_can_tell(room_bytes: int | None) -> None:
    """Without a limit, or where even the least does not fit, there is no value."""
    assert swapping(room_bytes).size("rollout.swap_space", 40, None) is None


def test_a_budget_far_from_the_measured_use_is_not_trusted() -> None:
    """Half of what was measured is another run's budget."""
    run = swapping(-100 * GIB)
    told, use = run.inputs, run.measured_bytes or 0
    assert make_counterfactual(told, None, of_host=True, measured_bytes=use * 2, limit_bytes=use) is None


def test_batches_are_divided() -> None:
    """A micro batch of 16 becomes a divisor of it, as a batch size is made of micro batches."""
    told = told_of(ROOT / "samples/easyr1-long-prompts/run", machine=Machine(gpu_bytes=80 * GIB))
    run = make_counterfactual(told, "score", of_host=False, measured_bytes=None, limit_bytes=None)
    assert run is not None
    found = run.size("logprob.micro_batch_size", 16, 1)
    assert found is not None and 16 % found[0] == 0 and found[0] < 16
    wide = replace(run, now=replace(run.now, limits=tuple(replace(limit, bytes=10**15) for limit in run.now.limits)))
    assert wide.size("logprob.micro_batch_size", 16, 1) is None, (
        "the budget sees no shortage, so it cannot tell what ends it"
    )


def test_in_an_incident() -> None:
    """A rule's factor of a half would not have been enough; the sentence says why the value is."""
    incident = analyze([str(ROOT / "samples/easyr1-long-prompts/run")])
    patch = next(p for f in incident.findings for p in f.patches if p.setting == "max_prompt_length")
    assert patch.before is not None and patch.after is not None
    assert int(patch.after) < int(patch.before) // 2
    assert f"{patch.after} is the largest with which 79.2 GiB of a GPU keep a tenth free" in str(patch.effect)
