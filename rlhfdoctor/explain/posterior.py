"""From hypotheses to a posterior: what may have run, what each kind of process was doing, which part filled the memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from rlhfdoctor.explain.compare import Outcome, Scene, weigh
from rlhfdoctor.explain.hypotheses import Hypothesis, named
from rlhfdoctor.explain.levels import Level, make_levels, process_of
from rlhfdoctor.explain.measured import Group
from rlhfdoctor.explanation import Held, Suspect
from rlhfdoctor.i18n.message import NOTHING, Message
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary.run import Component

_NONE_PRIOR = 0.1
"""Prior of "no configuration that the budget knows"."""
_FIXED_ERROR = {True: 60 * MIB, False: 3 * GIB // 2}
"""How far a process without a model may be from the budget's constant: measured on CPUs, assumed for CUDA."""


@dataclass(frozen=True, slots=True)
class Story:
    """One hypothesis in one phase, with what each group may have been doing."""

    weight: float
    hypothesis: Hypothesis | None
    """None: nothing that the budget knows."""
    phase: str
    place: int
    outcomes: Mapping[int, Sequence[Outcome]]
    """By the group's place in the list of groups."""

    @property
    def says(self) -> Message:
        """In words."""
        return NOTHING if self.hypothesis is None else named(self.hypothesis, self.place, self.phase)

    @property
    def scale(self) -> float:
        """The model's size, of the one in the estimate."""
        return 1.0 if self.hypothesis is None else self.hypothesis.scales[self.place]


def compare(
    groups: Sequence[Group], modelled: Sequence[str | None], hypotheses: Sequence[Hypothesis], phases: Mapping[str, float]
) -> list[Story]:
    """All stories, the likeliest first; their weights add up to one.

    Args:
        modelled: the role of the estimate that each group is; None: the budget has no model of it.
        phases: phase -> prior; a phase that it lacks has a small one.
    """
    most = max(int(1.2 * sum(group.bytes for group in groups)), 1)
    total_prior = sum(hypothesis.prior for hypothesis in hypotheses) or 1.0
    scenes = {cpu: Scene(most, _FIXED_ERROR[cpu]) for cpu in (True, False)}
    known = [place for place, role in enumerate(modelled) if role is not None]
    stories: list[Story] = []
    for hypothesis in hypotheses:
        prior = (1 - _NONE_PRIOR) * hypothesis.prior / total_prior / len(hypothesis.scales)
        for phase, levels in _by_phase(hypothesis, phases, [modelled[place] for place in known]):
            for size, scale in enumerate(hypothesis.scales):
                outcomes = {
                    place: weigh(groups[place], own, scale, scenes[hypothesis.cpu])
                    for place, own in zip(known, levels, strict=True)
                    if own
                }
                lost = scenes[hypothesis.cpu].broad() ** (len(known) - len(outcomes))
                likelihood = prod(sum(o.likelihood for o in found) for found in outcomes.values()) * lost
                stories.append(
                    Story(prior * _share(phase, phases, hypothesis) * likelihood, hypothesis, phase, size, outcomes)
                )
    nothing = _NONE_PRIOR * scenes[False].broad() ** len(known)
    stories.append(Story(nothing, None, "", 0, {}))
    total = sum(story.weight for story in stories) or 1.0
    ranked = sorted(stories, key=lambda story: -story.weight)
    return [Story(s.weight / total, s.hypothesis, s.phase, s.place, s.outcomes) for s in ranked]


def _by_phase(
    hypothesis: Hypothesis, phases: Mapping[str, float], roles: Sequence[str | None]
) -> Iterator[tuple[str, list[list[Level]]]]:
    found = hypothesis.estimate
    processes = [process_of(found, role) if role else None for role in roles]
    for phase in found.phases:
        if phases.get(phase, 1.0):
            yield phase, [make_levels(found, process, phase) if process else [] for process in processes]


def _share(phase: str, phases: Mapping[str, float], hypothesis: Hypothesis) -> float:
    found = hypothesis.estimate.phases
    least = min(phases.values(), default=1.0)
    return phases.get(phase, least) / sum(phases.get(one, least) for one in found)


def parts_of(group: Group, outcome: Outcome, scale: float) -> list[Held]:
    """Bytes of all processes of a group by component, the largest first; what the outcome adds is fitted to the rest."""
    sums: dict[tuple[str, Component], float] = {}
    count = len(group.sizes)
    for piece in outcome.level.pieces:
        size = scale if piece.component != "process" else 1.0
        whole = size * (count * piece.bytes + (piece.once_bytes if group.special is not None else 0))
        sums[piece.role, piece.component] = sums.get((piece.role, piece.component), 0) + whole
    parts = [Held(role=role, component=name, bytes=round(size)) for (role, name), size in sums.items()]
    return sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)


def suspects_of(group: Group, place: int, stories: Sequence[Story]) -> tuple[Suspect, ...]:
    """Which component filled the memory of a group, by all stories together; the likeliest first."""
    sums: dict[tuple[str, Component], float] = {}
    for story in stories:
        outcomes = story.outcomes.get(place, ())
        total = sum(outcome.likelihood for outcome in outcomes)
        if not total:
            key: tuple[str, Component] = (group.role, "something else")
            sums[key] = sums.get(key, 0) + story.weight
            continue
        for outcome in outcomes:
            weight = story.weight * outcome.likelihood / total
            if weight > 1e-5:
                key = largest_of(group, outcome, story.scale)
                sums[key] = sums.get(key, 0) + weight
    whole = sum(sums.values()) or 1.0
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return tuple(Suspect(role=role, component=name, probability=size / whole) for (role, name), size in ordered)


def largest_of(group: Group, outcome: Outcome, scale: float) -> tuple[str, Component]:
    """The component with most bytes; something else where more is unexplained than any one component has."""
    parts = fitted(group, outcome, scale)
    first = parts[0] if parts else Held(role=group.role, component="something else", bytes=group.bytes)
    rest = group.bytes - sum(part.bytes for part in parts)
    return (group.role, "something else") if rest > first.bytes else (first.role, first.component)


def fitted(group: Group, outcome: Outcome, scale: float) -> list[Held]:
    """The same as `parts_of`; while memory rises, what is made last is cut to what is there of it."""
    parts = parts_of(group, outcome, scale)
    over = sum(part.bytes for part in parts) - group.bytes
    if not outcome.rising or over <= 0:
        return parts
    cut: list[Held] = []
    for part in sorted(parts, key=lambda part: _MADE_LAST.get(part.component, len(_MADE_LAST))):
        size = max(part.bytes - over, 0) if part.component in _MADE_LAST else part.bytes
        over -= part.bytes - size
        cut.append(Held(role=part.role, component=part.component, bytes=size))
    return sorted((part for part in cut if part.bytes), key=lambda part: -part.bytes)


_MADE_LAST: Mapping[Component, int] = {
    name: place
    for place, name in enumerate(
        ("load copy", "resume copy", "save copy", "activations", "gradients", "optimizer", "weights")
    )
}
"""In which order components that are only partly there are the ones missing."""
