"""Rules are checked as a whole: every fault with its file and line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlhfdoctor.engine.draft import write_skeleton
from rlhfdoctor.engine.schema import read_rule
from rlhfdoctor.errors import RuleError


def broken(tmp_path: Path, old: str, new: str) -> str:
    path = write_skeleton(tmp_path / "host-x-y")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(RuleError) as error:
        read_rule(path.parent)
    return str(error.value)


def test_skeleton_is_a_valid_rule(tmp_path: Path) -> None:
    """What `rules new` writes loads."""
    assert read_rule(write_skeleton(tmp_path / "host-x-y").parent).id == "host-x-y"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("id: host-x-y", "id: other-name", "differs from the folder's name"),
        ("kind: host", "knd: host", "unknown key 'knd'"),
        ("prior: -1.0", "prior: low", "'prior' takes a number"),
        ("requires: {event: torch.cuda_error}", "requires: {evnt: torch.cuda_error}", "unknown key 'evnt'"),
        ("requires: {event: torch.cuda_error}", "requires: {event: a.b, evidence: c.d}", "exactly one of"),
        ("requires: {event: torch.cuda_error}", "requires: {any: [{event: a.b}], event: c.d}", "stand alone"),
        ("requires: {event: torch.cuda_error}", "requires: {evidence: a.b, at_least: many}", "takes a number"),
        ("requires: {event: torch.cuda_error}", "requires: {evidence: a.b, in: many}", "takes a list"),
        ("requires: {event: torch.cuda_error}", "requires: {evidence: a.b, matches: '('}", "bad regular expression"),
        ("  impact: What it does to a run.\n", "", "docs needs 'impact'"),
        ("weight: 2.0, ", "", "'weight' takes a number"),
        ("treat: []", "treat: [{setting: a.b, to: 1, safety: maybe, effect: x}]", "safety is one of"),
    ],
)
def test_fault_is_told(tmp_path: Path, old: str, new: str, told: str) -> None:
    """A fault is told in words."""
    assert told in broken(tmp_path, old, new)


def test_fault_has_its_line(tmp_path: Path) -> None:
    """A fault names the file and the line where it stands."""
    assert "rule.yaml:10: " in broken(tmp_path, "weight: 2.0, ", "")


def test_all_faults_at_once(tmp_path: Path) -> None:
    """All faults of a rule are told together."""
    assert len(broken(tmp_path, "prior: -1.0\n", "prior: low\n  colour: red\n").splitlines()) == 2


def test_key_given_twice(tmp_path: Path) -> None:
    """A key that stands twice is a fault, not a silent overwrite."""
    assert "stands twice" in broken(tmp_path, "kind: host", "kind: host\nkind: gpu")


@pytest.mark.parametrize("kind", ["fires", "silent"])
def test_rule_without_both_kinds_of_sample(tmp_path: Path, kind: str) -> None:
    """A rule without samples that must and must not fire does not load."""
    path = write_skeleton(tmp_path / "host-x-y")
    next((path.parent / kind).glob("*/*")).unlink()
    with pytest.raises(RuleError, match=f"no sample under {kind}/"):
        read_rule(path.parent)
