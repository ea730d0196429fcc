"""Bytes that the evidence asks for: what settings take of the host, what trained models hold on a GPU."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rlhfdoctor.budget.estimate import estimate
from rlhfdoctor.budget.inputs import Inputs, change
from rlhfdoctor.budget.layout import make_plans
from rlhfdoctor.budget.types import Need
from rlhfdoctor.types import Value

_PHASE = "update"
"""When all that training takes is there."""
_STATES = ("weights", "optimizer", "gradients")


def host_bytes_of(inputs: Inputs, changes: Mapping[str, Value]) -> int:
    """Host memory of one node in the update, beyond that after these changes; of the node where it is most.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    other = inputs
    for name, value in changes.items():
        other = change(other, name, value)
    nodes = zip(make_plans(inputs), make_plans(other), strict=True)
    return max((estimate(one).of("host", _PHASE) - estimate(two).of("host", _PHASE) for one, two in nodes), default=0)


def host_states_of(inputs: Inputs) -> int:
    """Weights, gradients and optimizer states in host memory of one node in the update; of the node where it is most.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    sums = [
        sum(
            need.bytes * need.count
            for need in estimate(plan).needs
            if need.place == "host" and need.component in _STATES and _PHASE in need.phases and not need.transient
        )
        for plan in make_plans(inputs)
    ]
    return max(sums, default=0)


def gpu_bytes_of(inputs: Inputs, roles: Collection[str]) -> int:
    """Weights, gradients and optimizer states of roles that share a GPU.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    sums = [
        sum(
            need.bytes
            for need in estimate(plan).needs
            if need.place == "gpu" and need.role in roles and _lasts(need) and not need.at_longest
        )
        for plan in make_plans(inputs)
    ]
    return max(sums, default=0)


def _lasts(need: Need) -> bool:
    """Whether it is there through its phases, or gradients that are whole by the time of the step."""
    return not need.transient or (need.component == "gradients" and need.transient == "step")


def sequence_bytes(inputs: Inputs, setting: str, phase: str, role: str) -> int:
    """What one more sequence of full length takes of a GPU in a pass of a role: activations and logits.

    Args:
        setting: that counts the sequences of the pass.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    one, two = (
        max(estimate(plan).of("gpu", phase, role) for plan in make_plans(change(inputs, setting, count)))
        for count in (1, 2)
    )
    return two - one
