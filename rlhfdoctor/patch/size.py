"""Treatments that scale a setting -> the value with which the run would have fitted, if the budget can compute it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.engine.schema import Target, Treatment
from rlhfdoctor.i18n.message import say
from rlhfdoctor.patch.effect import Counterfactual
from rlhfdoctor.patch.plan import Configuration
from rlhfdoctor.types import Evidence
from rlhfdoctor.vocabulary.names import Fact


def size_treatments(
    treatments: Sequence[Treatment], facts: Facts, configuration: Configuration, counterfactual: Counterfactual
) -> tuple[list[Treatment], Facts]:
    """The treatments with values by arithmetic in place of the rule's rough factor, and the facts that say why.

    What the case's own figures size (`cure.*`) stays so; what the budget cannot compute keeps the rule's factor.
    """
    sized: list[Treatment] = []
    evidence = dict(facts.evidence)
    for treatment in treatments:
        found = None if _is_known(treatment, facts) else _size(treatment, configuration, counterfactual)
        if found is not None and isinstance(treatment.to, Target):
            evidence[found.name] = found
            treatment = replace(treatment, to=replace(treatment.to, sized_by=found.name))
        sized.append(treatment)
    return sized, replace(facts, evidence=evidence)


def _is_known(treatment: Treatment, facts: Facts) -> bool:
    to = treatment.to
    if not isinstance(to, Target) or (1 if to.scale is None else to.scale) >= 1:
        return True
    return to.sized_by is not None and to.sized_by in facts.evidence


def _size(treatment: Treatment, configuration: Configuration, counterfactual: Counterfactual) -> Evidence | None:
    own = configuration.logged(treatment.setting) or configuration.editable(treatment.setting)
    if own is None or own.form == "python" or isinstance(own.value, bool) or not isinstance(own.value, int | float):
        return None
    least = treatment.to.least if isinstance(treatment.to, Target) else None
    found = counterfactual.size(treatment.setting, own.value, least)
    if found is None:
        return None
    value, why = found
    return Evidence(
        name=Fact(f"sized.{treatment.setting}"),
        value=value,
        says=say("{value:g} is {why}", value=value, why=why),
        origin=own.origin,
    )
