"""Measured processes -> an explanation: rows by component, the part of the largest row that filled the memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rlhfdoctor.budget.process import ON_CPU, ON_CUDA, Constants
from rlhfdoctor.explain.compare import Outcome
from rlhfdoctor.explain.hypotheses import Hypothesis
from rlhfdoctor.explain.measured import Group, Holder, group
from rlhfdoctor.explain.posterior import Story, compare, fitted, suspects_of
from rlhfdoctor.explanation import Explained, Explanation, Held, Suspect
from rlhfdoctor.i18n.message import NOTHING, Message
from rlhfdoctor.vocabulary.run import OTHER, Component

TEN = 10
"""Rows of Ray's table."""
_USUAL_RANKS = 8
_NONE_WINS = 0.5
MODELLED = ("actor", "critic", "reference", "reward", "rollout engine")
"""Roles whose processes hold a model."""


def explain(
    holders: Sequence[Holder],
    hypotheses: Sequence[Hypothesis],
    phases: Mapping[str, float],
    *,
    basis: Message,
    victim: int | None = None,
) -> Explanation | None:
    """The explanation of what processes held; None if nothing was measured.

    Args:
        phases: phase -> prior, as far as it is known in which one it happened.
        basis: what was measured.
        victim: pid of the process that was killed.
    """
    groups = group(holders)
    if not groups:
        return None
    trainer = any(one.role == "actor" for one in groups)
    modelled = [_role(one, trainer, place == 0) for place, one in enumerate(groups)]
    stories = compare(groups, modelled, hypotheses, phases) if any(modelled) and hypotheses else []
    judged = bool(stories and modelled[0])
    suspects, passing = suspects_of(groups[0], 0, stories) if judged else ((), ())
    best = _best(stories, unknown=bool(suspects) and suspects[0].component == "something else")
    cpu = bool(best and best.hypothesis and best.hypothesis.cpu)
    rows = tuple(_row(one, place, best, ON_CPU if cpu else ON_CUDA) for place, one in enumerate(groups))
    first = rows[0]
    known = next((holder.bytes for holder in holders if holder.pid == victim), None) if victim is not None else None
    return Explanation(
        basis=basis,
        rows=rows,
        suspects=suspects or _plain_suspects(first),
        passing=passing,
        is_guessed=best is not None and best.hypothesis is not None and not best.hypothesis.from_files,
        on_gpus=not cpu,
        assumed=best.says if best is not None else NOTHING,
        victim_ratio=known / first.largest_bytes if known is not None and first.largest_bytes else None,
    )


def ranks_of(groups: Sequence[Group], *, cut: bool) -> int:
    """Processes of the trained role with most on the node.

    Args:
        cut: the table shows the largest ten only; then several kinds of processes hide how many each has.
    """
    counts = {one.role: len(one.sizes) for one in groups if one.role in MODELLED}
    trained = [count for role, count in counts.items() if role in ("actor", "critic")]
    most = max(trained or counts.values(), default=len(groups[0].sizes))
    return _USUAL_RANKS if cut and sum(counts.values()) >= TEN and 2 < most < _USUAL_RANKS else most


def _role(one: Group, trainer: bool, largest: bool) -> str | None:
    """The role of the budget that a kind of process is; an unnamed one that holds most trains, if no other does."""
    if one.role in MODELLED:
        return one.role
    return "actor" if one.role == OTHER and one.name and largest and not trainer else None


def _best(stories: Sequence[Story], *, unknown: bool) -> Story | None:
    """The likeliest story, one with a configuration if all of those together are likelier than none.

    Args:
        unknown: what fills the memory is something else; then an assumed configuration explains nothing.
    """
    none = sum(story.weight for story in stories if story.hypothesis is None)
    best = next((story for story in stories if story.hypothesis is not None or none > _NONE_WINS), None)
    assumed = best is not None and best.hypothesis is not None and not best.hypothesis.from_files
    return None if unknown and assumed else best


def _row(one: Group, place: int, best: Story | None, constants: Constants) -> Explained:
    outcomes: Sequence[Outcome] = best.outcomes.get(place, ()) if best is not None else ()
    top = max(outcomes, key=lambda outcome: outcome.likelihood, default=None)
    parts = fitted(one, top) if top is not None else _base(one, constants)
    return Explained(
        role=one.role,
        name=one.name,
        count=len(one.sizes),
        bytes=one.bytes,
        largest_bytes=one.sizes[0],
        parts=tuple(parts),
    )


def _base(one: Group, constants: Constants) -> list[Held]:
    """Processes without a model: what each takes by itself, and what the object store has of a raylet."""
    base = {
        "driver": constants.driver,
        "raylet": constants.services,
        "reward worker": constants.worker,
        "data loader": constants.loader,
        "rollout engine": constants.engine,
    }.get(one.role, constants.rank if one.role in MODELLED else constants.worker)
    each = sum(min(base, size) for size in one.sizes)
    parts = [Held(component="process", bytes=each)]
    if one.role == "raylet" and one.bytes > each:
        parts.append(Held(component="object store", bytes=one.bytes - each))
    return sorted(parts, key=lambda part: -part.bytes)


def _plain_suspects(row: Explained) -> tuple[Suspect, ...]:
    """Of processes that the budget has no model of, what is not their own is something else."""
    first: Component = row.parts[0].component if row.parts else "something else"
    component = "something else" if row.rest_bytes > (row.parts[0].bytes if row.parts else 0) else first
    return (Suspect(role=row.role, component=component, probability=1.0),)
