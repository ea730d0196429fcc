"""Plan -> Estimate: all needs of a node, by role in each phase, against its limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rlhfdoctor.budget.compute import compute_needs, generate_needs
from rlhfdoctor.budget.deepspeed import deepspeed_needs
from rlhfdoctor.budget.engine import engine_needs
from rlhfdoctor.budget.fsdp import fsdp_needs
from rlhfdoctor.budget.hazards import find_hazards
from rlhfdoctor.budget.inputs import Inputs
from rlhfdoctor.budget.layout import make_plans
from rlhfdoctor.budget.plain import plain_needs
from rlhfdoctor.budget.plan import Plan
from rlhfdoctor.budget.process import process_needs
from rlhfdoctor.budget.storage import storage_needs
from rlhfdoctor.budget.types import BUDGET_PHASES, BudgetPhase, Estimate, Need
from rlhfdoctor.i18n.message import say


def fullest(inputs: Inputs) -> Estimate:
    """The node that comes nearest to a limit, or uses most if no limit is known.

    Raises:
        UsageError: the framework or the model's size is unknown.
    """
    plans = make_plans(inputs)
    chosen = max((estimate(plan) for plan in plans), key=_fullness)
    hazards = dict.fromkeys(hazard for plan in plans for hazard in find_hazards(inputs, plan))  # on whichever node
    return replace(chosen, assumed=tuple(inputs.assumed), hazards=tuple(hazards))


def _fullness(found: Estimate) -> tuple[float, int]:
    """The share of the tightest limit, what is set exactly left out, then the bytes on the host."""
    shares = [found.share(limit) for limit in found.limits]
    return max(shares, default=0.0), max((found.of("host", phase) for phase in found.phases), default=0)


def estimate(plan: Plan) -> Estimate:
    """The memory of the plan's node; on a machine without GPUs all of it is host memory."""
    needs = _placed(plan, _needs(plan))
    found = Estimate(
        framework=plan.framework,
        version=plan.version,
        node=plan.node,
        needs=tuple(needs),
        limits=plan.limits,
        phases=_phases(plan),
        assumed=plan.assumed,
    )
    return replace(found, needs=(*found.needs, *_page_tables(found)))


def host_estimate(plan: Plan) -> Estimate:
    """Only what processes hold in host memory, without page tables: a third of the work, for many plans one by one."""
    computes = plan.device == "cpu" or any(model.swap_bytes for model in plan.models)
    needs = tuple(need for need in _placed(plan, _needs(plan, computes=computes)) if need.place == "host")
    return Estimate(
        framework=plan.framework, version=plan.version, node=plan.node, needs=needs, limits=(), phases=_phases(plan)
    )


def _placed(plan: Plan, needs: Iterable[Need]) -> list[Need]:
    """Needs that take bytes; without GPUs all of them are host memory."""
    found = [need for need in needs if need.bytes > 0]
    if plan.device == "cpu":
        return [replace(need, place="host") if need.place == "gpu" else need for need in found]
    return found


def _phases(plan: Plan) -> tuple[BudgetPhase, ...]:
    skipped = {
        "resume": not plan.resumes,
        "checkpoint": not plan.saves,
        "weight_sync": plan.engine is None,
        "final_save": not plan.saves_at_end,
    }
    return tuple(phase for phase in BUDGET_PHASES if not skipped.get(phase) and phase not in plan.without)


_MAPPED_PER_BYTE = 512
"""Bytes that one byte of page tables maps: 8 for a page of 4 KiB."""


def _page_tables(found: Estimate) -> Iterator[Need]:
    """Kernel memory that every resident page takes, and that counts for the container's limit.

    Entries of 8 bytes for pages of 4 KiB; huge pages keep theirs in reserve (mm/huge_memory.c,
    pgtable_trans_huge_deposit). Measured in the lab's kernel tables: 0.22 to 0.34 % of the resident memory of processes
    above 200 MiB, so this is the least.
    """
    for phase in found.phases:
        size = (found.of("host", phase) + found.of("shm", phase)) // _MAPPED_PER_BYTE
        what = say("page tables, 8 bytes a page of 4 KiB")
        yield Need(
            role="kernel",
            process="kernel",
            place="host",
            phases=(phase,),
            bytes=size,
            count=1,
            what=what,
            held_for="process",
        )


def _needs(plan: Plan, *, computes: bool = True) -> Iterator[Need]:
    yield from process_needs(plan)
    for model in plan.models:
        if model.backend == "plain":
            yield from plain_needs(model, plan.device)
        else:
            yield from fsdp_needs(model) if model.backend.startswith("fsdp") else deepspeed_needs(model, plan.device)
        if computes:
            yield from compute_needs(model, plan.device)
        yield from storage_needs(model, plan)
        if computes and model.role == "actor" and plan.engine is None and "rollout" not in plan.without:
            yield from generate_needs(model, model.scored)
    if plan.engine is not None:
        yield from engine_needs(plan.engine, plan.gpu_bytes)
