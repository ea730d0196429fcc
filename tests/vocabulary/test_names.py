"""Every name is declared once, produced and asked for; nothing joins by a bare string."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlhfdoctor.engine.catalogue import load_rules
from rlhfdoctor.evidence import setup
from rlhfdoctor.logs.events import PATTERNS
from rlhfdoctor.logs.pattern import convert
from rlhfdoctor.places import rules_folder
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary import EVENT, FACT
from rlhfdoctor.vocabulary.index import FACTS, FIELDS, KINDS, TRAITS, scopes
from rlhfdoctor.vocabulary.names import UNITS, Name, did_you_mean

PACKAGE = Path(__file__).resolve().parents[2] / "rlhfdoctor"
SOURCES = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py")) if path.parent.name != "vocabulary"}
RULES = "\n".join(
    path.read_text()
    for path in (
        rules_folder() / "conditions.yaml",
        *(rule.path for rule in load_rules()),
        *(path for name in ("treatments.yaml", "hazards.yaml") for _, path in folders.files(name)),
    )
)
SUFFIXES = {"_bytes": "bytes", "_count": "count", "_s": "s", "_per_step": "bytes", "_text": "text"}
BY_SCOPE = {"config.entry"}
"""Kinds that are asked for by their scope alone."""
BY_READER = {"data.sample"}
"""Kinds that a log's reader takes away."""
BY_TIME = {
    "ray.killing",
    "ray.stopped",
    "ray.intended_exit",
    "ray.node_crashed",
    "torch.loader_exited",
    "nccl.down",
    "nccl.dist_error",
    "nccl.port_taken",
}
"""Kinds whose stamp dates a failure that has none a few lines below it (evidence/death.py)."""


def fields_by_kind() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for pattern in PATTERNS:
        groups = re.compile(pattern.regex).groupindex
        found.setdefault(pattern.kind, set()).update(convert(name, "1")[0] for name in groups)
    return found


def produced(scope: str, *folders: str) -> set[str]:
    """Names that modules of these folders write as SCOPE.a.b."""
    text = "\n".join(text for path, text in SOURCES.items() if path.relative_to(PACKAGE).parts[0] in folders)
    return set(re.findall(rf"\b{scope}\.([a-z0-9_]+\.[a-z0-9_]+)", text))


def test_patterns_yield_what_their_kind_declares() -> None:
    """The groups of all patterns of a kind are the fields that it declares."""
    found = fields_by_kind()
    assert {kind: set(KINDS[kind].fields) for kind in found} == found


def test_every_kind_is_produced() -> None:
    """A declared kind comes from a pattern, a recording, a flight recorder, or is what no pattern knows."""
    assert set(KINDS) == {pattern.kind for pattern in PATTERNS} | {
        k for k in produced("EVENT", "trace", "logs") if k.startswith(("trace.", "flight.", "job."))
    }


def test_every_kind_is_asked_for() -> None:
    """Evidence, a rule, the reading of settings or the timeline asks for each kind."""
    asked = produced("EVENT", "evidence", "settings", "report", "record", "trace") | set(
        re.findall(r"event: ([a-z0-9_.]+)", RULES)
    )
    shown = {kind for kind in KINDS if kind.startswith(("phase.", "deepspeed.checkpoint"))}
    failures = {kind for kind in KINDS if KINDS[kind].failure is not None}
    assert set(KINDS) - asked - shown - failures == BY_SCOPE | BY_READER | BY_TIME


def test_every_fact_is_produced() -> None:
    """Evidence computes each declared fact; `regression.*` by the symptom of a known release."""
    assert set(FACTS) == produced("FACT", "evidence") | {
        fact for fact in FACTS if fact in {f"regression.{s}" for s in ("compile", "hang", "host_growth")}
    }


def test_every_fact_is_asked_for() -> None:
    """A rule asks for each fact, or a module outside of evidence does."""
    words = set(re.findall(r"[a-z_]+\.[a-z_0-9]+", RULES))
    elsewhere = set()
    for text in SOURCES.values():
        elsewhere |= set(re.findall(r"(?<!fact\()(?<!name=)(?<!yield )\bFACT\.([a-z0-9_]+\.[a-z0-9_]+)", text))
    assert {fact for fact in FACTS if fact not in words and fact not in elsewhere} == set()


def test_every_trait_is_had_and_asked_for() -> None:
    """A framework has each declared trait, and a module, a rule or the table of regressions asks for it."""
    asked = {trait for text in SOURCES.values() for trait in re.findall(r"TRAIT\.([a-z_]+)", text)}
    asked |= set(re.findall(r"\btrait: (\w+)", RULES))
    asked |= {trait for row in setup._known() for trait in row.get("not_with", ())}
    had = {rule.trait for spec in folders.load() for rule in spec.traits}
    assert set(TRAITS) == asked == had


@pytest.mark.parametrize("name", [*FACTS.values(), *FIELDS.values()])
def test_unit_fits_the_suffix(name: Name) -> None:
    """`_bytes` are bytes, `_s` seconds, `_count` a count; a ratio is a share or a factor; each has a meaning."""
    suffix = next((s for s in SUFFIXES if name.endswith(s)), "")
    assert name.unit in UNITS
    assert name.unit == SUFFIXES.get(suffix, name.unit)
    assert not name.endswith("_ratio") or name.unit in ("share", "factor")
    assert name.meaning


@pytest.mark.parametrize("kind", KINDS.values())
def test_kind_has_a_meaning(kind: Name) -> None:
    """The page of the vocabulary has a sentence for each kind."""
    assert kind.meaning


def literals(tree: ast.AST) -> Iterator[ast.Constant]:
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_no_bare_names(path: Path) -> None:
    """No module writes the name of a kind or fact as a string."""
    assert [
        f"{path.name}:{node.lineno}: {node.value}"
        for node in literals(ast.parse(SOURCES[path]))
        if node.value in KINDS or node.value in FACTS
    ] == []


@pytest.mark.parametrize("module", [EVENT, FACT])
def test_scopes_are_documented(module: object) -> None:
    """Each scope says what it is about."""
    assert [scope.__name__ for scope in scopes(module) if not scope.__doc__] == []


def test_an_unknown_name_is_an_error() -> None:
    """A name that is not declared fails where it is written."""
    with pytest.raises(AttributeError):
        EVENT.kernel.kiled  # noqa: B018
    assert did_you_mean("kernel.kiled", KINDS) == " Did you mean 'kernel.killed'?"
