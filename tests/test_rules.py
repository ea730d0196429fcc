"""The catalogue: every rule against its own samples, and every name in it against what exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor import selftest
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.schema import Condition, Rule
from rlhfdoctor.settings.spell import FRAMEWORKS, TABLES, load_table
from rlhfdoctor.vocabulary.index import FACTS, KINDS
from tests.exam.cases import all_cases

RULES = load_rules()
ROOT = Path(__file__).resolve().parent.parent
CASES = [(rule, sample) for rule in RULES for sample in selftest.samples(rule)]
EVIDENCE = set(FACTS)


def conditions(rule: Rule) -> Iterator[Condition]:
    tops = [
        rule.requires,
        *(w.when for w in (*rule.speaks_for, *rule.speaks_against)),
        *(r.when for r in rule.rules_out),
        *(m.unless for m in rule.missing if m.unless),
        *(t.when for t in rule.treat if t.when),
    ]
    while tops:
        condition = tops.pop()
        tops.extend(condition.parts)
        if condition.op == "test":
            yield condition


def named(noun: str) -> set[tuple[str, str]]:
    return {(rule.id, c.name) for rule in RULES for c in conditions(rule) if c.noun == noun}


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


def test_events_in_rules_exist() -> None:
    """A rule asks only for events that some pattern yields."""
    assert {pair for pair in named("event") if pair[1] not in KINDS} == set()


def test_evidence_in_rules_exists() -> None:
    """A rule asks only for evidence that is computed somewhere."""
    assert {pair for pair in named("evidence") if pair[1] not in EVIDENCE} == set()


def test_evidence_in_sentences_exists() -> None:
    """Places in summaries and effects name evidence that is computed somewhere."""
    texts = {(r.id, text) for r in RULES for text in (r.summary, *(t.effect for t in r.treat), *(o.because for o in r.rules_out))}
    places = {(name, place) for name, text in texts for place in re.findall(r"\{([a-z_]+\.[a-z_0-9]+)\}", text)}
    assert {pair for pair in places if pair[1] not in EVIDENCE} == set()


def test_settings_in_rules_are_canonical() -> None:
    """Settings in conditions are names that a table knows."""
    known = {spelling.name for table in TABLES for spelling in load_table(table)}
    assert {pair for pair in named("setting") if pair[1] not in known} == set()


def test_treated_settings_are_canonical_or_told_in_words() -> None:
    """A treatment changes a setting of the tables, or says instead what to do."""
    known = {spelling.name for table in TABLES for spelling in load_table(table)}
    assert [(r.id, t.setting) for r in RULES for t in r.treat if t.setting not in known and not t.instead] == []


def test_frameworks_in_treatments_exist() -> None:
    """Treatments name frameworks that have a table."""
    assert {f for r in RULES for t in r.treat for f in t.frameworks} <= {*FRAMEWORKS, "deepspeed", "vllm"}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_nothing_that_changes_learning_is_safe(rule: Rule) -> None:
    """Lengths and batch sizes of an update are shown only."""
    learning = {"max_prompt_length", "max_response_length", "max_total_length", "train.batch_size", "rollout.batch_size"}
    assert [t.setting for t in rule.treat if t.setting in learning and t.safety != "show"] == []
