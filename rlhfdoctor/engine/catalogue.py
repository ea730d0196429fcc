"""The rules of a folder, loaded and cached; a rule folder is added or removed without touching code."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import yaml

from rlhfdoctor.engine.resolve import check_causes, read_conditions, read_rule
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.errors import RuleError

FITTED = "weights.yaml"


def rules_folder() -> Path:
    """The catalogue: `$RLHFDOCTOR_RULES`, else beside the package (checkout) or inside it (wheel)."""
    named = os.environ.get("RLHFDOCTOR_RULES")
    if named:
        return Path(named)
    package = Path(__file__).resolve().parent.parent
    beside = package.parent / "rules"
    return beside if beside.is_dir() else package / "rules"


@functools.cache
def load_rules(folder: Path | None = None) -> tuple[Rule, ...]:
    """All rules of a folder, by name.

    Raises:
        RuleError: the faults of all rules.
    """
    where = folder or rules_folder()
    if not where.is_dir():
        raise RuleError(f"{where}: no folder of rules. Set RLHFDOCTOR_RULES or install rlhfdoctor again.")
    rules, faults = [], []
    conditions = read_conditions(where)
    for path in sorted(where.glob("*/rule.yaml")):
        try:
            rules.append(read_rule(path.parent, conditions))
        except RuleError as error:
            faults.append(str(error))
    faults += check_causes({rule.id: rule for rule in rules}) if not faults else []
    if faults:
        raise RuleError("\n".join(faults))
    if not rules:
        raise RuleError(f"{where}: holds no rule (a folder with rule.yaml)")
    fitted = read_fitted(where / FITTED)
    return tuple(_fitted(rule, fitted[rule.id]) if rule.id in fitted else rule for rule in rules)


def read_fitted(path: Path) -> Mapping[str, tuple[float, ...]]:
    """Rule -> prior and the weights of its conditions, as `make calibrate` fitted them; empty without the file.

    Raises:
        RuleError: the file holds anything else.
    """
    if not path.exists():
        return {}
    try:
        raw = yaml.safe_load(path.read_text()) or {}
        return {str(rule): tuple(float(weight) for weight in row) for rule, row in raw.items()}
    except (OSError, AttributeError, TypeError, ValueError, yaml.YAMLError) as error:
        raise RuleError(f"{path}: wants 'rule-id: [prior, weight, ...]' ({error})") from None


def _fitted(rule: Rule, row: tuple[float, ...]) -> Rule:
    """The rule with fitted weights; one whose conditions have changed since keeps its own until the next fit."""
    split = 1 + len(rule.speaks_for)
    if len(row) != split + len(rule.speaks_against):
        return rule
    speaking = tuple(replace(part, weight=weight) for part, weight in zip(rule.speaks_for, row[1:split], strict=True))
    against = tuple(replace(part, weight=weight) for part, weight in zip(rule.speaks_against, row[split:], strict=True))
    return replace(rule, prior=row[0], speaks_for=speaking, speaks_against=against)
