"""Every name that a rule or a module bears, misspelled in that one place, is an error: the whole vocabulary, one name after the other."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlhfdoctor.conditions.files import Faults, Place, read_yaml
from rlhfdoctor.conditions.resolve import read_conditions
from rlhfdoctor.engine import treatments
from rlhfdoctor.engine.catalogue import check_causes, load_conditions, load_rules
from rlhfdoctor.engine.resolve import resolve_rule
from rlhfdoctor.engine.schema import PLACE, Rule
from rlhfdoctor.errors import RuleError
from rlhfdoctor.evidence import setup
from rlhfdoctor.places import rules_folder
from rlhfdoctor.plugins import folders
from rlhfdoctor.vocabulary.index import FACTS, FIELDS, KINDS, TRAITS

RULES = load_rules()
CONDITIONS = load_conditions(rules_folder())
PACKAGE = Path(__file__).resolve().parents[2] / "rlhfdoctor"
CODE = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py") if path.parent.name != "vocabulary")
EVENTS = "\n".join(path.read_text() for path in (PACKAGE / "vocabulary").glob("*_events.py"))
FOLDERS = "\n".join(path.read_text() for path in (PACKAGE / "frameworks").rglob("framework.yaml"))
ASKING = "\n".join(
    path.read_text() for path in (rules_folder() / "conditions.yaml", *rules_folder().glob("*/rule.yaml"))
)
UNLESS = {trait for row in setup._known() for trait in row.get("not_with", ())}
"""Traits that the table of regressions asks for, which are looked up when it is read."""
NAMES = {"event", "evidence", "setting", "trait", "condition", "from", "raise", "before"}


def places(value: Any, place: Place = ()) -> Iterator[Place]:
    """Where a rule names something: values of naming keys, keys of `with`, and lists of causes."""
    if isinstance(value, dict):
        for key, part in value.items():
            here = (*place, key)
            if key in NAMES and isinstance(part, str):
                yield here
            elif key == "with":
                yield from ((*here, field) for field in part)
            elif key in ("suppresses", "causes", "rules"):
                yield from ((*here, index) for index in range(len(part)))
            yield from places(part, here)
    elif isinstance(value, list):
        for index, part in enumerate(value):
            yield from places(part, (*place, index))
    elif isinstance(value, str) and PLACE.search(value):
        yield place


def mutated(raw: Any, place: Place) -> Any:
    """A copy with the name at a place misspelled."""
    changed = copy.deepcopy(raw)
    holder = changed
    for step in place[:-1]:
        holder = holder[step]
    last = place[-1]
    if len(place) > 1 and place[-2] == "with":
        holder[f"{last}_x"] = holder.pop(last)
    elif isinstance(holder[last], str) and PLACE.search(holder[last]):
        holder[last] = PLACE.sub(lambda found: f"{{{found[1]}_x}}", holder[last], count=1)
    else:
        holder[last] = f"{holder[last]}_x"
    return changed


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_names_of_a_rule(rule: Rule) -> None:
    """A rule with one name misspelled does not load, whichever name it is."""
    raw, _ = read_yaml(rule.path)
    survivors = []
    for place in places(raw):
        try:
            broken = resolve_rule(mutated(raw, place), Faults(rule.path, dict), rule.path.parent, CONDITIONS)
        except RuleError:
            continue
        if not check_causes({**{r.id: r for r in RULES}, rule.id: broken}):
            survivors.append(place)
    assert survivors == []


@pytest.mark.parametrize(
    ("framework", "path"), list(folders.files("treatments.yaml")), ids=lambda value: str(value)[-50:]
)
def test_names_of_treatments(framework: str, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the treatments of a framework's folder: each of their names, one after the other."""
    raw, _ = read_yaml(path)
    survivors = []
    by_id = {rule.id: rule for rule in RULES}
    for place in places(raw):
        broken = tmp_path / "treatments.yaml"
        broken.write_text(yaml.safe_dump(mutated(raw, place)))
        try:
            found = tuple(treatments.read_treatments(broken, framework, CONDITIONS))
        except RuleError:
            continue
        monkeypatch.setattr(treatments, "load_treatments", lambda found=found: found)
        if not treatments.check_treatments(by_id, by_id):
            survivors.append(place)
    assert raw["treatments"] and survivors == []


def test_names_of_shared_conditions(tmp_path: Path) -> None:
    """The same for conditions.yaml: each of its names, one after the other."""
    text = (rules_folder() / "conditions.yaml").read_text()
    survivors = []
    comments = [range(*found.span()) for found in re.finditer(r"^#.*$", text, re.MULTILINE)]
    for found in re.finditer(r"\b(?:event|evidence|setting|condition|trait): ([\w.-]+)", text):
        if any(found.start() in comment for comment in comments):
            continue
        (tmp_path / "conditions.yaml").write_text(text[: found.end()] + "_x" + text[found.end() :])
        try:
            read_conditions(tmp_path)
        except RuleError:
            continue
        survivors.append(found[0])
    assert survivors == []


@pytest.mark.parametrize("name", [*KINDS, *FACTS])
def test_a_renamed_declaration(name: str) -> None:
    """A kind or fact whose declaration is renamed is missed by a module, a rule or a framework's folder."""
    scope = "EVENT" if name in KINDS else "FACT"
    by_code = re.search(rf"\b{scope}\.{re.escape(name)}\b", CODE)
    by_data = re.search(rf"\b{re.escape(name)}\b", FOLDERS)
    assert by_code or by_data


@pytest.mark.parametrize("name", FIELDS)
def test_a_renamed_field(name: str) -> None:
    """A field whose declaration is renamed is missed by the kinds that have it."""
    assert re.search(rf"\bF\.{name}\b", EVENTS)


@pytest.mark.parametrize("name", TRAITS)
def test_a_renamed_trait(name: str) -> None:
    """A trait whose declaration is renamed is missed by a module, a rule or a framework's folder that asks for it."""
    assert re.search(rf"\bTRAIT\.{name}\b", CODE) or re.search(rf"\btrait: {name}\b", ASKING) or name in UNLESS
