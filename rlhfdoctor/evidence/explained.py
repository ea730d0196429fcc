"""The bytes explained: what processes held, which configurations may have run, facts about the consumer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rlhfdoctor.budget.layout import make_plans
from rlhfdoctor.budget.shapes import Shape, find_shape, of_size
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.evidence.case import Case, fact, page_size, whole
from rlhfdoctor.evidence.offload import case_inputs, find_model_size
from rlhfdoctor.evidence.ray_memory import read_rows
from rlhfdoctor.evidence.roles import find_role
from rlhfdoctor.evidence.window import NO_ROLE, find_failure_window, find_process_usage
from rlhfdoctor.explain.hypotheses import Hypothesis, Seen, configured, generic
from rlhfdoctor.explain.measured import Holder, group
from rlhfdoctor.explain.table import MODELLED, TEN, explain, ranks_of
from rlhfdoctor.explanation import COMPONENT_SAYS, LIKELY, Explanation
from rlhfdoctor.i18n.message import Message, say, term
from rlhfdoctor.logs.kernel import read_task
from rlhfdoctor.types import Death, Event, Evidence
from rlhfdoctor.units import MIB
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT
from rlhfdoctor.vocabulary.run import OTHER, SIGKILLERS

_LEAST_BYTES = 128 * MIB
"""Tables whose processes hold less than this together explain no run."""
_HYBRID = re.compile(r"WorkerDict|FSDPWorker|ActorRollout")
"""Classes of processes that hold all roles and the engine (verl and its forks)."""
_OFFLOADED = ("optimizer", "gradients", "page-lock rounding")
"""Components that are in host memory only because the optimizer is offloaded."""
_BYSTANDER_RATIO = 1 / 3
"""Judgement: a victim that held less than this of the largest process's memory did not fill it."""
_PHASES: Mapping[str, tuple[str, ...]] = {
    "load": ("load", "resume"),
    "checkpoint": ("checkpoint", "final_save"),
    "rollout": ("rollout",),
    "score": ("score",),
    "update": ("update",),
    "weight_sync": ("weight_sync",),
}
"""Phase of a death -> phases of the budget."""
_KNOWN_PHASE, _OTHER_PHASE, _UNHEARD_PHASE = 6.0, 0.5, 0.1
"""Prior of a phase that the logs name against any other: marks may be a phase behind. A run that reads a checkpoint
says so, or its configuration does."""


def find_explanation(case: Case, death: Death | None) -> Explanation | None:
    """What explains the bytes of each process; None where no process was measured, or none was killed."""
    if death is None or death.killer not in SIGKILLERS:
        return None
    holders, basis = _measured(case, death)
    if sum(holder.bytes for holder in holders) < _LEAST_BYTES:
        return None
    named = _PHASES.get(death.phase or "", ())
    every = {phase for phases in _PHASES.values() for phase in phases}
    phases = {phase: _KNOWN_PHASE if phase in named else _OTHER_PHASE for phase in every}
    if not _resumes(case):
        phases["resume"] = _UNHEARD_PHASE
    return explain(holders, _hypotheses(case, holders), phases, basis=basis, victim=death.victim.pid)


def _resumes(case: Case) -> bool:
    """Whether anything says that a checkpoint was read."""
    setting = case.setting("checkpoint.resume")
    wanted = setting is not None and setting.value not in (None, False, "", "disable", "false")
    return wanted or bool(case.of(EVENT.deepspeed.checkpoint_load, EVENT.phase.checkpoint_load))


def facts_of(found: Explanation) -> Iterator[Evidence]:
    """Who holds most, with what, and whether that is certain enough to be a fact."""
    row, likely = found.rows[0], found.likely
    share = row.bytes / max(found.total_bytes, 1)
    role = term(row.role)
    yield fact(FACT.consumer.role, row.role, say("{role} held {size:bytes}", role=role, size=row.bytes))
    yield fact(
        FACT.consumer.role_ratio,
        share,
        say("{role} held {share:share} of what was measured in processes", role=role, share=share),
    )
    if likely is not None:
        what = COMPONENT_SAYS[likely.component]
        yield fact(
            FACT.consumer.component,
            likely.component,
            say("most of what {role} held is explained by {what}", role=role, what=what),
        )
    offloaded = sum(suspect.probability for suspect in found.suspects if suspect.component in _OFFLOADED)
    if found.on_gpus and offloaded >= LIKELY:
        yield fact(
            FACT.consumer.offloaded,
            True,
            say("what {role} held fits an optimizer that is offloaded to host memory", role=role),
        )
    if found.copy is not None:
        what = COMPONENT_SAYS[found.copy.component]
        says = say("a part of what {role} held is explained by {what}", role=role, what=what)
        yield fact(FACT.consumer.copy, found.copy.component, says)
    if row.parts and row.parts[0].component != "process":
        rest = max(row.rest_bytes, 0) / max(row.bytes, 1)
        yield fact(
            FACT.consumer.rest_ratio,
            rest,
            say("{rest:share} of what {role} held is explained by no part of its configuration", rest=rest, role=role),
        )
    if found.victim_ratio is not None and found.victim_ratio < _BYSTANDER_RATIO:
        yield fact(
            FACT.consumer.victim_is_bystander,
            True,
            say(
                "the process that was killed held {share:share} of what the largest one did: {role} filled the memory",
                share=found.victim_ratio,
                role=role,
            ),
        )


def _measured(case: Case, death: Death) -> tuple[list[Holder], Message]:
    """Bytes of each process: of the trace at its peak, else of the kernel's task table, else of Ray's largest."""
    window = find_failure_window(case, death)
    if window is not None and window.use:
        peak_s = max(window.use, key=lambda point: point[1])[0]
        usages = find_process_usage(window, peak_s)
        rows = [
            Holder(
                role=None if usage.role == NO_ROLE else usage.role,
                name=usage.name,
                pid=usage.pid,
                bytes=usage.bytes,
                shmem_bytes=usage.shmem_bytes,
            )
            for usage in usages
        ]
        if rows:
            return rows, say("anonymous and shared memory at the peak, {at:time}", at=peak_s)
    tasks = case.of(EVENT.kernel.task)
    if tasks:
        where = death.event.origin.file if death.event is not None else ""
        file = where if any(row.origin.file == where for row in tasks) else tasks[0].origin.file
        return list(_of_kernel(case, death, file)), say(
            "the kernel's task table, file pages left out where they are known"
        )
    top, _ = read_rows(case)
    return [_holder(name, pid, size) for pid, size, name in top], say("Ray's ten largest")


def _holder(name: str, pid: int, size: int, shmem: int | None = None) -> Holder:
    role = find_role(name)
    return Holder(role=None if role in (None, "doctor") else role, name=name, pid=pid, bytes=size, shmem_bytes=shmem)


def _report(case: Case, death: Death, file: str) -> tuple[Event | None, int, int]:
    """The kill that is explained, and the lines between which its report stands: a log may hold several."""
    kills = [e for e in case.of(EVENT.kernel.killed) if e.origin.file == file]
    own = next((e for e in kills if e is death.event or e.fields.get(FIELD.pid) == death.victim.pid), None)
    killed = own or (kills[0] if kills else None)
    last = killed.origin.line or 0 if killed is not None else 2**62
    return killed, max((e.origin.line or 0 for e in kills if (e.origin.line or 0) < last), default=0), last


def _of_kernel(case: Case, death: Death, file: str) -> Iterator[Holder]:
    """Rows of one kernel log, a process once; the victim's own line splits its memory where the table does not."""
    killed, first, last = _report(case, death, file)
    header = next((e for e in case.of(EVENT.kernel.task_header) if e.origin.file == file), None)
    tasks = [row for row in case.of(EVENT.kernel.task) if row.origin.file == file]
    tasks = [row for row in tasks if first < (row.origin.line or 0) < last] or tasks
    rows = {whole(row, FIELD.pid) or 0: row for row in tasks}
    page = page_size(list(rows.values()), killed)
    columns = str(header.fields.get(FIELD.columns_text)) if header is not None else None
    files = whole(killed, FIELD.file_bytes) or 0
    for pid, row in rows.items():
        yield _of_row(row, pid, page, columns, killed if whole(killed, FIELD.pid) == pid else None, files)


def _of_row(row: Event, pid: int, page: int, columns: str | None, killed: Event | None, files: int) -> Holder:
    """A row; without columns of its own, file pages are as many as the victim had, up to a half."""
    name, rss = str(row.fields[FIELD.comm]), (whole(row, FIELD.rss_pages) or 0) * page
    split = read_task({"rest_text": str(row.fields.get(FIELD.rest_text, ""))}, columns)
    anon, shmem = split.get("rss_anon"), split.get("rss_shmem")
    if isinstance(anon, int) and isinstance(shmem, int):
        return _holder(name, pid, (anon + shmem) * page, shmem * page)
    shared = whole(killed, FIELD.shmem_bytes)
    return _holder(name, pid, rss - min(files, rss // 2), shared)


def _hypotheses(case: Case, holders: list[Holder]) -> list[Hypothesis]:
    """Of the configuration at hand, else of all that the processes' roles and the model's name leave possible."""
    inputs, _ = case_inputs(case)
    may_be_cpu = case.has(TRAIT.trains_on_cpus)
    try:
        return configured(make_plans(inputs), frozenset(inputs.settings), also_cpu=may_be_cpu)
    except DoctorError:  # no framework, no size of its model, or one that the budget does not know
        pass
    groups = group(holders)
    models = frozenset(one.role for one in groups if one.role in MODELLED)
    shape = _shape(case)
    trains = case.framework is not None or shape is not None  # else an unnamed process may be anything
    if not models and not (trains and groups and groups[0].role == OTHER and groups[0].name):
        return []
    ranks = ranks_of(groups, cut=len(holders) <= TEN)
    hybrid = bool(models) and (
        any(_HYBRID.search(holder.name) for holder in holders) or case.has(TRAIT.engine_colocated)
    )
    roles = models or frozenset(("actor",))
    return generic(Seen(roles=roles, ranks=ranks, hybrid=hybrid, shape=shape, release=case.version("deepspeed")))


def _shape(case: Case) -> Shape | None:
    """The model's shape by its name in a setting, else its size by a line of a log; None if unknown."""
    for setting in case.models():
        found = find_shape(str(setting.value))
        if found is not None:
            return found
    size = find_model_size(case)
    return of_size(size[0] * 1e9) if size is not None else None
