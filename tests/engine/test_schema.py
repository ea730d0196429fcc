"""Rules are checked as a whole: every fault with its file and line."""

from __future__ import annotations

import shutil
from pathlib import Path

import jsonschema
import pytest
import yaml

from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.engine.draft import write_skeleton
from rlhfdoctor.engine.resolve import read_rule
from rlhfdoctor.engine.rulefile import json_schema
from rlhfdoctor.errors import RuleError
from rlhfdoctor.places import bundled_folder, rules_folder
from rlhfdoctor.vocabulary import EVENT


def broken(tmp_path: Path, old: str, new: str) -> str:
    path = write_skeleton(tmp_path / "host-x-y")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RuleError) as error:
        read_rule(path.parent)
    return str(error.value)


def test_skeleton_is_a_valid_rule(tmp_path: Path) -> None:
    """What `rules new` writes loads."""
    assert read_rule(write_skeleton(tmp_path / "host-x-y").parent).id == "host-x-y"


REQUIRES = "requires: {event: torch.cuda_error}"
REMEDY = "remediation: [{setting: zero_stage, to: 1, safety: safe, effect: x}]"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("id: host-x-y", "id: other-name", "differs from the folder's name"),
        ("kind: host", "knd: host", "unknown key 'knd' in rule. Did you mean 'kind'?"),
        ("kind: host", "kind: 2024-13-45", ":3: no plain value: month must be in 1..12"),
        ("kind: host", "kind: hosts", "'kind': invalid enum value 'hosts'"),
        ("prior: -1.0", "prior: low", "'prior': expected float, got str"),
        (REQUIRES, "requires: {evnt: torch.cuda_error}", "unknown key 'evnt' in requires. Did you mean 'event'?"),
        (REQUIRES, "requires: {event: torch.cuda_error, evidence: death.any}", "exactly one of"),
        (
            REQUIRES,
            "requires: {any: [{event: torch.cuda_error}], is: 1}",
            "takes a list of conditions and no comparison",
        ),
        (
            REQUIRES,
            "requires: {event: torch.cuda_eror}",
            "unknown event 'torch.cuda_eror'. Did you mean 'torch.cuda_error'?",
        ),
        (
            REQUIRES,
            "requires: {evidence: host.limit_byte}",
            "unknown fact 'host.limit_byte'. Did you mean 'host.limit_bytes'?",
        ),
        (REQUIRES, "requires: {setting: zero_stag, is: 3}", "unknown setting 'zero_stag'. Did you mean 'zero_stage'?"),
        (REQUIRES, "requires: {condition: no-such}", "unknown condition 'no-such'"),
        (
            REQUIRES,
            "requires: {event: torch.cuda_error, with: {eror_text: x}}",
            "unknown field of torch.cuda_error 'eror_text'",
        ),
        (
            REQUIRES,
            "requires: {evidence: host.limit_bytes, at_least: many}",
            "is no threshold in bytes; write it like 16 GiB",
        ),
        (REQUIRES, "requires: {evidence: host.limit_bytes, at_least: 1024}", "is no threshold in bytes"),
        (
            REQUIRES,
            "requires: {evidence: host.limit_ratio, at_most: 0.5}",
            "is no threshold in share; write it like 35 %",
        ),
        (
            REQUIRES,
            "requires: {evidence: kernel.top_to_second_ratio, at_most: 35 %}",
            "is no threshold in factor; write it like 2 x",
        ),
        (
            REQUIRES,
            "requires: {evidence: host.limit_ratio, at_most: 50 %}",
            "'at_most' needs 'reason' beside it: why the threshold is there",
        ),
        (REQUIRES, "requires: {evidence: host.limit_ratio, at_most: 50 %, reason: ' '}", "needs 'reason'"),
        (REQUIRES, "requires: {setting: lora_rank, at_least: 1}", "'at_least' needs 'reason' beside it"),
        (
            REQUIRES,
            "requires: {event: kernel.killed, with: {pid: {at_least: 2}}}",
            "'at_least' needs 'reason' beside it",
        ),
        (REQUIRES, "requires: {evidence: death.killer, in: many}", "'in': expected array"),
        (REQUIRES, "requires: {evidence: death.killer, matches: '('}", "bad regular expression"),
        ("  impact: What it does to a run.\n", "", "docs needs 'impact'"),
        ("weight: 2.0, ", "", "for needs 'weight'"),
        ("says: why this speaks for it", "says: why, it speaks for it", "unknown key 'it speaks for it'"),
        (
            "such as {cuda.request_bytes}",
            "such as {cuda.request_byte}",
            "unknown fact 'cuda.request_byte'. Did you mean 'cuda.request_bytes'?",
        ),
        ("remediation: []", REMEDY.replace("safe,", "maybe,"), "'safety': invalid enum value 'maybe'"),
        (
            "remediation: []",
            REMEDY.replace("zero_stage", "zero_stag"),
            "unknown setting 'zero_stag'. Did you mean 'zero_stage'?",
        ),
        ("remediation: []", REMEDY.replace("setting: zero_stage", "measure: new machine"), "needs 'instead'"),
        (
            "remediation: []",
            REMEDY.replace("effect: x", "effect: x, when: {trait: local_rank}"),
            "unknown trait 'local_rank'. Did you mean 'local_ranks'?",
        ),
        (
            "remediation: []",
            REMEDY.replace("effect: x", "effect: x, when: {trait: local_ranks, at_least: 1, reason: x}"),
            "'trait' is compared by 'is: true' or 'is: false' only",
        ),
        (
            "remediation: []",
            REMEDY.replace("effect: x", "effect: x, frameworks: [openrlhf]"),
            "unknown key 'frameworks'",
        ),
        ("remediation: []", REMEDY.replace("effect: x", "effect: x, versions: since 3"), "is no specifier"),
        ("remediation: []", REMEDY.replace("to: 1", "to: {from: cure.micro_batch}"), "unknown fact 'cure.micro_batch'"),
        ("remediation: []", REMEDY.replace("to: 1", "to: {scale: half}"), "'scale': expected float, got str"),
        (
            "remediation: []",
            REMEDY.replace("effect: x", "effect: x, frees: {evidence: host.limit_ratio, least: 0, most: 1}"),
            "host.limit_ratio is in share, not in bytes",
        ),
        ("- {note: ", "- {notes: ", "unknown key 'notes' in false_positives. Did you mean 'note'?"),
        ("- {note: ", "- {causes: [host-leak], note: ", "one of causes, other and note; this one has causes and note"),
        ("- {note: ", "- {differs: ", "one of causes, other and note; this one has none"),
        ("- {note: ", "- {differs: so, note: ", "'differs' is given together with 'causes' or 'other'"),
        (
            "  - {note: 'What looks alike, and how to tell.'}",
            "    []",
            "'false_positives' needs at least one look-alike or note",
        ),
        (
            "  - {note: 'What looks alike, and how to tell.'}",
            "    What looks alike.",
            "'false_positives': expected array, got str",
        ),
    ],
)
def test_fault_is_reported(tmp_path: Path, old: str, new: str, message: str) -> None:
    """A fault says what is wrong and, for a misspelled name, what may have been meant."""
    assert message in broken(tmp_path, old, new)


def test_fault_has_its_line(tmp_path: Path) -> None:
    """A fault names the file and the line where it stands."""
    assert "rule.yaml:11: " in broken(tmp_path, "weight: 2.0, ", "")


def test_threshold_without_a_reason_has_its_line(tmp_path: Path) -> None:
    """Also inside of a combination that has a reason of its own."""
    fault = broken(
        tmp_path,
        REQUIRES,
        "requires:\n    reason: both\n    all:\n    - {event: kernel.killed}\n    - {setting: lora_rank, at_least: 1}",
    )
    assert fault.endswith("rule.yaml:12: 'at_least' needs 'reason' beside it: why the threshold is there")


def test_all_faults_at_once(tmp_path: Path) -> None:
    """All faults of a rule are reported together."""
    assert len(broken(tmp_path, "prior: -1.0\n", "prior: low\n  colour: red\n").splitlines()) == 2


def test_unknown_cause(tmp_path: Path) -> None:
    """What a rule says of other causes is checked when the catalogue is loaded."""
    write_skeleton(tmp_path / "host-x-y")
    other = write_skeleton(tmp_path / "host-x-z")
    text = other.read_text()
    for old, new, message in (
        (
            "references: []",
            "references: []\nsuppresses: [host-x-x]",
            "unknown cause 'host-x-x' in suppresses. Did you mean 'host-x-z'?",
        ),
        (
            "- {note: ",
            "- {causes: [host-x-y, host-x-x], differs: so}\n  - {note: ",
            "unknown cause 'host-x-x' in false_positives. Did you mean 'host-x-z'?",
        ),
    ):
        other.write_text(text.replace(old, new))
        line = next(n for n, row in enumerate(other.read_text().splitlines(), 1) if "host-x-x" in row)
        with pytest.raises(RuleError) as error:
            load_rules(tmp_path)
        assert str(error.value) == f"{other}:{line}: {message}"


def test_named_condition(tmp_path: Path) -> None:
    """A condition of conditions.yaml stands in for its name, and needs a reason."""
    path = write_skeleton(tmp_path / "host-x-y")
    path.write_text(path.read_text().replace(REQUIRES, "requires: {condition: shared}"))
    conditions = tmp_path / "conditions.yaml"
    conditions.write_text("shared: {event: torch.cuda_error}\n")
    with pytest.raises(RuleError, match="needs 'reason'"):
        read_rule(path.parent)
    conditions.write_text("shared: {event: torch.cuda_error, reason: for a test}\n")
    assert read_rule(path.parent).requires.kind == EVENT.torch.cuda_error


def test_editors_have_a_schema() -> None:
    """The JSON Schema accepts what loads, and refuses an unknown key."""
    validator = jsonschema.Draft202012Validator(json_schema())
    raw = yaml.safe_load((rules_folder() / "host-leak/rule.yaml").read_text())
    assert list(validator.iter_errors(raw)) == []
    assert len(list(validator.iter_errors({**raw, "colour": "red"}))) == 1


def test_key_given_twice(tmp_path: Path) -> None:
    """A key that is duplicated is a fault, not a silent overwrite."""
    assert "duplicate key 'kind'" in broken(tmp_path, "kind: host", "kind: host\nkind: gpu")


@pytest.mark.parametrize("kind", ["fires", "silent"])
def test_rule_without_both_kinds_of_sample(tmp_path: Path, kind: str) -> None:
    """A rule without samples that must and must not fire does not load."""
    path = write_skeleton(tmp_path / "host-x-y")
    next((path.parent / kind).glob("*/*")).unlink()
    with pytest.raises(RuleError, match=f"no sample under {kind}/"):
        read_rule(path.parent)


def test_catalogue_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rules of a folder of one's own use the bundled conditions, and name bundled causes."""
    shutil.copytree(bundled_folder() / "host-leak", tmp_path / "host-leak")
    monkeypatch.setenv("RLHFDOCTOR_RULES", str(tmp_path))
    (rule,) = load_rules(tmp_path)
    assert rule.id == "host-leak" and rule.suppresses
