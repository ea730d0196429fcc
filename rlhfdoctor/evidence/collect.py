"""All evidence of a case, one host at a time, each part on its own: one failing part hides no other."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import partial

from rlhfdoctor.evidence import comm, cures, flight, gpu, host, offload, process, program, recorded, setup, shm, workers
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.killer import classify
from rlhfdoctor.types import Death, Event, Evidence, Gap
from rlhfdoctor.units import show_bytes

Finder = Callable[[Case], Iterator[Evidence]]


def _precedes(one: Event, death: Event) -> bool:
    """Whether an event came before the death and is not part of its report (Ray's table names tasks)."""
    if "ray::" in one.text and re.search(r"\d+\.\d\d[ \t]+ray::|where the task \(|Selected to kill", one.text):
        return False
    if one.origin.file == death.origin.file:
        return (one.origin.line or 0) < (death.origin.line or 0)
    return one.time is None or death.time is None or one.time <= death.time


FINDERS: tuple[Finder, ...] = (
    host.find_kernel,
    host.find_ray,
    host.find_limits,
    host.find_available,
    host.find_growth,
    gpu.find_cuda,
    gpu.find_engine,
    gpu.find_growth,
    comm.find_collectives,
    flight.find_flight,
    comm.find_peer,
    offload.find_offload,
    cures.find_cures,
    offload.find_states,
    program.find_errors,
    setup.find_setup,
)
FINDERS_OF_DEATH: tuple[Callable[[Case, Death | None], Iterator[Evidence]], ...] = (
    recorded.find_recorded,
    workers.find_workers,
    shm.find_leaks,
    process.find_process_limit,
)
"""Those that also ask who was killed, and when."""
HOST_KILLERS = ("kernel-oom-cgroup", "kernel-oom-node", "ray-memory-monitor")


def find_evidence(case: Case, death: Death | None, gaps: list[Gap]) -> dict[str, Evidence]:
    """Name -> evidence; the first of a name wins."""
    found: dict[str, Evidence] = {}
    for evidence in _of_death(case, death):
        found.setdefault(evidence.name, evidence)
    finders: tuple[tuple[str, Callable[[], Iterator[Evidence]]], ...] = (
        *((find.__name__, partial(find, case)) for find in FINDERS),
        *((find.__name__, partial(find, case, death)) for find in FINDERS_OF_DEATH),
    )
    for name, find in finders:
        try:
            for evidence in find():
                found.setdefault(evidence.name, evidence)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            if os.environ.get("RLHFDOCTOR_DEBUG"):  # as in all tests
                raise
            gaps.append(Gap(what=f"evidence {name}", why=f"{type(error).__name__}: {error}"))
    return found


def _step_mark(case: Case) -> Event | None:
    """A mark of the trainer that a step behind the first has begun."""
    return next((e for e in case.of("trace.mark") if isinstance(e.fields.get("step"), int) and e.fields["step"] not in (-1, 0)), None)  # fmt: skip


def _of_death(case: Case, death: Death | None) -> Iterator[Evidence]:
    yield Evidence(name="death.any", value=death is not None, says="something died" if death else "nothing died")
    if death is None:
        return
    event = death.event
    origin, text = (event.origin, event.text) if event else (None, None)

    def fact(name: str, value: str | int | bool, says: str) -> Evidence:
        return Evidence(name=name, value=value, says=says, origin=origin, text=text)

    yield fact("death.killer", death.killer, "")
    yield fact("death.host_memory", death.killer in HOST_KILLERS, "")
    yield fact("death.certain", death.certain, "the killer names itself" if death.certain else "the process only vanished")  # fmt: skip
    if event is not None:
        yield fact("death.event", event.kind, f"shown by {event.kind}")
    if death.phase:
        yield fact("death.phase", death.phase, "")
    if death.step is not None:
        yield fact("death.step", death.step, f"it happened in step {death.step}")
    if death.victim.bytes:
        yield fact("death.victim_bytes", death.victim.bytes, f"the victim held {show_bytes(death.victim.bytes)}")
    finished = case.first("phase.step", "phase.episode", "phase.update", "phase.finished") or _step_mark(case)
    yield fact("death.before_first_step", finished is None, "")  # fmt: skip
    before = [e for e in case.events if event is None or _precedes(e, event)]
    marks = [e for e in before if e.kind in ("deepspeed.optimizer_init", "deepspeed.zero_stage", "deepspeed.checkpoint_load", "deepspeed.checkpoint_save", "phase.update", "phase.rollout", "phase.step", "phase.checkpoint", "phase.checkpoint_load", "phase.load", "deepspeed.cpu_adam", "phase.finished")]  # fmt: skip
    if marks:
        yield Evidence(name="death.last_mark", value=marks[-1].kind, says="", origin=marks[-1].origin, text=marks[-1].text)  # fmt: skip
    first_steps = case.first("phase.first_steps")
    if first_steps is not None:
        yield Evidence(name="death.first_optimizer_step", value=True, says="", origin=first_steps.origin, text=first_steps.text)  # fmt: skip
    others = {found[0] for e in case.events if (found := classify(e)) and found[0] != death.killer}
    yield fact("death.other_killers", ", ".join(sorted(others)), f"other deaths in the logs: {', '.join(sorted(others)) or 'none'}")  # fmt: skip
