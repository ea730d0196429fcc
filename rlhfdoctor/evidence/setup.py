"""Facts about the setup itself: activations recomputed or kept, a mixture of experts, releases with known faults."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from typing import Any

from packaging.specifiers import SpecifierSet

from rlhfdoctor import documents
from rlhfdoctor.budget.inputs import Inputs, Machine
from rlhfdoctor.errors import PluginError
from rlhfdoctor.evidence.case import Case, fact
from rlhfdoctor.evidence.host import find_total
from rlhfdoctor.i18n.message import NOTHING, plural, say, template
from rlhfdoctor.logs.torch import read_cuda_oom
from rlhfdoctor.settings.spell import FRAMEWORKS, parse_version, spell, spellings
from rlhfdoctor.types import Event, Evidence, Setting
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT
from rlhfdoctor.vocabulary.index import TRAITS
from rlhfdoctor.vocabulary.names import did_you_mean

_EXPERTS = re.compile(
    r"mixtral|\d{1,3}x\d{1,3}(?:\.\d{1,3})?b\b|-a\d{1,3}(?:\.\d{1,3})?b\b|[-_]moe\b|deepseek-(?:v[23]|r1)(?!-distill)"
    r"|gpt-oss|moonlight",
    re.I,
)
"""Names of published mixtures of experts: Mixtral-8x7B, Qwen3-30B-A3B, DeepSeek-V3, gpt-oss-20b."""
_COMPILERS = re.compile(r"cicc|nvcc|ptxas|cc1plus|ninja|cudafe")
_LIFE = (
    "phase.",
    "progress.",
    EVENT.host.used,
    EVENT.gpu.used,
    "vllm.",
    "deepspeed.",
    EVENT.ray.job_succeeded,
    EVENT.ray.spilled,
)
"""Logged only by a run that was granted its resources."""
_OWN_COUNT = 3
"""With this many of the user's own settings found, one that is not among them is at its default."""


def make_inputs(case: Case, machine: Machine, *, planned: bool = False) -> Inputs:
    """Inputs of the budget for a case: its settings, and what its logs show about the machine and edited code.

    Args:
        planned: the files are those of a run to come; a log is that of an earlier one.
    """
    settings = case.in_force(files_first=planned)
    edited = case.first(EVENT.config.pin_edited)
    name = "offload_optimizer.pin_memory"
    if edited is not None and name not in settings:
        framework = case.framework.name if case.framework is not None else ""
        settings[name] = Setting(
            name=name, spelled=name, value=False, framework=framework, origin=edited.origin, form="dump"
        )
    total = find_total(case)
    if machine.host_bytes is None and total is not None and isinstance(total.value, int):
        machine = replace(machine, host_bytes=total.value, host_basis=str(total.origin or ""))
    event = case.first(EVENT.torch.cuda_oom)
    size = read_cuda_oom(" ".join((event.text, *event.after))).get("total_bytes") if event is not None else None
    if machine.gpu_bytes is None and event is not None and isinstance(size, int):
        machine = replace(machine, gpu_bytes=size, gpu_basis=str(event.origin))
    commands = dict.fromkeys(str(event.fields[FIELD.name]) for event in case.of(EVENT.framework.module))
    return Inputs(settings, case.framework, case.versions, machine, commands=tuple(commands))


def machine_of(case: Case) -> Machine:
    """A recorded run on a node without GPUs computes in host memory, where its framework can."""
    no_gpu = bool(case.traces) and not any("gpu" in trace.node.tables for trace in case.traces)
    return Machine(gpus_per_node=0 if no_gpu and case.has(TRAIT.trains_on_cpus) else None)


def find_setup(case: Case) -> Iterator[Evidence]:
    """Facts about settings, model and releases."""
    yield from _recompute(case)
    yield from _experts(case)
    yield from _regressions(case)
    yield from _compilers(case)
    yield from _scheduling(case)


def _recompute(case: Case) -> Iterator[Evidence]:
    """Whether gradient checkpointing is on: set, or the release's default if the whole configuration is known."""
    setting = case.setting("gradient_checkpointing")
    if setting is not None:
        if isinstance(setting.value, bool):
            yield Evidence(
                name=FACT.config.recompute,
                value=setting.value,
                says=say("{spelled} is {value}", spelled=setting.spelled, value=str(setting.value).lower()),
                origin=setting.origin,
            )
            yield Evidence(name=FACT.config.recompute_set, value=True, says=NOTHING)
        return
    framework = case.framework
    if framework is None or framework.name not in FRAMEWORKS:
        return
    own = [s for s in case.settings if s.framework == framework.name and s.span is not None]
    found = spell("gradient_checkpointing", framework.name, framework.version)
    defaults = {s.default for s in spellings("gradient_checkpointing", framework.name) if s.holds_at(framework.version)}
    if len(own) < _OWN_COUNT or found is None or len(defaults) != 1 or not isinstance(found.default, bool):
        return
    says = say(
        "{spelled} is not set, and {default} by default in {name}",
        spelled=found.spelled,
        default=(say("on") if found.default else say("off")),
        name=framework.name,
    )
    yield Evidence(name=FACT.config.recompute, value=found.default, says=says, origin=own[0].origin)


def _experts(case: Case) -> Iterator[Evidence]:
    """Whether the model is a mixture of experts, by its class in the logs or its name in the settings."""
    leaves = case.stated(FACT.config.leaf_modules)
    if leaves is not None:
        yield leaves
    event = next((e for e in case.of(EVENT.config.moe_model) if 'File "' in e.text), None)
    if event is not None:
        yield fact(
            FACT.config.experts, True, say("the model is a mixture of experts (its class is in the logs)"), event
        )
        return
    named = [s for s in case.models() if _EXPERTS.search(str(s.value))]
    if named:
        yield Evidence(
            name=FACT.config.experts,
            value=True,
            says=say("{model} is a mixture of experts", model=named[0].value),
            origin=named[0].origin,
        )


def find_refused(case: Case) -> tuple[int, Event | None]:
    """How often the scheduler refused, and its last line if nothing was started after it.

    A single refusal is also logged while a cluster grows.
    """
    refused = case.of(EVENT.ray.unschedulable)
    count = sum(e.repeats_count for e in refused)
    if count < 2:
        return count, None
    behind = case.events[case.events.index(refused[-1]) + 1 :]
    return count, None if any(e.kind.startswith(_LIFE) for e in behind) else refused[-1]


def _scheduling(case: Case) -> Iterator[Evidence]:
    """Whether the scheduler refused repeatedly, and nothing was started afterwards."""
    count, last = find_refused(case)
    if last is not None:
        yield fact(
            FACT.sched.refused_count,
            count,
            say(
                "the scheduler reported it {times}, and nothing started after it",
                times=plural("{n} time", "{n} times", count),
            ),
            last,
        )


def _compiling(case: Case) -> list[Event]:
    return [
        e
        for e in case.of(EVENT.kernel.task, EVENT.kernel.killed)
        if _COMPILERS.match(str(e.fields.get(FIELD.comm) or ""))
    ]


def _compilers(case: Case) -> Iterator[Evidence]:
    """Compilers in the kernel's task table, or as the victim: a start-up that builds kernels."""
    seen = _compiling(case)
    if seen:
        yield fact(
            FACT.kernel.compiler_count,
            len(seen),
            say(
                "the kernel's report names {processes} ({comm})",
                processes=plural("{n} compiler process", "{n} compiler processes", len(seen)),
                comm=seen[0].fields.get(FIELD.comm),
            ),
            seen[0],
        )
        yield Evidence(name=FACT.regression.says, value=say("compilers ran when memory was short"), says=NOTHING)


@functools.cache
def _known() -> tuple[dict[str, Any], ...]:
    text = (resources.files("rlhfdoctor.evidence") / "regressions.yaml").read_text()
    rows = tuple(documents.parse(text))
    for trait in (trait for row in rows for trait in row.get("not_with", ())):
        if trait not in TRAITS:
            raise PluginError(f"evidence/regressions.yaml: unknown trait '{trait}'.{did_you_mean(trait, TRAITS)}")
    return rows


def _regressions(case: Case) -> Iterator[Evidence]:
    """What is known of the releases in use and fits what happened; the rule checks whether memory really grew."""
    waits = case.first(EVENT.nccl.timeout, EVENT.gloo.timeout, EVENT.nccl.heartbeat) is not None
    symptom = FACT.regression.hang if waits else FACT.regression.host_growth
    symptom = FACT.regression.compile if _compiling(case) else symptom
    for row in _known():
        version = case.version(row["package"])
        here = parse_version(version)
        if (
            here is None
            or f"regression.{row['symptom']}" != symptom
            or here not in SpecifierSet(row["versions"], prereleases=True)
        ):
            continue
        if any(case.has(TRAITS[trait]) for trait in row.get("not_with", ())):
            continue
        where = case.versions.get(row["package"], (None, None))[1]
        says = say("{package} {version}: {says}", package=row["package"], version=version, says=template(row["says"]))
        yield Evidence(
            name=symptom,
            value=True,
            says=say("{package} {version}", package=row["package"], version=version),
            text=where,
        )
        yield Evidence(name=FACT.regression.says, value=says, says=says)
        yield Evidence(
            name=FACT.regression.cure,
            value=template(row["cure"]),
            says=say("{cure} ({reference})", cure=template(row["cure"]), reference=row["reference"]),
        )
