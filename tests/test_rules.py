"""The catalogue: every rule against its own samples, and every name in it against what exists."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlhfdoctor import selftest
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.schema import Rule

RULES = load_rules()
ROOT = Path(__file__).resolve().parent.parent
CASES = [(rule, sample) for rule in RULES for sample in selftest.samples(rule)]

@pytest.mark.parametrize(("rule", "sample"), CASES, ids=lambda value: getattr(value, "id", None) or Path(value).name)
def test_rule_on_its_sample(rule: Rule, sample: Path) -> None:
    """fires/ puts the cause first as a verdict, silent/ does not claim it, expected diffs are met."""
    assert selftest.check_sample(rule, sample, RULES) is None


def test_every_cause_has_a_rule() -> None:
    """The vocabulary and the catalogue hold the same causes."""
    causes = {c["id"] for c in yaml.safe_load((ROOT / "rules" / "causes.yaml").read_text())}
    assert causes == {rule.id for rule in RULES}


def test_causes_are_of_the_shared_vocabulary() -> None:
    """Rule ids and what they explain are ids of the cause vocabulary."""
    causes = {c["id"]: c for c in yaml.safe_load((ROOT / "rules" / "causes.yaml").read_text())}
    assert {name for r in RULES for name in (r.id, *r.suppresses)} - set(causes) == set()


def test_titles_are_of_the_shared_vocabulary() -> None:
    """A rule bears the title of its cause."""
    causes = {c["id"]: c["title"] for c in yaml.safe_load((ROOT / "rules" / "causes.yaml").read_text())}
    assert {r.id: r.title for r in RULES} == {r.id: causes[r.id] for r in RULES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_that_changes_learning_is_safe(rule: Rule) -> None:
    """Lengths and batch sizes of an update are shown only."""
    learning = {"max_prompt_length", "max_response_length", "max_total_length", "train.batch_size", "rollout.batch_size"}
    assert [t.setting for t in rule.remediation if t.setting in learning and t.safety != "show"] == []
