"""Lines in which words of a failure are somebody's text: an answer of the model, a name in another message."""

from __future__ import annotations

import re

from rlhfdoctor.logs.blocks import Hit

_NO_FAILURES = frozenset(("config", "framework", "version", "phase", "progress", "reward", "data", "host", "flight"))
"""Scopes of kinds that say how a run goes, not how it ended."""
_SAID = (
    r"(?:prompts?|responses?|completions?|answers?|questions?|solutions?|instructions?|ground[_ ]truths?|references?"
    r"|chosen|rejected|generated(?:[_ ]texts?)?|(?:model|decoded)[_ ](?:outputs?|texts?|responses?)|回答|回复|提示词)"
)
_ANSWER = re.compile(
    rf"(?i)[\"']{_SAID}[\"'] ?[:=] ?[\[(]?[\"']"
    rf"|^[^A-Za-z\"']{{0,60}}(?:\([^)\n]{{0,80}}\) ?|\w{{2,12}}[:|] ?)?\[?{_SAID}\]? ?[:=\]]"
)
"""Keys of samples in JSON and in print-outs (verl prints `[response] ...`, TRL tables and dicts)."""
_NAMED = re.compile(r"[\s(='\"]/\S|\bprocess ['\"`]")
"""In front of the kernel's words: the path of a cgroup, the name of a program, which any user can choose."""


def is_quoted(hit: Hit) -> bool:
    """Whether a match that would show a failure is within other words."""
    kind, start = hit.pattern.kind, hit.match.start()
    if kind.scope in _NO_FAILURES or not start:
        return False
    head = hit.text[max(0, start - 4096) : start].rpartition("\n")[2]
    return _ANSWER.search(head) is not None or (kind.scope == "kernel" and _NAMED.search(head) is not None)
