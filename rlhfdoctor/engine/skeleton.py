"""The example that a new rule begins as; a rule that still has a sentence of it is a draft."""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator
from typing import Any

from rlhfdoctor import documents

SAID = {
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
"""Keys of a rule's file under which readers' sentences are."""


def skeleton(rule_id: str) -> str:
    """The text of a new rule's file."""
    return _SKELETON.format(id=rule_id, kind=rule_id.split("-")[0])


def said(raw: Any, keys: Collection[str] = SAID) -> list[str]:
    """Every sentence among the plain values of a file that a reader sees, in order, each once.

    Args:
        keys: under which sentences are.
    """
    return list(dict.fromkeys(_said(raw, keys)))


def left_of_skeleton(raw: Any) -> list[str]:
    """The sentences of a rule that are still the example's."""
    return [text for text in said(raw) if text in _example()]


@functools.cache
def _example() -> frozenset[str]:
    return frozenset(said(documents.parse(skeleton("host-x"))))


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
