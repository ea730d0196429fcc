"""Who killed what, when, in which phase: the first failure, as opposed to secondary ones.

A certain killer (a kernel line, Ray's monitor, an allocator's error) outranks a timeout, a
timeout outranks an exception, and all outrank a process that merely vanished, because each of
them makes the ones below it. Among equals the earliest counts, not the loudest.
"""

from __future__ import annotations

import re
from dataclasses import replace

from rlhfdoctor.evidence.case import Case, number, page_size, whole
from rlhfdoctor.evidence.classify import RAY_SERVICE, classify
from rlhfdoctor.evidence.ending import find_shutdown, stands_behind
from rlhfdoctor.evidence.flight import find_flight
from rlhfdoctor.evidence.handled import without_handled
from rlhfdoctor.evidence.roles import MARKS, find_phase, find_role
from rlhfdoctor.evidence.setup import find_refused
from rlhfdoctor.evidence.steps import last_step
from rlhfdoctor.evidence.survived import without_survived
from rlhfdoctor.evidence.window import find_culprit, kernel_was_silent
from rlhfdoctor.logs.kernel import read_oom_kill
from rlhfdoctor.types import Death, Event, Origin, Process
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD
from rlhfdoctor.vocabulary.run import HOST_KILLERS, KERNEL_KILLERS, PHASES, TIMEOUT, VANISHED, Failure, Phase

_NEAR_LINES = 12
_TRACEBACK_LINES = 60
_EXIT_LINES = 30
_AT_EXIT = ("_exitfunc", "_run_exitfuncs")
"""Of weakref and atexit: the program was over."""
_LOST_PEER = (EVENT.gloo.closed, EVENT.nccl.remote_error, EVENT.nccl.closed_by_peer)
_AT_SHUTDOWN = (EVENT.slurm.cancelled, EVENT.vllm.engine_dead)
"""What ends behind a run that ended well is no failure of it."""
_RAY_ITSELF = re.compile(r"(?:site|dist)-packages/ray/|/ray/_private/")


def find_death(case: Case) -> Death | None:
    """The first failure of a run, or None if nothing died."""
    shown = [(event, found) for event in case.events if (found := classify(event))]
    over = find_shutdown(case)
    shown = [item for item in shown if not (over and item[0].kind in _AT_SHUTDOWN and stands_behind(item[0], over))]
    if not shown:
        return _cut_traceback(case, over) or _stuck(case)
    shown = without_handled(case, _without_cleanup(case, _without_lost_peers(case, shown)))
    shown = without_survived(case, shown)
    if not shown:
        return None
    best_rank = min(rank for _, (_, rank) in shown)
    vanished = [event for event, (_, rank) in shown if rank == VANISHED and event.time is not None]
    timeouts = [event for event, (_, rank) in shown if rank == TIMEOUT and event.time is not None]
    if best_rank == TIMEOUT and vanished and timeouts and (vanished[0].time or 0) < (timeouts[0].time or 0) - 5:
        best_rank = VANISHED  # a process was gone before the others waited in vain
        shown = [(event, found) for event, found in shown if found[1] == VANISHED]
    event, (killer, _) = _first([item for item in shown if item[1][1] == best_rank])
    if killer == "kernel-oom-node" and _in_cgroup(case, event):
        killer = "kernel-oom-cgroup"
    event = _decisive(case, event, killer)
    return _with_trace(
        case,
        Death(
            killer=killer,
            time=event.time if event.time is not None else _time_near(case, event),
            phase=_phase(case, event),
            step=last_step(case, event),
            node=event.origin.host,
            victim=_victim(case, event, killer),
            culprit=_culprit(case, killer),
            event=event,
            certain=best_rank != VANISHED,
        ),
    )


def _first(shown: list[tuple[Event, Failure]]) -> tuple[Event, Failure]:
    """The earliest; where files without times cannot be put in order, the first that has to do with memory."""
    first = shown[0]
    unordered = [item for item in shown if item[0].time is None and item[0].origin.file != first[0].origin.file]
    if first[0].time is not None or not unordered or first[1].killer in HOST_KILLERS:
        return first
    return next((item for item in unordered if item[1].killer in HOST_KILLERS), first)


def _without_lost_peers(case: Case, shown: list[tuple[Event, Failure]]) -> list[tuple[Event, Failure]]:
    """Without what a survivor raises as its connection closes, where something shows how the other one ended."""
    lost = {(e.origin.file, e.origin.line) for e in case.of(*_LOST_PEER)}
    rest = [(event, found) for event, found in shown if (event.origin.file, event.origin.line) not in lost]
    ended = any(found.certainty != VANISHED or found.killer == "sigkill-unknown" for _, found in rest)
    return rest if ended else shown


def _without_cleanup(case: Case, shown: list[tuple[Event, Failure]]) -> list[tuple[Event, Failure]]:
    """Without a script's own end by SIGTERM behind the line on its child, and what fails as the interpreter exits."""
    killed = {e.origin.file: e.origin.line or 0 for e, _ in reversed(shown) if e.kind == EVENT.shell.killed}
    exits: dict[str, list[int]] = {}
    for frame in case.of(EVENT.python.frame):
        if frame.fields.get(FIELD.function_text) in _AT_EXIT:
            exits.setdefault(frame.origin.file, []).append(frame.origin.line or 0)

    def is_cleanup(event: Event) -> bool:
        file, line = event.origin.file, event.origin.line or 0
        if event.kind == EVENT.shell.terminated:
            return line > killed.get(file, line)
        return event.kind == EVENT.python.error and any(0 < line - at <= _EXIT_LINES for at in exits.get(file, ()))

    return [(event, found) for event, found in shown if not is_cleanup(event)]


def _with_trace(case: Case, death: Death) -> Death:
    """The death with what the recorder measured: roles by pid, the process that was gone then, and who held most."""
    if not case.traces:
        return death
    victim = death.victim
    if victim.pid is None and death.time is not None:
        gone = [e for e in case.of(EVENT.trace.gone) if e.time is not None and abs(e.time - (death.time or 0)) < 5]
        if gone:
            top = max(gone, key=lambda e: number(e, FIELD.rss_anon_bytes) or 0)
            held = (whole(top, FIELD.rss_anon_bytes) or 0) + (whole(top, FIELD.rss_shmem_bytes) or 0)
            victim = replace(victim, name=str(top.fields.get(FIELD.name) or ""), pid=whole(top, FIELD.pid), bytes=held)
    role, name = next(
        (found for trace in case.traces if (found := trace.role_of(victim.pid)) != (None, None)), (None, None)
    )
    victim = replace(victim, role=role or victim.role, name=name or victim.name)
    known = (
        death.event is not None
        and death.event.kind == EVENT.trace.job_exit
        and all(map(kernel_was_silent, case.traces))
    )
    death = replace(death, victim=victim, certain=death.certain or known)
    return replace(death, culprit=find_culprit(case, death) or death.culprit)


_SAY_LEVEL = (
    *(EVENT.kernel.oom_kill, EVENT.kernel.kill_choice, EVENT.kernel.killed),
    *(EVENT.kernel.memcg_usage, EVENT.kernel.memcg_trace),
)


def _in_cgroup(case: Case, event: Event) -> bool:
    """Whether the verdict lines after the first line of an OOM report name a cgroup's limit."""
    for other in case.of(*_SAY_LEVEL):
        behind = (other.origin.line or 0) >= (event.origin.line or 0)
        if other.origin.file == event.origin.file and behind:
            shown = classify(other)
            return shown is None or shown[0] == "kernel-oom-cgroup"
    return False


def _decisive(case: Case, event: Event, killer: str) -> Event:
    """The most informative line of the same death: numbers rather than a class name or a notice."""
    better = {
        "ray-memory-monitor": (
            EVENT.ray.memory_kill,
            EVENT.ray.memory_kill_numbers,
            EVENT.ray.memory_kill_old,
            EVENT.ray.memory_summary,
        ),
        "cuda-oom": (EVENT.torch.cuda_oom, EVENT.vllm.wake_oom),
        "kernel-oom-cgroup": (EVENT.kernel.killed, EVENT.kernel.oom_kill),
        "kernel-oom-node": (EVENT.kernel.killed, EVENT.kernel.oom_kill),
        "sigkill-unknown": (EVENT.ray.worker_vanished, EVENT.deepspeed.exit, EVENT.torch.process_failed),
    }.get(killer, ())
    for kind in better:
        found = case.first(kind)
        if found is not None and (kind != EVENT.deepspeed.exit or number(found, FIELD.exit_code) == -9):
            return found
    return event


def _cut_traceback(case: Case, over: Origin | None) -> Death | None:
    """A traceback whose end is missing: the exception is unknown."""
    traced = [e for e in case.of(EVENT.python.traceback, EVENT.python.frame) if not RAY_SERVICE.search(e.origin.file)]
    event = next(
        (e for e in reversed(traced) if e.kind == EVENT.python.traceback), traced[-1] if len(traced) > 2 else None
    )
    event = event or case.last(
        EVENT.ray.actor_died,
        EVENT.ray.unhandled_task_error,
        EVENT.ray.task_error,
        EVENT.torch.child_failed,
        EVENT.config.overrides,
    )
    if event is None or (over and stands_behind(event, over)):
        return None
    frames = [str(e.fields.get(FIELD.function_text)) for e in case.of(EVENT.python.frame)]
    waking = any("wake_up" in name or "cumem" in name for name in frames)
    return Death(
        killer="cuda-oom" if waking and case.first(EVENT.ray.unhandled_task_error, EVENT.vllm.awake) else "exception",
        time=event.time,
        phase=_phase(case, event),
        step=last_step(case, event),
        event=event,
        certain=False,
    )


def _stuck(case: Case) -> Death | None:
    """Ranks that part for good by their flight recorders; or a run whose requested resources were never granted."""
    parted = next(
        (e for e in find_flight(case) if e.name in (FACT.comm.op_differs, FACT.comm.numel_differs, FACT.comm.all_wait)),
        None,
    )
    if parted is not None:
        shown = next(
            (e for e in case.of(EVENT.flight.collective) if (e.origin, e.text) == (parted.origin, parted.text)), None
        )
        return Death(killer="collective-timeout", event=shown or case.first(EVENT.flight.dump), certain=False)
    _, asked = find_refused(case)
    return None if asked is None else Death(killer="", time=asked.time, event=asked, certain=False)


def _time_near(case: Case, event: Event) -> float | None:
    """The last stamp a few lines before an unstamped line of the same file."""
    times = [
        e.time
        for e in case.events
        if e.origin.file == event.origin.file
        and e.time is not None
        and e.kind != EVENT.ray.monitor_start
        and 0 <= (event.origin.line or 0) - (e.origin.line or 0) <= _NEAR_LINES
    ]
    return times[-1] if times else None


_SEEN_BY_DRIVER = (
    EVENT.ray.worker_vanished,
    EVENT.ray.worker_died,
    EVENT.ray.actor_died,
    EVENT.deepspeed.exit,
    EVENT.deepspeed.killing,
    EVENT.torch.process_failed,
    EVENT.shell.killed,
)
"""How a kill that the kernel logged looks from the driver, if the phase is known."""


def _on_one_line(one: Event, two: Event) -> bool:
    return (one.origin.file, one.origin.line) == (two.origin.file, two.origin.line) and one.origin.line is not None


def _phase(case: Case, event: Event) -> Phase | None:
    if event.kind in (EVENT.nccl.timeout, EVENT.gloo.timeout, EVENT.nccl.heartbeat):
        stacks = {str(e.fields.get(FIELD.function_text)) for e in case.of(EVENT.python.frame)}
        if stacks & {"generate", "sample", "_sample", "generate_sequences"}:
            return "rollout"
    rows = [str(row.fields.get(FIELD.name)) for row in case.of(EVENT.ray.memory_row)]
    named = [phase for name in rows if (phase := find_phase(name))]
    if named:
        return max(set(named), key=named.count)
    victim = case.first(EVENT.ray.memory_kill_victim, EVENT.ray.task_error, EVENT.ray.unhandled_task_error)
    found = find_phase(str(victim.fields.get(FIELD.name))) if victim is not None else None
    if found:
        return found
    seen_in_log = (
        event if event.time is not None or event.kind.scope not in ("kernel", "slurm", "k8s", "docker") else None
    )
    place = seen_in_log or case.first(*_SEEN_BY_DRIVER) or event
    lost = [e.origin for e in case.of(*_LOST_PEER) if e.origin.line != event.origin.line]
    frames = [
        e
        for e in case.around(place, 80)
        if e.kind == EVENT.python.frame
        and not _RAY_ITSELF.search(str(e.fields.get(FIELD.path_text)))
        and not any(_leads_to(e.origin, end) for end in lost)
    ]
    for frame in reversed(frames):
        code = frame.after[0] if frame.after and 'File "' not in frame.after[0] else ""
        if found := find_phase(code) or find_phase(str(frame.fields.get(FIELD.function_text))):
            return found
    event = place
    position = list(case.events).index(event) if event in case.events else len(case.events)
    behind = [e for e in list(case.events)[position + 1 :] if _on_one_line(e, event)]  # a bar has no end of line
    stepped = False
    for before in reversed([*list(case.events)[:position], *behind]):
        late = before.repeats_count > 1 or "100%" in before.text  # flushed seconds later
        stepped = stepped or (before.kind in (EVENT.phase.step, EVENT.phase.episode) and not late)
        if before.kind == EVENT.trace.mark and before.fields.get(FIELD.phase) in PHASES:
            return before.fields[FIELD.phase]  # type: ignore[return-value]
        if before.kind in MARKS:
            over = stepped and MARKS[before.kind] in ("checkpoint", "load")  # steps followed after it
            return None if over else MARKS[before.kind]
    later = [e for e in case.events if e.kind in MARKS and e.origin.file != event.origin.file]
    return MARKS[later[-1].kind] if later and event.time is None else None


def _leads_to(frame: Origin, lost: Origin) -> bool:
    """Whether a frame is of the traceback that ends in a lost connection, which is a survivor's and not the death."""
    lines = (lost.line or 0) - (frame.line or 0)
    return (lost.file, lost.rank) == (frame.file, frame.rank) and 0 < lines <= _TRACEBACK_LINES


_GONE = (EVENT.ray.worker_vanished, EVENT.ray.worker_died)


def _victim(case: Case, event: Event, killer: str) -> Process:
    if killer in KERNEL_KILLERS:
        killed = case.first(EVENT.kernel.killed)
        if killed is not None:
            sizes = [number(killed, key) or 0 for key in (FIELD.anon_bytes, FIELD.file_bytes, FIELD.shmem_bytes)]
            comm = str(killed.fields.get(FIELD.comm))
            return Process(role=find_role(comm), name=comm, pid=whole(killed, FIELD.pid), bytes=int(sum(sizes)))
        choice = case.first(EVENT.kernel.oom_kill)
        if choice is not None:
            keys = read_oom_kill(str(choice.fields.get(FIELD.rest_text, "")))
            pid = keys.get("pid")
            return Process(
                name=str(keys.get("task") or "") or None,
                pid=pid if isinstance(pid, int) else None,
                role=find_role(str(keys.get("task"))),
            )
    if killer == "ray-memory-monitor":
        victim = case.first(EVENT.ray.memory_kill_victim)
        if victim is not None:
            task = str(victim.fields.get(FIELD.name) or "") or None
            return Process(
                role=find_role(task), name=task, pid=whole(victim, FIELD.pid), bytes=whole(victim, FIELD.victim_bytes)
            )
    actor = case.first(EVENT.ray.actor_class)
    name = event.origin.actor or (str(actor.fields.get(FIELD.name)) if actor is not None else None)
    if name == "raylet":
        name = str(actor.fields.get(FIELD.name)) if actor is not None else None
    pid = whole(event, FIELD.pid) or (event.origin.pid if event.origin.actor != "raylet" else None)
    if pid is None and event.kind in _GONE:  # the driver's line of an actor names no pid, the raylet's beside it does
        pid = next(
            (at for e in case.around(event, _NEAR_LINES) if e.kind in _GONE and (at := whole(e, FIELD.pid))), None
        )
    return Process(role=find_role(name), name=name, pid=pid, rank=event.origin.rank)


def _culprit(case: Case, killer: str) -> Process | None:
    """Who held most when it happened, by the kernel's task table or Ray's."""
    table = case.of(EVENT.kernel.task)
    if killer in KERNEL_KILLERS and table:
        top = max(table, key=lambda row: number(row, FIELD.rss_pages) or 0)
        comm = str(top.fields.get(FIELD.comm))
        size = (whole(top, FIELD.rss_pages) or 0) * page_size(table, case.first(EVENT.kernel.killed))
        return Process(role=find_role(comm), name=comm, pid=whole(top, FIELD.pid), bytes=size)
    if killer == "ray-memory-monitor":
        rows = case.of(EVENT.ray.memory_row)
        if rows:
            top = max(rows, key=lambda row: number(row, FIELD.rss_bytes) or 0)
            name = f"ray::{top.fields.get(FIELD.name)}"
            return Process(
                role=find_role(name), name=name, pid=whole(top, FIELD.pid), bytes=whole(top, FIELD.rss_bytes)
            )
    return None
