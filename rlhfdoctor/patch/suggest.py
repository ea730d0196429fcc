"""The smallest change of the user's settings with which a run fits.

Every change is tried on the budget itself; what needs fewer changes, then what costs less, is proposed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.inputs import Inputs, change
from rlhfdoctor.budget.types import Estimate
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n.message import Message, say
from rlhfdoctor.patch.edit import add_setting, as_written, change_setting, remove_setting
from rlhfdoctor.patch.merge import join
from rlhfdoctor.patch.plan import Configuration
from rlhfdoctor.patch.spans import make_diff, splice
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.spell import FRAMEWORKS, Spelling, parse_version, spell
from rlhfdoctor.types import Patch, Safety, Setting, Value
from rlhfdoctor.units import GIB, in_unit, show_value
from rlhfdoctor.vocabulary import TRAIT

_MOST_CHANGES = 4
_ROOM = 1.1
"""A proposed container limit has room for the estimate's known error."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A setting that takes memory, and what to make of it."""

    setting: str
    values: tuple[Value, ...]
    """From the mildest on; a number below 1 that scales is written as `*0.5`."""
    safety: Safety
    cost: Message


REMEDIES: tuple[Remedy, ...] = (
    Remedy("checkpoint.in_memory", (False,), "safe", say("the files are written one after the other")),
    Remedy("offload_optimizer.pin_memory", (False,), "safe", say("slower copies between host and GPU")),
    Remedy(
        "zero.pipeline_loading_checkpoint",
        (True,),
        "consent",
        say("a slower start: the ranks read one after the other"),
    ),
    Remedy("rollout.swap_space", (4, 1, 0), "safe", say("less room for sequences that the engine puts off")),
    Remedy("rollout.free_cache_engine", (False,), "safe", say("the KV cache stays allocated between rollouts")),
    Remedy("synced_gpus", (True,), "safe", say("all ranks generate as long as the slowest")),
    Remedy(
        "ref.model_dtype",
        ("bfloat16",),
        "consent",
        say("log-probabilities of the reference in bf16, as up to verl 0.5.0"),
    ),
    Remedy("grad_accum_dtype", ("bf16",), "consent", say("gradients add up with less precision")),
    Remedy("gradient_checkpointing", (True,), "safe", say("about a third more computation")),
    Remedy("logprob.micro_batch_size", ("*0.5", "*0.25", "*0.125", 1), "safe", say("more, smaller forward passes")),
    Remedy(
        "train.micro_batch_size",
        ("*0.5", "*0.25", "*0.125", 1),
        "safe",
        say("more, smaller passes for one optimizer step"),
    ),
    Remedy(
        "rollout.gpu_memory_utilization",
        ("*0.8", "*0.6", "*0.4"),
        "consent",
        say("a smaller KV cache: fewer sequences at once"),
    ),
    Remedy("dataloader_num_workers", (0,), "safe", say("batches are prepared in the main process")),
    Remedy("offload_optimizer", (False,), "consent", say("the optimizer's states go to the GPUs")),
    Remedy("offload_optimizer", (True,), "consent", say("the optimizer's states go to host memory: slower steps")),
    Remedy("offload_param", (False,), "consent", say("the weights stay on the GPUs")),
    Remedy("offload_param", (True,), "consent", say("the weights go to host memory between the phases")),
    Remedy("zero_stage", (3,), "consent", say("layers are gathered while they compute: slower")),
    Remedy("zero_stage", (2,), "consent", say("the weights are whole on every GPU")),
)
"""In the order of what they cost."""
MORE_NODES = tuple(
    Remedy(name, ("*2", "*4"), "consent", say("more nodes")) for name in folders.every(lambda spec: spec.nodes)
)


Change = tuple[Remedy, Value]


def suggest(inputs: Inputs, configuration: Configuration) -> tuple[Estimate, list[Patch]]:
    """The estimate after the smallest change that fits and avoids known traps, and the change.

    No patches if no known change does.

    One change before several, the user's own nodes before more of them, milder values before stronger ones; a change
    that fits and leaves a trap only if no change avoids it.
    """
    now = fullest(inputs)
    for traps in range(len(now.hazards) + 1):
        if _fits(now, traps):
            return now, []
        found = _search(inputs, now, traps)
        if found:
            return _with(inputs, found), _merged(
                [_patch(*change, inputs, configuration) for change in found], configuration
            )
        wider = _raise_container(inputs, traps, configuration)
        if wider:
            return wider
    return now, []


def _search(inputs: Inputs, now: Estimate, traps: int) -> list[Change] | None:
    """The fewest and mildest changes with which it fits, and at most `traps` traps remain."""
    for remedies in (REMEDIES, MORE_NODES, (*REMEDIES, *MORE_NODES)):
        tried = [
            (remedy, value, after)
            for remedy in remedies
            for value in _values(remedy, inputs, "resume" in now.phases)
            if _relieves(now, after := _with(inputs, [(remedy, value)]))
        ]
        found = next(([(remedy, value)] for remedy, value, after in tried if _fits(after, traps)), None)
        strongest = {remedy: (remedy, value) for remedy, value, _ in tried}
        found = found or _several(inputs, list(strongest.values()), traps)
        if found:
            return _milder(inputs, found, traps)
    return None


def _several(inputs: Inputs, changes: Sequence[Change], traps: int) -> list[Change] | None:
    """The first set of changes that fits together, few before many."""
    for count in range(2, _MOST_CHANGES + 1):
        for chosen in itertools.combinations(changes, count):
            if len({remedy.setting for remedy, _ in chosen}) == count and _fits(_with(inputs, chosen), traps):
                return list(chosen)
    return None


def _milder(inputs: Inputs, changes: list[Change], traps: int) -> list[Change]:
    """The same changes with the mildest values that still fit together."""
    for place, (remedy, last) in enumerate(changes):
        for value in _values(remedy, inputs):
            tried = [*changes[:place], (remedy, value), *changes[place + 1 :]]
            if value == last or _fits(_with(inputs, tried), traps):
                changes = tried
                break
    return changes


def _fits(found: Estimate, traps: int) -> bool:
    """Whether it fits, also if all sequences are at their longest, with at most `traps` known traps."""
    return len(found.hazards) <= traps and all(
        limit.bytes is None or found.peak(limit)[1] <= limit.bytes for limit in found.limits
    )


def _relieves(now: Estimate, after: Estimate) -> bool:
    """Whether some phase that exceeds a limit exceeds it by less, and no phase by more, or a known trap is avoided."""
    gains = avoids = len(after.hazards) < len(now.hazards)
    if len(after.hazards) > len(now.hazards):
        return False  # it would fit, and die of something else
    for before, behind in zip(now.limits, after.limits, strict=False):
        if before.bytes is None:  # unknown whether that place has the room
            if after.peak(behind)[1] > now.peak(before)[1] and not avoids:
                return False
            continue
        for phase in now.phases:
            old, new = now.used(before, phase), after.used(behind, phase) if phase in after.phases else 0
            if max(old, new) <= before.bytes:
                continue
            if new > old:
                return False
            gains |= new < old
    return gains


def _with(inputs: Inputs, changes: Sequence[Change]) -> Estimate:
    for remedy, value in changes:
        inputs = change(inputs, remedy.setting, value)
    return fullest(inputs)


def _values(remedy: Remedy, inputs: Inputs, resumes: bool = False) -> Iterator[Value]:
    """The values to try that differ from what is in force, for settings that this release has and that act here."""
    own = inputs.settings.get(remedy.setting)
    if own is None and not _surely_there(remedy.setting, inputs):
        return  # a setting that the release may not have is never added
    if remedy in MORE_NODES and inputs.flag("colocate_all"):
        return  # every role needs as many GPUs then
    if resumes and (remedy in MORE_NODES or remedy.setting == "zero_stage"):
        return  # a checkpoint of other ranks or of another stage is not read
    if remedy.setting in ("train.micro_batch_size", "logprob.micro_batch_size") and (
        inputs.has(TRAIT.global_batch_follows_micro_batch) or inputs.flag("train.dynamic_batch")
    ):
        return  # the global batch would change with it; with dynamic batches it does nothing
    now = inputs.value(remedy.setting)
    for value in remedy.values:
        if isinstance(value, str) and value.startswith("*"):
            if isinstance(now, bool) or not isinstance(now, int | float):
                continue
            scaled = now * float(value[1:])
            value = max(int(scaled), 1) if isinstance(now, int) else round(scaled, 2)
        upwards = remedy in MORE_NODES or remedy.setting == "zero_stage"
        if remedy.setting == "zero_stage" and value == 2 and now != 3:
            continue  # it is the way back from stage 3
        raises = _is_number(value) and _is_number(now) and value > now  # type: ignore[operator]
        if value != now and (upwards or not raises):
            yield value


def _surely_there(name: str, inputs: Inputs) -> bool:
    """Whether the release has the setting; where only a range is known, in one spelling at both ends of it."""
    framework = inputs.framework
    found = _spelling(name, inputs)
    if found is None or framework is None or framework.version is not None or found.framework != framework.name:
        return found is not None
    if parse_version(found.since) is None and parse_version(found.until) is None:
        return True
    ends = [
        spell(name, framework.name, version) for version in (framework.since, framework.until) if version is not None
    ]
    return len(ends) == 2 and all(end is not None and end.spelled == found.spelled for end in ends)


def _is_number(value: Value) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _spelling(name: str, inputs: Inputs) -> Spelling | None:
    framework = inputs.framework.name if inputs.framework is not None else ""
    found = spell(name, framework, inputs.release) if framework in FRAMEWORKS else None
    if found is None and inputs.has(TRAIT.reads_deepspeed_json):
        found = spell(name, "deepspeed", inputs.version("deepspeed"))
    return found


def _patch(remedy: Remedy, value: Value, inputs: Inputs, configuration: Configuration) -> Patch:
    own, spelling = configuration.editable(remedy.setting), _spelling(remedy.setting, inputs)
    seen: Setting | None = inputs.settings.get(remedy.setting)
    spelled = own.spelled if own is not None else spelling.spelled if spelling is not None else remedy.setting
    unset = inputs.value(remedy.setting)
    if unset is None and spelling is not None and isinstance(spelling.default, bool | int | float | str):
        unset = spelling.default  # of another program's table
    factor = own.factor if own is not None else spelling.factor if spelling is not None else 1
    before = show_value(seen.written if seen is not None else in_unit(unset, factor))
    value = as_written(value, spelled, factor)
    edit = None
    if own is not None:
        text = configuration.texts[own.origin.file]
        takes_away = own.form == "flag" and own.value is True and value is False
        edit = remove_setting(own, text) if takes_away else change_setting(own, value, text)
    elif spelling is not None and spelling.form != "code":
        edit = add_setting(spelling, value, configuration.texts, configuration.settings)
    base = configuration.texts[edit.file] if edit is not None else ""
    safety: Safety = "show" if edit is None else remedy.safety
    return Patch(
        setting=remedy.setting,
        spelled=spelled,
        file=edit.file if edit else None,
        line=edit.line if edit else None,
        before=before,
        after=show_value(value),
        safety=safety,
        cost=remedy.cost,
        diff=make_diff(base, splice(base, edit.replacements), edit.file) if edit else "",
        replacements=edit.replacements if edit else (),
        base=base,
    )


def _merged(patches: list[Patch], configuration: Configuration) -> list[Patch]:
    """The patches with one diff a file that holds all of its changes, so that it applies as a whole."""
    try:
        joined = join(patches)
    except UsageError:
        return patches
    diffs = {name: make_diff(base, splice(base, all_of_it), name) for name, (base, all_of_it) in joined.items()}
    return [replace(patch, diff=diffs.get(patch.file or "", patch.diff)) for patch in patches]


def _raise_container(inputs: Inputs, traps: int, configuration: Configuration) -> tuple[Estimate, list[Patch]] | None:
    """A higher limit of the container, if the node is known to have the room, with the changes that avoid traps."""
    lifted = replace(
        inputs,
        settings={name: own for name, own in inputs.settings.items() if name != "container.memory"},
        machine=replace(inputs.machine, container_bytes=None),
    )
    now, free = fullest(inputs), fullest(lifted)
    container = next((limit for limit in now.limits if limit.name == "container" and limit.bytes), None)
    node = next((limit for limit in now.limits if limit.name == "node" and limit.bytes), None)
    if container is None or node is None:
        return None
    changes = [] if _fits(free, traps) else _search(lifted, free, traps)
    if changes is None:
        return None
    free = _with(lifted, changes)
    size = math.ceil(free.peak(node)[1] * _ROOM / GIB) * GIB
    if size > (node.bytes or 0) or size <= (container.bytes or 0):
        return None
    wider = replace(container, bytes=size)
    after = _with(inputs, changes)
    after = replace(after, limits=tuple(wider if limit.name == "container" else limit for limit in after.limits))
    remedy = Remedy(
        "container.memory",
        (),
        "consent",
        say("the node has {bytes:bytes}; other jobs on it get less", bytes=node.bytes or 0),
    )
    patches = [_patch(remedy, f"{size // GIB}g", inputs, configuration)]
    return after, _merged([*patches, *(_patch(*change, inputs, configuration) for change in changes)], configuration)
