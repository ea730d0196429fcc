"""Placement of roles: groups of GPUs, packed into nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout_settings import find_file_size
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import joined, plural, say, term

GPUS = 8


@dataclass(slots=True)
class Placed:
    """A group of GPUs that roles share: how many per node, on how many nodes."""

    roles: tuple[str, ...]
    gpus: int
    nodes: int = 1


def _too_few(gpus: int, widest: Placed) -> UsageError:
    return UsageError(
        say(
            "--gpus-per-node {given}: {roles: and } want {gpus} on a node",
            given=gpus,
            roles=tuple(term(role) for role in widest.roles),
            gpus=plural("{n} GPU", "{n} GPUs", widest.gpus),
        )
    )


_MOST_NODES = 10_000
"""Each is placed by itself."""


def _check_nodes(groups: list[Placed]) -> None:
    many = max(groups, key=lambda group: group.nodes)
    if many.nodes > _MOST_NODES:
        crowd = tuple(term(role) for role in many.roles)
        raise UsageError(
            say("{roles: and } on {n} nodes: {most} are the most", roles=crowd, n=many.nodes, most=_MOST_NODES)
        )


def engine_groups(gpus: int, per_node: int) -> list[Placed]:
    """Groups of engines with GPUs of their own: whole nodes of them, then the rest.

    >>> engine_groups(20, 8)
    [Placed(roles=('engine',), gpus=8, nodes=2), Placed(roles=('engine',), gpus=4, nodes=1)]
    """
    whole, rest = divmod(gpus, per_node)
    return [Placed(("engine",), size, nodes) for size, nodes in ((per_node, whole), (rest, 1)) if size and nodes]


def make_nodes(
    inputs: Inputs, groups: list[Placed], models: dict[str, Model], engine: Engine | None, **rest: Any
) -> list[Plan]:
    """Groups packed into nodes, first fit; one plan for each node that differs."""
    gpus = inputs.machine.gpus_per_node
    if gpus is None:
        gpus = max([GPUS, *(group.gpus for group in groups)])
    widest = max(groups, key=lambda group: group.gpus)
    if 0 < gpus < widest.gpus:
        raise _too_few(gpus, widest)
    _check_nodes(groups)
    if inputs.machine.gpus_per_node != 0:
        inputs.assume(
            say(
                "a process takes 3 GiB of host memory beside what it computes with (Python, torch, CUDA, NCCL), "
                "1 GiB more where it trains, and 1 GiB of its GPU"
            )
        )
        inputs.assume(
            say(
                "the error of 10 % is known from runs on CPUs only; activations are those of sequences at their longest"
            )
        )
    rest = {"file_bytes": find_file_size(inputs), **rest}
    free: list[int] = []
    nodes: list[dict[str, int]] = []
    shared = {role: "+".join(group.roles) for group in groups for role in group.roles}
    for group in groups:
        place = -1  # a node that one of the group does not fit on holds no later one of it either
        for _ in range(group.nodes):
            later = range(place + 1, len(free))
            place = next(
                (i for i in later if free[i] >= group.gpus and not set(group.roles) & set(nodes[i])), len(free)
            )
            if place == len(free):
                free.append(gpus)
                nodes.append({})
            free[place] -= group.gpus
            for role in group.roles:
                nodes[place][role] = group.gpus or (models[role].local_ranks if role in models else 1)
    plans: list[Plan] = []
    seen: list[dict[str, int]] = []
    for number, held in enumerate(nodes):
        if held in seen:
            continue
        seen.append(held)
        own = tuple(
            replace(models[role], local_ranks=count, gpus=shared[role])
            for role, count in held.items()
            if role in models
        )
        here = (
            replace(engine, local_ranks=held["engine"], gpus=shared["engine"])
            if engine is not None and "engine" in held
            else None
        )
        like = sum(other == held for other in nodes)
        roles = joined(*(say("{role} x{count}", role=term(role), count=count) for role, count in held.items()), by=", ")
        of_all = plural(
            "{n} node of {nodes}: {roles}", "{n} nodes of {nodes}: {roles}", like, nodes=len(nodes), roles=roles
        )
        label = roles if len(nodes) == 1 else of_all
        plans.append(
            Plan(
                device="cpu" if inputs.machine.gpus_per_node == 0 else "cuda",
                models=own,
                engine=here,
                driver=number == 0,
                nodes=len(nodes),
                node=label,
                gpu_bytes=inputs.machine.gpu_bytes,
                limits=inputs.limits(inputs.machine.gpus_per_node != 0),
                framework=inputs.framework.name if inputs.framework else "",
                version=inputs.version_words,
                assumed=tuple(inputs.assumed),
                **rest,
            )
        )
    return plans
