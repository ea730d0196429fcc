"""Plan -> Estimate: all needs of a node, by role and phase, against its limits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rlhfdoctor.budget.compute import compute_needs, generate_needs
from rlhfdoctor.budget.deepspeed import deepspeed_needs
from rlhfdoctor.budget.engine import engine_needs
from rlhfdoctor.budget.fsdp import fsdp_needs
from rlhfdoctor.budget.hazards import find_hazards
from rlhfdoctor.budget.layout import make_plans
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.process import process_needs
from rlhfdoctor.budget.storage import storage_needs
from rlhfdoctor.budget.told import Told
from rlhfdoctor.estimates import BUDGET_PHASES, Estimate, Need


def fullest(told: Told) -> Estimate:
    """The node that comes nearest to a limit, or takes most where no limit is known.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    found = [(plan, estimate(plan)) for plan in make_plans(told)]
    plan, chosen = max(found, key=lambda pair: _fullness(pair[1]))
    return replace(chosen, assumed=tuple(told.assumed), hazards=tuple(find_hazards(told, plan)))


def _fullness(found: Estimate) -> tuple[float, int]:
    """The share of the tightest limit, what is set exactly left out, then the bytes on the host."""
    shares = [found.share(limit) for limit in found.limits]
    return max(shares, default=0.0), max((found.of("host", phase) for phase in found.phases), default=0)


def estimate(plan: Plan) -> Estimate:
    """The memory of the plan's node; on a machine without GPUs all of it is host memory."""
    needs = [need for need in _needs(plan) if need.bytes > 0]
    if plan.device == "cpu":
        needs = [replace(need, place="host") if need.place == "gpu" else need for need in needs]
    skipped = {"resume": not plan.resumes, "checkpoint": not plan.saves, "weight_sync": plan.engine is None}
    phases = tuple(phase for phase in BUDGET_PHASES if not skipped.get(phase))
    return Estimate(
        framework=plan.framework, version=plan.version, node=plan.node, needs=tuple(needs), limits=plan.limits, phases=phases, assumed=plan.assumed
    )  # fmt: skip


def _needs(plan: Plan) -> Iterator[Need]:
    yield from process_needs(plan)
    for model in plan.models:
        yield from fsdp_needs(model) if model.backend.startswith("fsdp") else deepspeed_needs(model, plan.device)
        yield from compute_needs(model)
        yield from storage_needs(model, plan)
        if model.role == "actor" and plan.engine is None:
            yield from generate_needs(model, model.scored)
    if plan.engine is not None:
        yield from engine_needs(plan.engine, plan.gpu_bytes)
