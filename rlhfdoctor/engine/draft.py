"""A rule that is being written: its skeleton, then what its folder still lacks."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import yaml

from rlhfdoctor.engine.schema import Rule, named_causes
from rlhfdoctor.errors import UsageError
from rlhfdoctor.i18n import catalogue
from rlhfdoctor.i18n.language import languages
from rlhfdoctor.i18n.message import say
from rlhfdoctor.places import rules_folder

_SAID = {
    "title",
    "summary",
    "says",
    "meaning",
    "impact",
    "check",
    "next_step",
    "differs",
    "other",
    "effect",
    "cost",
    "note",
    "instead",
    "side_effects",
    "what",
    "because",
    "how_to_check",
}


def write_skeleton(folder: Path) -> Path:
    """Writes rule.yaml, its translations, fires/ and silent/ of a new rule, all of it to be filled in.

    Raises:
        UsageError: the name is no id, or the folder exists.
    """
    if not re.fullmatch(r"[a-z]+(-[a-z0-9]+)+", folder.name):
        raise UsageError(say("'{name}' is no rule id; expected e.g. host-my-cause", name=folder.name))
    if folder.exists():
        raise UsageError(say("{folder} exists already", folder=str(folder)))
    sample = "RuntimeError: CUDA error: out of memory\n"
    for kind, text in (("fires/example", sample), ("silent/look-alike", "Job finished\n")):
        (folder / kind).mkdir(parents=True)
        (folder / kind / "driver.log").write_text(text)
    text = _SKELETON.format(id=folder.name, kind=folder.name.split("-")[0])
    (folder / "rule.yaml").write_text(text)
    english = dict.fromkeys(sentences(folder / "rule.yaml"), "")
    for language in languages()[1:]:
        file = folder / f"{language}.po"
        file.write_text(catalogue.update(file, english, {}, language), encoding="utf-8")
    return folder / "rule.yaml"


def sentences(path: Path, keys: Collection[str] = _SAID) -> list[str]:
    """Every sentence of a rule file that a reader sees, in order, each once.

    Args:
        keys: under which sentences are.
    """
    return list(dict.fromkeys(_said(yaml.safe_load(path.read_text(encoding="utf-8")), keys)))


def missing_parts(rule: Rule, causes: Collection[str]) -> list[str]:
    """What is missing in a rule's folder, one sentence each.

    Args:
        causes: the ids that a rule may name.
    """
    found = [f"{rule.path}: still the skeleton's: '{text}'" for text in sentences(rule.path) if text in _skeleton()]
    found += [
        f"{rule.path}: '{key}' names {name}, and no rule has that id"
        for key, name in named_causes(rule)
        if name not in causes
    ]
    shipped = rule.path.parent.parent.resolve() == rules_folder().resolve()
    for language in languages()[1:]:
        file = rule.path.with_name(f"{language}.po")
        if file.exists() or shipped:
            found += catalogue.faults(file, dict.fromkeys(sentences(rule.path), ""))
    return found


@functools.cache
def _skeleton() -> frozenset[str]:
    return frozenset(_said(yaml.safe_load(_SKELETON.format(id="host-x", kind="host")), _SAID))


def _said(node: Any, keys: Collection[str], wanted: bool = False) -> Iterator[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            yield from _said(value, keys, key in keys)
    elif isinstance(node, list):
        for value in node:
            yield from _said(value, keys, wanted)
    elif isinstance(node, str) and wanted and node.strip():
        yield " ".join(node.split())


_SKELETON = """\
# yaml-language-server: $schema=../schema.json
id: {id}
kind: {kind}
title: State the fault, not the cure
summary: >
  One sentence for the user, with figures such as {{cuda.request_bytes}}.
detect:
  requires: {{event: torch.cuda_error}}
  prior: -1.0
  for:
  - {{when: {{event: torch.cuda_error, with: {{error_text: out of memory}}}}, weight: 2.0, \
says: why this speaks for it}}
  # A threshold has its unit and its reason, as in {{evidence: host.limit_ratio, at_most: 60 %, \
reason: why it is there}};
  # what several rules share has a name in conditions.yaml and is used as {{condition: NAME}}.
  against: []
  missing:
  - {{what: what is not known, how_to_check: the command that would show it}}
docs:
  meaning: What it means.
  impact: What it does to a run.
  check: How to check it by hand.
  false_positives:  # also {{causes: [host-leak], differs: how to tell it from this one}} \
and {{other: what is no cause here}}
  - {{note: 'What looks alike, and how to tell.'}}
remediation: []
references: []
"""
