"""Three-valued conditions: what is not known is unknown, not false."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rlhfdoctor.conditions.files import Faults, convert
from rlhfdoctor.conditions.form import When
from rlhfdoctor.conditions.match import Facts, ask, compare
from rlhfdoctor.conditions.resolve import Resolver
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.types import Event, Evidence, Origin, Setting, Value
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD, TRAIT

FACTS = Facts(
    events={
        EVENT.kernel.killed: [
            Event(
                kind=EVENT.kernel.killed,
                fields={FIELD.pid: 7, FIELD.comm: "python"},
                origin=Origin(file="d", line=3),
                text="x",
            )
        ]
    },
    evidence={FACT.host.limit_bytes: Evidence(name=FACT.host.limit_bytes, value=100, says=quoted("the limit is 100"))},
    settings={
        "zero_stage": Setting(
            name="zero_stage",
            spelled="--zero_stage",
            value=3,
            framework="openrlhf",
            origin=Origin(file="l"),
            form="flag",
        )
    },
    traits={TRAIT.local_ranks: True, TRAIT.trains_with_deepspeed: False},
)


def holds(text: str) -> bool | None:
    faults = Faults(Path("x"), dict)
    condition = Resolver(faults, {}).condition(convert(yaml.safe_load(text), When, (), faults), ())
    assert faults.found == []
    return ask(condition, FACTS).value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{event: kernel.killed}", True),
        ("{event: kernel.xid}", False),
        ("{event: kernel.killed, with: {pid: 7}}", True),
        ("{event: kernel.killed, with: {pid: 8}}", False),
        ("{event: kernel.killed, with: {comm: {matches: ^py}}}", True),
        ("{event: kernel.killed, exists: false}", False),
        ("{event: kernel.xid, exists: false}", True),
        ("{evidence: host.limit_bytes, at_least: 50 B, reason: for a test}", True),
        ("{evidence: host.limit_bytes, at_most: 50 B, reason: for a test}", False),
        ("{evidence: host.total_bytes, at_most: 50 B, reason: for a test}", None),
        ("{evidence: host.total_bytes, exists: false}", True),
        ("{setting: zero_stage, is: 3}", True),
        ("{setting: zero_stage, in: [1, 2]}", False),
        ("{setting: lora_rank, is: true}", None),
        ("{setting: lora_rank, exists: true}", False),
        ("{trait: local_ranks}", True),
        ("{trait: local_ranks, is: false}", False),
        ("{trait: trains_with_deepspeed}", False),
        ("{trait: trains_with_deepspeed, is: false}", True),
        ("{trait: repeats_prompts}", None),
        ("{trait: repeats_prompts, is: false}", None),
        ("{all: [{event: kernel.killed}, {setting: lora_rank, is: true}]}", None),
        ("{all: [{event: kernel.xid}, {setting: lora_rank, is: true}]}", False),
        ("{any: [{event: kernel.killed}, {setting: lora_rank, is: true}]}", True),
        ("{any: [{event: kernel.xid}, {setting: lora_rank, is: true}]}", None),
        ("{none: [{event: kernel.xid}]}", True),
        ("{none: [{event: kernel.killed}, {setting: lora_rank, is: true}]}", False),
        ("{none: [{event: kernel.xid}, {setting: lora_rank, is: true}]}", None),
    ],
)
def test_condition(text: str, value: bool | None) -> None:
    """A condition is true, false or unknown."""
    assert holds(text) is value


@pytest.mark.parametrize(
    ("value", "tests", "expected"),
    [
        (True, [("is", True)], True),
        (1, [("is", True)], False),
        ("1", [("is", 1)], False),
        (0, [], True),
        (None, [], False),
        ("abc", [("at_least", 1)], False),
        (True, [("at_least", 1)], False),
        (5, [("at_least", 1), ("at_most", 4)], False),
    ],
)
def test_compare(value: Value, tests: list[tuple[str, object]], expected: bool) -> None:
    """Comparisons do not confuse booleans, numbers and texts."""
    assert compare(value, tests) is expected
