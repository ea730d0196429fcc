"""The rules of a folder, loaded and cached; a rule folder is added or removed without touching code."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from rlhfdoctor.engine.resolve import Conditions, check_causes, read_conditions, read_rule
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.errors import RuleError


def rules_folder() -> Path:
    """The catalogue: `$RLHFDOCTOR_RULES`, else beside the package (checkout) or inside it (wheel)."""
    named = os.environ.get("RLHFDOCTOR_RULES")
    if named:
        return Path(named)
    package = Path(__file__).resolve().parent.parent
    beside = package.parent / "rules"
    return beside if beside.is_dir() else package / "rules"


def load_conditions(folder: Path) -> Conditions:
    """The named conditions that the rules of a folder may use: the bundled ones, and the folder's own.

    Raises:
        RuleError: a fault in one of the files.
    """
    return {**read_conditions(rules_folder()), **read_conditions(folder)}


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
    conditions = load_conditions(where)
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
    return tuple(rules)
