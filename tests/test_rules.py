"""The catalogue: every rule against its own samples, and every name in it against what exists."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhfdoctor.conditions.resolve import read_conditions
from rlhfdoctor.core import rule_testing as selftest
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.schema import Rule
from rlhfdoctor.places import rules_folder
from rlhfdoctor.plugins import folders
from tests.exam.cases import all_cases

RULES = load_rules()
ROOT = Path(__file__).resolve().parent.parent
CASES = [(rule, sample) for rule in RULES for sample in selftest.samples(rule)]


@pytest.mark.parametrize(("rule", "sample"), CASES, ids=lambda value: getattr(value, "id", None) or Path(value).name)
def test_rule_on_its_sample(rule: Rule, sample: Path) -> None:
    """fires/ puts the cause first as a verdict, silent/ does not claim it, expected diffs are met."""
    assert selftest.check_sample(rule, sample, RULES) is None


def test_nothing_is_missing() -> None:
    """Every rule has its texts, its translations, and names causes that have a rule: what `doctor rules test` says."""
    assert selftest.check_parts(None) == []


def test_labels_name_causes_of_the_catalogue() -> None:
    """The folders of the rules are the vocabulary of causes, for labels of incidents too; the kind is how an id begins."""
    ids = {rule.id for rule in RULES}
    assert {(case.name, cause) for case in all_cases() for cause in case.accept if cause not in ids} == set()
    assert {rule.id.partition("-")[0] for rule in RULES if rule.id.partition("-")[0] != rule.kind} == set()


def conditions(node: Any) -> Iterator[str]:
    """Every combination and every comparison with a threshold that is written out in a file, its reason left out."""
    if isinstance(node, dict):
        if {"all", "any", "none", "at_least", "at_most"} & set(node):
            yield json.dumps({key: value for key, value in node.items() if key != "reason"}, sort_keys=True)
        for value in node.values():
            yield from conditions(value)
    elif isinstance(node, list):
        for value in node:
            yield from conditions(value)


def test_a_condition_of_several_rules_has_a_name() -> None:
    """A combination is written in one file, a threshold once; rules that share it name it, and every name is used."""
    own = [path for _, path in folders.files("treatments.yaml")]
    files = [rules_folder() / "conditions.yaml", *(rule.path for rule in RULES), *own]
    found = [(path, text) for path in files for text in conditions(yaml.safe_load(path.read_text()))]
    thresholds = Counter(text for _, text in found if not text.startswith(('{"all"', '{"any"', '{"none"')))
    combinations = Counter(text for _, text in set(found) if text not in thresholds)
    assert [text for text, count in (thresholds + combinations).items() if count > 1] == []
    used = set(re.findall(r"condition: ([a-z0-9-]+)", "\n".join(path.read_text() for path in files)))
    assert set(read_conditions(rules_folder())) == used


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_that_changes_learning_is_safe(rule: Rule) -> None:
    """Lengths and batch sizes of an update are shown only."""
    learning = {
        "max_prompt_length",
        "max_response_length",
        "max_total_length",
        "train.batch_size",
        "rollout.batch_size",
    }
    assert [t.setting for t in rule.remediation if t.setting in learning and t.safety != "show"] == []
