"""What a patch would have done to the peak: the budget with and without it, corrected by what was measured.

The constants of processes are the uncertain part of a budget and cancel out in the difference; a measured peak takes
their place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.told import Told, change
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.estimates import Estimate, Place
from rlhfdoctor.types import Patch, Phase, Value
from rlhfdoctor.units import show_bytes, show_ratio

_NO_USE = ("container.", "ray.memory", "host.")
"""Settings that move a limit and take no memory."""
_ERROR = 0.1
_TELLING = 0.02
"""A smaller share of the use is not worth a sentence."""
_TRUSTED = 0.35
"""A budget that is further from the measured use does not know this run, and its differences are not shown."""


def with_effects(
    patches: Sequence[Patch], told: Told, phase: Phase | None, measured_bytes: int | None, of_host: bool = True
) -> list[Patch]:
    """The patches with the bytes that each would have freed or taken on the fullest node, where the budget can tell.

    Args:
        phase: in which the run died; the peak's where it is unknown.
        measured_bytes: use of the limit's owner at that time, from the ledger.
        of_host: whether it was host memory that ran out; else only GPUs are spoken of.
    """
    try:
        now = fullest(told)
    except DoctorError:
        return list(patches)
    where = _phase(now, phase)
    use = now.of("host", where) + now.of("shm", where)
    if measured_bytes is not None and not abs(use - measured_bytes) <= _TRUSTED * measured_bytes:
        return list(patches)
    return [_annotated(patch, told, now, where, measured_bytes, of_host) for patch in patches]


def _phase(now: Estimate, phase: Phase | None) -> str:
    if phase == "load" and "resume" in now.phases:
        return "resume"
    if phase in now.phases:
        return str(phase)
    return max(now.phases, key=lambda name: now.of("host", name))


def _annotated(patch: Patch, told: Told, now: Estimate, where: str, measured: int | None, of_host: bool) -> Patch:
    if (
        patch.setting.startswith(_NO_USE)
        or patch.setting.startswith("published-")
        or patch.after is None
        or " " in patch.after
    ):
        return patch
    try:
        after = fullest(change(told, patch.setting, parse_value(patch.after)))
    except DoctorError:
        return patch
    delta = (_difference("host", now, after, where) + _difference("shm", now, after, where)) if of_host else 0
    use = now.of("host", where) + now.of("shm", where)
    delta = delta if abs(delta) >= _TELLING * use else 0
    trained, changed = _without_engine(now), _without_engine(after)
    sizes = [(trained.of("gpu", phase), changed.of("gpu", phase)) for phase in now.phases if phase in after.phases]
    most, then = max(sizes, key=lambda pair: abs(pair[1] - pair[0]), default=(0, 0))
    on_gpu = then - most if abs(then - most) >= _TELLING * most else 0
    if not delta and not on_gpu:
        return patch
    parts = [_told(delta, now, where, measured)] if delta else []
    if on_gpu:
        parts.append(
            f"at its longest sequences the pass would need {show_bytes(then)} of a GPU in place of {show_bytes(most)} (by the budget)"
        )
    low, high = sorted((round(delta * (1 - _ERROR)), round(delta * (1 + _ERROR))))
    return replace(
        patch, host_bytes=(low, high) if delta else patch.host_bytes, gpu_bytes=on_gpu or None,
        effect="; ".join(part for part in (patch.effect.rstrip("."), *parts) if part),
    )  # fmt: skip


def _told(delta: int, now: Estimate, where: str, measured: int | None) -> str:
    use = now.of("host", where) + now.of("shm", where)
    start = use if measured is None else measured
    basis = (
        "by the budget"
        if measured is None
        else f"by the budget, corrected by what was measured (it was {show_ratio(abs(use - measured) / measured)} too {'high' if use > measured else 'low'})"
    )
    return f"with it the use in {where.replace('_', ' ')} would have been {show_bytes(max(start + delta, 0))} in place of {show_bytes(start)} ({basis})"


def _without_engine(found: Estimate) -> Estimate:
    """What the trainer needs; the engine takes its share whatever its weights leave free."""
    return replace(found, needs=tuple(need for need in found.needs if need.role != "rollout engine"))


def _difference(place: Place, now: Estimate, after: Estimate, phase: str) -> int:
    return (after.of(place, phase) if phase in after.phases else 0) - now.of(place, phase)


def parse_value(text: str) -> Value:
    """A value as `show_value` wrote it.

    >>> parse_value("true"), parse_value("null"), parse_value("0.5"), parse_value("4"), parse_value("bf16")
    (True, None, 0.5, 4, 'bf16')
    """
    words: dict[str, Value] = {"true": True, "false": False, "null": None}
    if text in words:
        return words[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
