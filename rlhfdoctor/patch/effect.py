"""What a change would have done to the peak: the difference of two budgets, corrected by what was measured.

The constants of processes are the uncertain part of a budget and cancel out in the difference; a measured peak takes
their place.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from rlhfdoctor.budget.estimate import fullest
from rlhfdoctor.budget.inputs import Inputs, change
from rlhfdoctor.budget.types import Estimate, Limit
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.i18n.message import Message, joined, say, term
from rlhfdoctor.types import Patch, Value
from rlhfdoctor.units import in_unit
from rlhfdoctor.vocabulary.run import Phase

_NO_USE = ("container.", "ray.memory", "host.")
"""Settings that move a limit and take no memory."""
_ERROR = 0.1
_TELLING = 0.02
"""A smaller share of the use is not reported."""
_TRUSTED = 0.35
"""A budget further from the measured use does not describe this run; its differences are not shown."""
_LEAST_SHARE = 1 / 16
"""A setting is not proposed at less than this part of its value: then it is not what the run needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counterfactual:
    """A run that died, and the budget of its settings: what would have been with others."""

    inputs: Inputs
    now: Estimate
    died_in: Phase | None
    """None if unknown."""
    phase: str
    """The same as the budget names it; that of the host's peak if unknown."""
    of_host: bool
    """Whether it was host memory that ran out; else only GPUs are spoken of."""
    measured_bytes: int | None = None
    """Use of the limit's owner at its peak."""
    limit_bytes: int | None = None
    """The host limit that was full."""

    @property
    def use_bytes(self) -> int:
        """Host memory in the phase, by the budget."""
        return self.now.of("host", self.phase) + self.now.of("shm", self.phase)

    def effect(self, patch: Patch) -> Patch | None:
        """The patch with the bytes that it would have freed or taken on the fullest node, if the budget can compute it.

        None for a known trap.
        """
        if patch.setting.startswith(_NO_USE) or patch.published or patch.after is None or " " in patch.after:
            return patch
        after = self._with(patch.setting, in_unit(parse_value(patch.after), 1 / self.inputs.factor(patch.setting)))
        if after is None:
            return patch
        if set(after.hazards) - set(self.now.hazards):
            return None
        delta = self._host_change(after) if self.of_host else 0
        delta = delta if abs(delta) >= _TELLING * self.use_bytes else 0
        trained, changed = _without_engine(self.now), _without_engine(after)
        sizes = [
            (trained.of("gpu", phase), changed.of("gpu", phase)) for phase in self.now.phases if phase in after.phases
        ]
        most, then = max(sizes, key=lambda pair: abs(pair[1] - pair[0]), default=(0, 0))
        on_gpu = then - most if abs(then - most) >= _TELLING * most else 0
        if not delta and not on_gpu:
            return patch
        parts = [self._describe(delta, after)] if delta else []
        if on_gpu:
            parts.append(
                say(
                    "at its longest sequences the pass would need {then:bytes} of a GPU in place of {now:bytes} (by "
                    "the budget)",
                    then=then,
                    now=most,
                )
            )
        low, high = sorted((round(delta * (1 - _ERROR)), round(delta * (1 + _ERROR))))
        return replace(
            patch,
            host_bytes=(low, high) if delta else patch.host_bytes,
            gpu_bytes=on_gpu or None,
            effect=joined(patch.effect, *parts),
        )

    def size(self, setting: str, value: float, least: float | None) -> tuple[float, Message] | None:
        """The largest smaller value with which the run would have fitted, and why it fits.

        None if the budget cannot compute it.

        Args:
            value: what the run had.
            least: below this a run would make no sense.
        """
        larger = value
        for smaller in _smaller(setting, value, least):
            why = self._why(setting, smaller)
            if why is None:
                larger = smaller
                continue
            while isinstance(value, int) and "batch" not in setting and larger - smaller > 1:  # between the two
                middle = (larger + smaller) // 2
                larger, smaller = (larger, middle) if self._why(setting, middle) is not None else (middle, smaller)
            return smaller, why
        return None

    def _why(self, setting: str, value: float) -> Message | None:
        after = self._with(setting, value)
        return self._why_it_fits(after) if after is not None else None

    def _why_it_fits(self, after: Estimate) -> Message | None:
        if self.of_host:
            if self.limit_bytes is None or self.measured_bytes is None:
                return None
            wanted = max(self.use_bytes, self.measured_bytes)  # it died on its way up
            room = self.limit_bytes * (1 - _ERROR)
            if wanted + self._host_change(after) > room:
                return None
            return say(
                "the largest with which the node's {limit:bytes} keep a tenth free (by the budget)",
                limit=self.limit_bytes,
            )
        gpu = next((limit for limit in self.now.limits if limit.place == "gpu" and limit.bytes), None)
        if gpu is None or gpu.bytes is None or self._on_gpu(self.now, gpu) <= gpu.bytes:
            return None  # the budget does not show the shortage, so what ends it is unknown
        if self._on_gpu(after, gpu) > gpu.bytes * (1 - _ERROR):
            return None
        return say(
            "the largest with which {limit:bytes} of a GPU keep a tenth free, with all sequences at their longest (by "
            "the budget)",
            limit=gpu.bytes,
        )

    def _on_gpu(self, found: Estimate, gpu: Limit) -> int:
        """Of the phase in which it died; of the fullest if that is unknown."""
        return max(
            (found.used(gpu, phase) for phase in found.phases if self.died_in in (None, *_phases_of_logs(phase))),
            default=0,
        )

    def _with(self, setting: str, value: Value) -> Estimate | None:
        try:
            return fullest(change(self.inputs, setting, value))
        except DoctorError:
            return None

    def _host_change(self, after: Estimate) -> int:
        """Of the phase; if the change removes it from the run, of the fullest one that remains."""
        phases = [self.phase] if self.phase in after.phases else after.phases
        return max(after.of("host", phase) + after.of("shm", phase) for phase in phases) - self.use_bytes

    def _describe(self, delta: int, after: Estimate) -> Message:
        use, measured = self.use_bytes, self.measured_bytes
        start = use if measured is None else measured
        basis = say("by the budget")
        if measured is not None:
            error = abs(use - measured) / measured
            basis = (
                say("by the budget, corrected by what was measured (it was {error:share} too high)", error=error)
                if use > measured
                else say("by the budget, corrected by what was measured (it was {error:share} too low)", error=error)
            )
        sizes = {"then": max(start + delta, 0), "now": start}
        if self.phase in after.phases:
            return say(
                "with it the use in {phase} would have been {then:bytes} in place of {now:bytes} ({basis})",
                phase=term(self.phase.replace("_", " ")),
                **sizes,
                basis=basis,
            )
        return say(
            "with it the peak would have been {then:bytes} in place of {now:bytes} ({basis})", **sizes, basis=basis
        )


def make_counterfactual(
    inputs: Inputs, phase: Phase | None, *, of_host: bool, measured_bytes: int | None, limit_bytes: int | None
) -> Counterfactual | None:
    """None if the model is unknown to the budget, or its result is too far from what was measured.

    Args:
        phase: in which the run died; None if unknown.
        of_host: whether it was host memory that ran out.
        measured_bytes: use of the limit's owner at its peak, from the ledger.
        limit_bytes: the host limit, if known.
    """
    try:
        now = fullest(inputs)
    except DoctorError:
        return None
    found = Counterfactual(
        inputs=inputs,
        now=now,
        died_in=phase,
        phase=_phase(now, phase),
        of_host=of_host,
        measured_bytes=measured_bytes,
        limit_bytes=limit_bytes,
    )
    if measured_bytes is not None and not abs(found.use_bytes - measured_bytes) <= _TRUSTED * measured_bytes:
        return None
    return found


def _smaller(setting: str, value: float, least: float | None) -> Iterator[float]:
    """Smaller values from the mildest on: of a batch those that divide it, so that what is made of it still adds up."""
    if isinstance(value, float):
        step = 0.01 if value <= 1 else value / 20
        sizes = (round(value - step * count, 2) for count in range(1, 100))
        yield from (size for size in sizes if size >= max(least or 0, value * _LEAST_SHARE))
        return
    lowest = max(int(least or 1), 1, math.ceil(value * _LEAST_SHARE))
    if "batch" in setting:
        yield from (value // parts for parts in range(2, value // lowest + 1) if value % parts == 0)
        return
    step = max(value // 8, 1)
    yield from range(value - step, lowest - 1, -step)


def _phase(now: Estimate, phase: Phase | None) -> str:
    if phase == "load" and "resume" in now.phases:
        return "resume"
    known = [name for name in now.phases if phase in _phases_of_logs(name)] or now.phases
    return max(known, key=lambda name: now.of("host", name))


def _phases_of_logs(phase: str) -> tuple[str, ...]:
    """A budget phase as named in logs, which do not distinguish the last save from earlier ones."""
    return (phase, "checkpoint") if phase == "final_save" else (phase,)


def _without_engine(found: Estimate) -> Estimate:
    """What the trainer needs; the engine takes its share, regardless of what its weights leave free."""
    return replace(found, needs=tuple(need for need in found.needs if need.role != "rollout engine"))


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
