"""Treatments that scale a setting -> the value with which the run would have fitted, where the budget can tell."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rlhfdoctor.engine.match import Facts
from rlhfdoctor.engine.schema import Treatment
from rlhfdoctor.patch.effect import Counterfactual
from rlhfdoctor.patch.plan import Configuration
from rlhfdoctor.types import Evidence
from rlhfdoctor.vocabulary.names import Fact


def size_treatments(
    treatments: Sequence[Treatment], facts: Facts, configuration: Configuration, counterfactual: Counterfactual
) -> tuple[list[Treatment], Facts]:
    """The treatments with values by arithmetic in place of the rule's rough factor, and the facts that say why.

    What the case's own figures size (`cure.*`) stays so; what the budget cannot tell keeps the rule's factor.
    """
    sized: list[Treatment] = []
    evidence = dict(facts.evidence)
    for treatment in treatments:
        found = None if _is_told(treatment, facts) else _size(treatment, configuration, counterfactual)
        if found is not None and isinstance(treatment.to, dict):
            evidence[found.name] = found
            treatment = replace(treatment, to={**treatment.to, "from": found.name})
        sized.append(treatment)
    return sized, replace(facts, evidence=evidence)


def _is_told(treatment: Treatment, facts: Facts) -> bool:
    to = treatment.to
    return not isinstance(to, dict) or to.get("scale", 1) >= 1 or to.get("from") in facts.evidence


def _size(treatment: Treatment, configuration: Configuration, counterfactual: Counterfactual) -> Evidence | None:
    own = configuration.editable(treatment.setting) or configuration.logged(treatment.setting)
    if own is None or own.form == "python" or isinstance(own.value, bool) or not isinstance(own.value, int | float):
        return None
    least = treatment.to.get("least") if isinstance(treatment.to, dict) else None
    found = counterfactual.size(treatment.setting, own.value, least)
    if found is None:
        return None
    value, why = found
    return Evidence(name=Fact(f"sized.{treatment.setting}"), value=value, says=f"{value:g} is {why}", origin=own.origin)
