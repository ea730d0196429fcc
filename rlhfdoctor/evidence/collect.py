"""All evidence of a case, one host at a time, each part on its own: one failing part hides no other."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from rlhfdoctor.evidence import comm, gpu, host, offload
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.death import classify
from rlhfdoctor.logs.kernel import HARDWARE_XIDS
from rlhfdoctor.types import Death, Event, Evidence, Gap
from rlhfdoctor.units import show_bytes

Part = Callable[[Case], Iterator[Evidence]]


def _precedes(one: Event, death: Event) -> bool:
    """Whether an event came before the death and is not part of its report (Ray's table names tasks)."""
    if "ray::" in one.text and re.search(r"\d+\.\d\d[ \t]+ray::|where the task \(|Selected to kill", one.text):
        return False
    if one.origin.file == death.origin.file:
        return (one.origin.line or 0) < (death.origin.line or 0)
    return one.time is None or death.time is None or one.time <= death.time


def find_errors(case: Case) -> Iterator[Evidence]:
    """An error that the program raised itself; what the object store and the GPU driver report."""
    own = [
        e for e in case.of("python.error", "python.bare_error") if (found := classify(e)) and found[0] == "exception"
    ]
    own = [e for e in own if not _RESOURCE.search(e.text)]
    if own:
        says = f"{own[-1].fields.get('name')}: {own[-1].fields.get('message_text', '')}"[:300]
        yield Evidence(name="python.own_error", value=True, says=says, origin=own[-1].origin, text=own[-1].text)
        yield Evidence(name="python.error_says", value=says, says=says, origin=own[-1].origin, text=own[-1].text)
    else:
        crash = case.first("python.signal", "python.fatal", "kernel.segfault", "torch.cuda_error", "torch.cuda_oom")
        says = (
            _crash_says(case, crash)
            if crash is not None
            else "The program ended with an error whose text is not in the logs."
        )
        yield Evidence(name="python.error_says", value=says, says=says, origin=crash.origin if crash else None)
    for event in case.of("kernel.xid"):
        if event.fields.get("xid") in HARDWARE_XIDS:
            yield Evidence(name="gpu.hardware_xid", value=event.fields["xid"], says=f"Xid {event.fields['xid']}", origin=event.origin, text=event.text)  # fmt: skip
    fabric = case.first("nccl.ib_error", "nccl.socket_setup")
    if fabric is not None:
        yield Evidence(name="nccl.ib_text", value=fabric.text[-200:], says=fabric.text[-200:], origin=fabric.origin)
    for kind, key in (("ray.object_store_capacity", "capacity_bytes"), ("ray.object_store_usage", "capacity_bytes")):
        store = case.first(kind)
        value = store.fields.get(key) if store is not None else None
        if store is not None and isinstance(value, int):
            yield Evidence(name="store.capacity_bytes", value=value, says=f"the object store holds {show_bytes(value)}", origin=store.origin, text=store.text)  # fmt: skip


def _crash_says(case: Case, crash: Event) -> str:
    """A crash with the Python frame that faulthandler shows for it."""
    frames = [
        e
        for e in case.around(crash, 40)
        if e.kind == "python.frame" and (e.origin.line or 0) > (crash.origin.line or 0)
    ]
    own = next((e for e in frames if "-packages/" not in e.text and "/lib/python" not in e.text), None)
    what = str(crash.fields.get("name") or crash.fields.get("error_text") or crash.text[:200])
    if own is None:
        return f"{what}; no Python frame is shown for it."
    return (
        f"{what} in {own.fields.get('function_text')}(), {own.fields.get('path_text')} line {own.fields.get('line')}."
    )


_RESOURCE = re.compile(r"out of memory|No available memory|cache blocks|KV cache|Errno 28|Errno 12|Errno 24|object store|/dev/shm|NCCL|Connection|killed by signal|ECC error|Memory usage increased|Free memory on device|Resource temporarily|process group", re.I)  # fmt: skip
PARTS: tuple[Part, ...] = (
    host.find_kernel,
    host.find_ray,
    host.find_limits,
    host.find_available,
    host.find_growth,
    gpu.find_cuda,
    gpu.find_engine,
    comm.find_collectives,
    comm.find_peer,
    offload.find_offload,
    offload.find_cures,
    find_errors,
)
HOST_KILLERS = ("kernel-oom-cgroup", "kernel-oom-node", "ray-memory-monitor")


def find_evidence(case: Case, death: Death | None, gaps: list[Gap]) -> dict[str, Evidence]:
    """Name -> evidence; the first of a name wins."""
    found: dict[str, Evidence] = {}
    for evidence in _of_death(case, death):
        found.setdefault(evidence.name, evidence)
    for part in PARTS:
        try:
            for evidence in part(case):
                found.setdefault(evidence.name, evidence)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            gaps.append(Gap(what=f"evidence {part.__name__}", why=f"{type(error).__name__}: {error}"))
    return found


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
    finished = case.first("phase.step", "phase.episode", "phase.update", "phase.finished")
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
