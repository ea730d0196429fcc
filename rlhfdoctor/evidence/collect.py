"""All evidence of a case, one host at a time, each part on its own: one failing part hides no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from rlhfdoctor.evidence import (
    comm,
    engine_memory,
    errors,
    flight,
    gpu,
    gpu_growth,
    host,
    kernel_kill,
    lost_peer,
    offload,
    ray_memory,
    recorded,
    rlimits,
    setup,
    shm,
    sizing,
    steps,
    workers,
)
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.explained import facts_of, find_explanation
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.evidence.survived import later_steps
from rlhfdoctor.explanation import Explanation
from rlhfdoctor.faults import PATIENCE_S, isolated
from rlhfdoctor.i18n.message import NOTHING, Message, plural, say
from rlhfdoctor.types import Death, Event, Evidence, Gap
from rlhfdoctor.vocabulary import EVENT, FACT
from rlhfdoctor.vocabulary.names import Fact
from rlhfdoctor.vocabulary.run import HOST_KILLERS

Finder = Callable[[Case], Iterator[Evidence]]


def _precedes(one: Event, death: Event) -> bool:
    """Whether an event came before the death and is not part of its report (Ray's table names tasks)."""
    if "ray::" in one.text and re.search(r"\d+\.\d\d[ \t]+ray::|where the task \(|Selected to kill", one.text):
        return False
    if one.origin.file == death.origin.file:
        bar = one.kind.scope == "phase" and "%|" in one.text  # has no end of line of its own
        return (one.origin.line or 0) < (death.origin.line or 0) + bar
    return one.time is None or death.time is None or one.time <= death.time


FINDERS: tuple[Finder, ...] = (
    kernel_kill.find_kernel,
    ray_memory.find_ray,
    host.find_limits,
    host.find_available,
    host.find_growth,
    gpu.find_cuda,
    engine_memory.find_engine,
    gpu_growth.find_growth,
    comm.find_collectives,
    flight.find_flight,
    lost_peer.find_peer,
    offload.find_offload,
    sizing.find_cures,
    offload.find_states,
    errors.find_errors,
    setup.find_setup,
)
FINDERS_OF_DEATH: tuple[Callable[[Case, Death | None], Iterator[Evidence]], ...] = (
    recorded.find_recorded,
    workers.find_workers,
    shm.find_leaks,
    rlimits.find_process_limit,
)
"""Those that also use who was killed, and when."""


def explain_bytes(case: Case, death: Death | None, gaps: list[Gap]) -> Explanation | None:
    """What explains the bytes of each process; a fault in it is a gap, as in `find_evidence`."""
    with isolated(say("evidence {name}", name=find_explanation.__name__), gaps, PATIENCE_S):
        return find_explanation(case, death)
    return None


def find_evidence(
    case: Case, death: Death | None, gaps: list[Gap], explained: Explanation | None = None
) -> dict[Fact, Evidence]:
    """Name -> evidence; the first of a name wins."""
    found: dict[Fact, Evidence] = {}
    for evidence in _of_death(case, death):
        found.setdefault(evidence.name, evidence)
    if explained is not None:
        found |= {evidence.name: evidence for evidence in facts_of(explained)}
    finders: tuple[tuple[str, Callable[[], Iterator[Evidence]]], ...] = (
        *((find.__name__, partial(find, case)) for find in FINDERS),
        *((find.__name__, partial(find, case, death)) for find in FINDERS_OF_DEATH),
    )
    for name, find in finders:
        with isolated(say("evidence {name}", name=name), gaps, PATIENCE_S):
            for evidence in find():
                found.setdefault(evidence.name, evidence)
    return found


def _of_death(case: Case, death: Death | None) -> Iterator[Evidence]:
    yield Evidence(
        name=FACT.death.any, value=death is not None, says=(say("something died") if death else say("nothing died"))
    )
    if death is None:
        return
    event = death.event
    origin, text = (event.origin, event.text) if event else (None, None)

    def fact(name: Fact, value: str | int | bool, says: Message) -> Evidence:
        return Evidence(name=name, value=value, says=says, origin=origin, text=text)

    yield fact(FACT.death.killer, death.killer, NOTHING)
    yield fact(FACT.death.host_memory, death.killer in HOST_KILLERS, NOTHING)
    yield fact(
        FACT.death.certain,
        death.certain,
        (say("the killer names itself") if death.certain else say("the process only vanished")),
    )
    if death.step is not None:
        yield fact(FACT.death.step, death.step, say("it happened in step {step}", step=death.step))
    if event is not None and (later := later_steps(case, event)):
        yield fact(
            FACT.death.later_steps_count,
            later,
            plural("the log shows {n} further step behind it", "the log shows {n} further steps behind it", later),
        )
    yield from steps.find_first_step(case, death)
    yield from steps.find_after_training(case, death)
    before = [e for e in case.events if event is None or _precedes(e, event)]
    marks = [
        e
        for e in before
        if e.kind
        in (
            EVENT.deepspeed.optimizer_init,
            EVENT.deepspeed.zero_stage,
            EVENT.deepspeed.checkpoint_load,
            EVENT.deepspeed.checkpoint_save,
            EVENT.phase.update,
            EVENT.phase.rollout,
            EVENT.phase.step,
            EVENT.phase.checkpoint,
            EVENT.phase.checkpoint_load,
            EVENT.phase.load,
            EVENT.vllm.blocks,
            EVENT.deepspeed.cpu_adam,
            EVENT.phase.finished,
        )
    ]
    if death.phase:
        mark = next((e for e in reversed(before) if MARKS.get(e.kind) == death.phase), None)
        yield Evidence(
            name=FACT.death.phase,
            value=death.phase,
            says=NOTHING,
            origin=mark.origin if mark else None,
            text=mark.text if mark else None,
        )
    if marks:
        yield Evidence(
            name=FACT.death.last_mark, value=marks[-1].kind, says=NOTHING, origin=marks[-1].origin, text=marks[-1].text
        )
    first_steps = case.first(EVENT.phase.first_steps)
    if first_steps is not None:
        yield Evidence(
            name=FACT.death.first_optimizer_step,
            value=True,
            says=NOTHING,
            origin=first_steps.origin,
            text=first_steps.text,
        )
