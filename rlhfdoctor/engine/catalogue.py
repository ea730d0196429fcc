"""The rules of a folder, loaded and cached; a rule folder is added or removed without touching code."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from rlhfdoctor.engine.schema import Rule, read_rule
from rlhfdoctor.errors import RuleError


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
    for path in sorted(where.glob("*/rule.yaml")):
        try:
            rules.append(read_rule(path.parent))
        except RuleError as error:
            faults.append(str(error))
    if faults:
        raise RuleError("\n".join(faults))
    if not rules:
        raise RuleError(f"{where}: holds no rule (a folder with rule.yaml)")
    return tuple(rules)
