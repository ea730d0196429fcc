"""From hypotheses to a posterior: what may have run, what each process was doing, which part filled the memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from rlhfdoctor.explain.compare import Outcome, Scene, weigh
from rlhfdoctor.explain.hypotheses import Hypothesis, named
from rlhfdoctor.explain.levels import MAY_BE_EARLY, Level, make_levels, process_of
from rlhfdoctor.explain.measured import Group
from rlhfdoctor.explanation import Held, Suspect
from rlhfdoctor.i18n.message import NOTHING, Message
from rlhfdoctor.units import GIB, MIB
from rlhfdoctor.vocabulary.run import Component

_NONE_PRIOR, _NONE_BESIDE_FILES = 0.1, 0.03
"""Prior of "no configuration that the budget knows"; and where the files of the run are at hand."""
_TEMPER = 0.7
"""Power of the weights where the configuration is assumed: what ran is between what is tried, so that differences of
fit mean less than the budget's error says. By simulated tables (tests/exam/explained.py)."""
_FIXED_ERROR = {True: 60 * MIB, False: 3 * GIB // 2}
"""How far a process without a model may be from the budget's constant: measured on CPUs, assumed for CUDA."""

_NEGLIGIBLE = 3e-4
"""Stories below this weight change no figure that is shown."""
_FAR = 2.0
"""A configuration whose processes would hold half as much, or twice as much, did not run."""


_OF_ANY_SIZE = ("critic", "reward")
OTHER_SIZES = (1 / 10, 1 / 5, 1 / 2, 2, 5, 10, 14)
"""Sizes of published models, of one another."""
_OTHER_SIZE = 0.25
"""Judgement: how often critic and reward model are not of the actor's size."""


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


def compare(
    groups: Sequence[Group],
    modelled: Sequence[str | None],
    hypotheses: Sequence[Hypothesis],
    phases: Mapping[str, float],
) -> list[Story]:
    """All stories, the likeliest first; their weights add up to one.

    Args:
        modelled: the role of the estimate that each group is; None: the budget has no model of it.
        phases: phase -> prior; a phase that it lacks has a small one.
    """
    none = _NONE_BESIDE_FILES if any(hypothesis.from_files for hypothesis in hypotheses) else _NONE_PRIOR
    most = max(int(1.2 * sum(group.bytes for group in groups)), 1)
    total_prior = sum(hypothesis.prior for hypothesis in hypotheses) or 1.0
    scenes = {cpu: Scene(most, _FIXED_ERROR[cpu]) for cpu in (True, False)}
    known = [place for place, role in enumerate(modelled) if role is not None]
    stories: list[Story] = []
    first = next((n for n, place in enumerate(known) if groups[place].role not in _OF_ANY_SIZE), None)
    for hypothesis in hypotheses:
        prior = (1 - none) * hypothesis.prior / total_prior / len(hypothesis.scales)
        for phase, share, levels in _by_phase(hypothesis, phases, [modelled[place] for place in known]):
            for size, scale in enumerate(hypothesis.scales):
                if first is not None and _far(groups[known[first]], levels[first], scale):
                    continue
                scene = scenes[hypothesis.cpu]
                outcomes = {
                    place: _weigh_any(groups[place], own, scale, scene, hypothesis.from_files)
                    for place, own in zip(known, levels, strict=True)
                    if own
                }
                lost = scene.broad() ** (len(known) - len(outcomes))
                likelihood = prod(sum(o.likelihood for o in found) for found in outcomes.values()) * lost
                stories.append(Story(prior * share * likelihood, hypothesis, phase, size, outcomes))
    nothing = none * scenes[False].broad() ** len(known)
    stories.append(Story(nothing, None, "", 0, {}))
    if none == _NONE_PRIOR:
        stories = [replace(story, weight=story.weight**_TEMPER) for story in stories]
    total = sum(story.weight for story in stories) or 1.0
    ranked = sorted(stories, key=lambda story: -story.weight)
    return [Story(s.weight / total, s.hypothesis, s.phase, s.place, s.outcomes) for s in ranked]


def _weigh_any(group: Group, levels: Sequence[Level], scale: float, scene: Scene, known: bool) -> list[Outcome]:
    """As `weigh`; a critic or reward model that does not fit may be of another size than the actor."""
    found = weigh(group, levels, scale, scene)
    if known or group.role not in _OF_ANY_SIZE or sum(one.likelihood for one in found) > scene.broad():
        return found
    share = _OTHER_SIZE / len(OTHER_SIZES)
    other = [one for size in OTHER_SIZES for one in weigh(group, levels, scale * size, scene)]
    return [*found, *(replace(one, likelihood=share * one.likelihood) for one in other)]


def _far(group: Group, levels: Sequence[Level], scale: float) -> bool:
    """Whether the largest group is so far from all levels that the story could only say "something else"."""
    if not levels:
        return False
    sizes = [size for level in levels for size in (level.usual(scale), level.special(scale))]
    return max(sizes) < group.usual / _FAR or min(sizes) > group.usual * _FAR


def _by_phase(
    hypothesis: Hypothesis, phases: Mapping[str, float], roles: Sequence[str | None]
) -> Iterator[tuple[str, float, list[list[Level]]]]:
    """Phases in which the processes differ, with their share of the prior and the levels of each role's process."""
    found = hypothesis.estimate
    processes = [process_of(found, role) if role else None for role in roles]
    needs = {process: [n for n in found.needs if n.process == process] for process in processes if process}
    least = min(phases.values(), default=1.0)
    priors = {phase: phases.get(phase, least) for phase in found.phases}
    alike: dict[tuple[object, ...], list[str]] = {}
    for phase in found.phases:
        held = tuple(id(n) for own in needs.values() for n in own if phase in n.phases)
        alike.setdefault((held, phase == "load", phase in MAY_BE_EARLY), []).append(phase)
    for same in alike.values():
        phase = max(same, key=lambda one: priors[one])
        share = sum(priors[one] for one in same) / sum(priors.values())
        yield phase, share, [make_levels(needs[process], phase) if process else [] for process in processes]


def parts_of(group: Group, outcome: Outcome) -> list[Held]:
    """Bytes of all processes of a group by component, the largest first, as the level has them."""
    sums: dict[Component, float] = {}
    roles: dict[Component, list[str]] = {}
    count = len(group.sizes)
    for piece in outcome.level.pieces:
        size = outcome.scale if piece.component != "process" else 1.0
        whole = size * (count * piece.bytes + (piece.once_bytes if group.special is not None else 0))
        sums[piece.component] = sums.get(piece.component, 0) + whole
        roles.setdefault(piece.component, []).append(piece.role)
    return _ordered(Held(component=name, bytes=round(size), roles=tuple(roles[name])) for name, size in sums.items())


def _ordered(parts: Iterable[Held]) -> list[Held]:
    return sorted((part for part in parts if part.bytes > 0), key=lambda part: -part.bytes)


def suspects_of(group: Group, place: int, stories: Sequence[Story]) -> tuple[tuple[Suspect, ...], tuple[Suspect, ...]]:
    """By all stories together: which component filled the memory of a group, and which copies it held for a moment."""
    largest: dict[Component, float] = {}
    passing: dict[Component, float] = {}
    for story in stories:
        if story.weight < _NEGLIGIBLE:
            break  # the likeliest come first
        outcomes = story.outcomes.get(place, ())
        total = sum(outcome.likelihood for outcome in outcomes)
        if not total:
            largest["something else"] = largest.get("something else", 0) + story.weight
        for outcome in outcomes if total else ():
            weight = story.weight * outcome.likelihood / total
            if weight < _NEGLIGIBLE / 10:
                continue
            parts = fitted(group, outcome)
            name, copy = largest_of(group, parts), passing_of(group, parts)
            largest[name] = largest.get(name, 0) + weight
            if copy is not None:
                passing[copy] = passing.get(copy, 0) + weight
    whole = sum(largest.values()) or 1.0
    return _suspects(group, largest, whole), _suspects(group, passing, whole)


def _suspects(group: Group, sums: Mapping[Component, float], whole: float) -> tuple[Suspect, ...]:
    ordered = sorted(sums.items(), key=lambda item: -item[1])
    return tuple(Suspect(role=group.role, component=name, probability=size / whole) for name, size in ordered)


def largest_of(group: Group, parts: Sequence[Held]) -> Component:
    """The component with most bytes; something else where more is unexplained than any one component has.

    Processes themselves are it only if they hold more than all that they were started for.
    """
    rest = group.bytes - sum(part.bytes for part in parts)
    process = sum(part.bytes for part in parts if part.component == "process")
    other = [part for part in parts if part.component != "process"]
    if rest > max([process, *(part.bytes for part in other)]):
        return "something else"
    return other[0].component if sum(part.bytes for part in other) > process else "process"


def passing_of(group: Group, parts: Sequence[Held]) -> Component | None:
    """The copy that is there for a moment only, if it is a noticeable part."""
    return next((p.component for p in parts if p.component in COPIES and p.bytes > COPY_RATIO * group.bytes), None)


COPIES: frozenset[Component] = frozenset(("load copy", "resume copy", "save copy"))
COPY_RATIO = 0.05
"""Judgement: a copy below this share of what its processes hold is within the budget's error."""


def fitted(group: Group, outcome: Outcome) -> list[Held]:
    """The same as `parts_of`; while memory rises, what is made last is cut to what is there of it.

    What a process takes by itself is known least: within its error it is what the others leave.
    """
    parts = parts_of(group, outcome)
    over = sum(part.bytes for part in parts) - group.bytes
    if outcome.rising and over > 0:
        parts, over = _cut(parts, over)
    process = next((part for part in parts if part.component == "process"), None)
    if process is None or not over:
        return parts
    by = max(min(-over, process.bytes // 2), -(process.bytes // 2))
    return _ordered(replace(part, bytes=part.bytes + by) if part is process else part for part in parts)


def _cut(parts: Sequence[Held], over: int) -> tuple[list[Held], int]:
    """Parts less this many bytes of those that are made last, and how many bytes are left to cut."""
    cut: list[Held] = []
    for part in sorted(parts, key=lambda part: _MADE_LAST.get(part.component, len(_MADE_LAST))):
        size = max(part.bytes - over, 0) if part.component in _MADE_LAST else part.bytes
        over -= part.bytes - size
        cut.append(replace(part, bytes=size))
    return _ordered(cut), over


_LAST: tuple[Component, ...] = (
    "load copy",
    "resume copy",
    "save copy",
    "activations",
    "optimizer",
    "gradients",
    "weights",
    "page-lock rounding",
    "swap blocks",
)
_MADE_LAST: Mapping[Component, int] = {name: place for place, name in enumerate(_LAST)}
"""In which order components that are only partly there are the ones missing."""
