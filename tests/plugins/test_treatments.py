"""Treatments and traps of a framework's folder: checked at load, joined to their rules, and for that framework only."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from rlhfdoctor.budget import own_hazards
from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.conditions.resolve import read_conditions
from rlhfdoctor.engine import catalogue, treatments
from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.rank import treatments as treatments_that_hold
from rlhfdoctor.errors import PluginError, RuleError
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.patch.plan import Configuration, plan_patches
from rlhfdoctor.places import rules_folder
from rlhfdoctor.settings.spell import _factor, spell
from rlhfdoctor.types import Framework, Patch
from rlhfdoctor.vocabulary import TRAIT
from tests.build import make_setting

RULES = {rule.id: rule for rule in load_rules()}
GOOD = """treatments:
- rules: [comm-long-generation]
  setting: collective_timeout
  to: 7200
  safety: safe
  effect: more time
"""


def loaded(folder: Path, text: str) -> list[treatments.OwnTreatment]:
    path = folder / "treatments.yaml"
    path.write_text(text)
    return list(treatments.read_treatments(path, "trl", read_conditions(rules_folder())))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "setting: collective_timeout",
            "setting: collective_timout",
            ":3: unknown setting 'collective_timout'. Did you mean",
        ),
        ("effect: more time", "effects: more time", ":6: unknown key 'effects' in treatments. Did you mean 'effect'?"),
        ("safety: safe", "safety: sure", ":5: 'safety': invalid enum value 'sure'"),
        ("- rules: [comm-long-generation]\n  setting", "- setting", ":2: treatments needs 'rules'"),
        ("effect: more time", "effect: '{host.limit_byte} more'", ":6: unknown fact 'host.limit_byte'. Did you mean"),
        ("safety: safe", "safety: safe\n  when: {trait: local_rank}", ":6: unknown trait 'local_rank'. Did you mean"),
        ("safety: safe", "safety: safe\n  versions: soon", ":6: 'soon' is no specifier"),
        ("treatments:", "treatment:", ":2: unknown key 'treatment' in treatments. Did you mean 'treatments'?"),
    ],
)
def test_faults(tmp_path: Path, old: str, new: str, message: str) -> None:
    """What is not declared is an error with its file and line, and what was meant."""
    with pytest.raises(RuleError) as error:
        loaded(tmp_path, GOOD.replace(old, new))
    assert f"treatments.yaml{message}" in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "comm-long-generation",
            "comm-long-generatin",
            ":2: unknown rule 'comm-long-generatin'. Did you mean 'comm-long-generation'?",
        ),
        (
            "  setting: coll",
            "  before: max_respnse_length\n  setting: coll",
            ":3: comm-long-generation has no treatment 'max_respnse_length' of its own. Did you mean 'max_response_length'?",
        ),
    ],
)
def test_faults_of_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str) -> None:
    """The same for the rules that a treatment is of, once they are known."""
    found = tuple(loaded(tmp_path, GOOD.replace(old, new)))
    monkeypatch.setattr(treatments, "load_treatments", lambda: found)
    assert [message in fault for fault in treatments.check_treatments(RULES, RULES)] == [True]


@pytest.mark.parametrize(
    ("more", "after"),
    [
        ("", None),
        ("  before: max_response_length\n", "rollout.num_engines"),
        ("  measure: x\n  instead: x\n", "max_response_length"),
    ],
)
def test_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: str, after: str | None) -> None:
    """A treatment comes before the rule's own of its setting, or where it says, or last."""
    text = GOOD.replace("  setting: collective_timeout\n", more) if "measure" in more else GOOD + more
    found = tuple(loaded(tmp_path, text))
    monkeypatch.setattr(treatments, "load_treatments", lambda: found)
    rule = RULES["comm-long-generation"]
    own = [t for t in rule.remediation if not t.framework]
    joined = treatments.join(replace(rule, remediation=tuple(own))).remediation
    at = next(i for i, t in enumerate(joined) if t.framework)
    assert (joined[at - 1].setting if at else None) == after
    assert [t for t in joined if not t.framework] == own


def patches(cause: str, framework: Framework) -> list[Patch]:
    case = Case([], [], framework)
    facts = Facts(events={}, evidence={}, settings=case.in_force(), traits=case.traits())
    return list(plan_patches(RULES[cause].remediation, facts, Configuration({}, [], framework, {})))


@pytest.mark.parametrize(
    ("framework", "version", "spelled"),
    [
        (
            "openrlhf",
            "0.9.0",
            "raise timeout in DeepspeedStrategy.setup_distributed (openrlhf/utils/deepspeed/deepspeed.py)",
        ),
        ("verl", "0.6.1", "actor_rollout_ref.nccl_timeout"),
        ("verl", "0.9.1", "pass a timeout on in verl/workers/engine_workers.py"),
        ("trl", "0.20.0", "ddp_timeout"),
        ("rlhfdoctor", "0.1.0", "cluster.collective_timeout"),
        ("skyrl", "0.3.0", "SKYRL_WORKER_NCCL_TIMEOUT_IN_S"),
        ("slime", "0.3.1", "--distributed-timeout-minutes"),
        ("verl", None, "actor_rollout_ref.nccl_timeout"),
        ("easyr1", "0.3.1", None),
    ],
)
def test_each_framework_has_its_own(framework: str, version: str | None, spelled: str | None) -> None:
    """One treatment of a rule is for all that have the setting; where a framework differs, its folder says how."""
    for cause in ("comm-long-generation", "comm-slow-reward"):
        found = patches(cause, Framework(name=framework, version=version))
        assert [p.spelled for p in found if p.setting == "collective_timeout"] == [spelled] * (spelled is not None)


def test_no_interval_is_no_interval() -> None:
    """0 and -1 switch saving off: neither is multiplied, which would switch it on."""
    for value, proposed in ((5, ["20"]), (0, []), (-1, [])):
        own = make_setting("--save_steps", value, name="checkpoint.save_steps")
        case = Case([], [own], Framework(name="openrlhf", version="0.9.0"))
        facts = Facts(events={}, evidence={}, settings=case.in_force(), traits=case.traits())
        known = Configuration({}, [own], case.framework, {})
        chosen = treatments_that_hold(RULES["host-checkpoint-save"], facts)
        found = [p.after for p in plan_patches(chosen, facts, known) if p.setting == "checkpoint.save_steps"]
        assert found == proposed


def test_note_of_a_variable() -> None:
    """A framework's variable of the environment reaches workers as torch's do: by the shell that starts Ray."""
    (patch, *_) = patches("comm-long-generation", Framework(name="skyrl", version="0.3.0"))
    assert "runtime_env" in str(patch.note)


def test_traits_of_a_run() -> None:
    """All are known of a known framework; of an unknown one only what its settings show."""
    assert Case([], [], Framework(name="trl")).traits()[TRAIT.local_ranks] is True
    assert Case([], [], Framework(name="verl")).traits()[TRAIT.local_ranks] is False
    assert Case([], []).traits() == {}
    json = make_setting("zero_optimization.stage", 3, framework="deepspeed", form="json")
    assert Case([], [json]).traits() == {TRAIT.trains_with_deepspeed: True}


HAZARD = """hazards:
- phase: rollout
  cause: comm-zero3-generate-desync
  when: {all: [{setting: zero_stage, is: 3}, {trait: local_ranks}]}
  says: x
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("phase: rollout", "phase: rolout", ":2: 'phase': invalid enum value 'rolout'"),
        ("setting: zero_stage", "setting: zero_stag", ":4: unknown setting 'zero_stag'. Did you mean 'zero_stage'?"),
        ("trait: local_ranks", "trait: local_rank", ":4: unknown trait 'local_rank'. Did you mean 'local_ranks'?"),
        ("trait: local_ranks", "event: kernel.killed", ":4: a trap is known before the run"),
        ("says: x", "says: x\n  versions: vllm soon", ":6: 'vllm soon' is no specifier"),
        ("says: x", "say: x", ":5: unknown key 'say' in hazards. Did you mean 'says'?"),
    ],
)
def test_faults_of_traps(tmp_path: Path, old: str, new: str, message: str) -> None:
    """The same for the traps of a folder."""
    path = tmp_path / "hazards.yaml"
    path.write_text(HAZARD.replace(old, new))
    with pytest.raises(RuleError) as error:
        list(own_hazards.read_hazards(path, "trl"))
    assert f"hazards.yaml{message}" in str(error.value)


def test_cause_of_a_trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trap leads to a cause that a rule explains."""
    path = tmp_path / "hazards.yaml"
    path.write_text(HAZARD.replace("generate-desync", "generate-desnc"))
    found = tuple(own_hazards.read_hazards(path, "trl"))
    monkeypatch.setattr(catalogue, "load_hazards", lambda: found)
    (fault,) = catalogue._unknown_causes(set(RULES))
    assert ":3: unknown cause 'comm-zero3-generate-desnc'. Did you mean 'comm-zero3-generate-desync'?" in fault


def test_unknown_unit() -> None:
    """A unit of a settings table is one of its setting's units."""
    with pytest.raises(
        PluginError, match=r"slime: settings.yaml:\d+: collective_timeout: unknown unit 'mi'. Did you mean 'min'"
    ):
        _factor({"name": "collective_timeout", "unit": "mi"}, "slime")
    with pytest.raises(PluginError, match="zero_stage: has no unit"):
        _factor({"name": "zero_stage", "unit": "min"}, "slime")


@pytest.mark.parametrize(("framework", "seconds"), [("0.5.4", 1800), ("0.5.5", 3600), ("0.11.2", 3600)])
def test_limit_by_release(framework: str, seconds: int) -> None:
    """The collective limit that a framework sets itself is in its table, by release."""
    row = spell("collective_timeout", "openrlhf", framework)
    assert row is not None and row.default == seconds
