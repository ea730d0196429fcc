"""Lines in which words of a failure are somebody's text: an answer of the model, a name in another message."""

from __future__ import annotations

import re

from rlhfdoctor.logs.blocks import Hit
from rlhfdoctor.logs.samples import TURN
from rlhfdoctor.logs.strings import before_string, place_of

_NO_FAILURES = frozenset(("config", "framework", "version", "phase", "progress", "reward", "data", "host", "flight"))
"""Scopes of kinds that say how a run goes, not how it ended."""
_SAID = (
    r"(?:prompts?|responses?|completions?|answers?|questions?|solutions?|instructions?|ground[_ ]truths?"
    r"|chosen|rejected|generated(?:[_ ]texts?)?|(?:model|decoded)[_ ](?:outputs?|texts?|responses?)|回答|回复|提示词)"
)
_ANSWER = re.compile(
    rf"(?i)[\"'](?:{_SAID}|references?)[\"'] ?[:=] ?[\[(]?[\"']"  # at a line's begin, it is the model of that name
    rf"|^[^A-Za-z\"']{{0,60}}(?:\([^)\n]{{0,80}}\) ?|\w{{2,12}}[:|] ?)?"
    rf"(?:\[?{_SAID}\]? ?[:=\]]|(?:user|human|assistant): )"
    rf"|\b{_SAID}: ?\[?[\"']"  # vLLM's log of requests, slime's of samples
)
"""Keys of samples in JSON and in print-outs (verl prints `[response] ...`, TRL tables and dicts)."""
_MAYBE = r"(?:outputs?|texts?|content|gen|generations?|preds?|predictions?|samples?|targets?)"
_OUTPUT = re.compile(
    rf"[\"']{_MAYBE}[\"'] ?: ?\[?[\"']"
    r"|\bGenerated response [^\n]{1,200}?: output: [\"']"  # vllm/entrypoints/logger.py
)
"""Keys that may hold anything, and are a model's words beside one of the following (verl: trainer.rollout_data_dir)."""
_BESIDE = re.compile(
    r"[\"'](?:inputs?|gts|prompts?|questions?|problems?|scores?|rewards?|acc|ground_truth)[\"'] ?:"
    r"|\bGenerated response "
)
_NAMED = re.compile(r"[\s(='\"]/\S|\bprocess ['\"`]")
"""In front of the kernel's words: the path of a cgroup, the name of a program, which any user can choose."""

_BAR, _CELL_BARS_COUNT = "│", 3
"""Of a line of a table with columns (TRL prints prompts beside completions); a traceback in a box has two."""
_WORKER = re.compile(r"^\W{0,8}\(\w[^()\n]{0,80} pid=\d")
"""Ray's prefix of a worker's line, behind which the kernel does not speak."""
_LIST = re.compile(r"^(?:\([^)\n]{0,80}\) ?)?[(\[]{1,2}[\"'](?!Traceback|[^\"'\n]{0,80}Error)[^\n]")
"""A list of texts as Python prints it: OpenRLHF shows the first sample of a batch so (trainer/ppo_trainer.py). One that
begins with the failure is what an exception or a traceback holds."""
_ROLE = re.compile(r"[\"']role[\"'] ?: ?[\"'](?:user|assistant|system|tool)[\"']")
"""Of a message, in JSON or as Python prints it; before or behind its content."""


_HOLDS = re.compile(
    rf"(?i)(?:[\"'](?:{_SAID}|references?)[\"']|\b{_SAID}|\bFinish rollout) ?[:=] ?[\[(]{{0,3}}(?:_, ?){{0,400}}[\"']$"
)
"""What stands before a string that is a sample (`before_string`); slime prints the last form."""
_MAY_HOLD = re.compile(rf"(?:[\"']{_MAYBE}[\"'] ?:|\b(?:output:|text=)) ?[\[(]{{0,3}}(?:_, ?){{0,400}}[\"']$")
_ASKED = re.compile(r"\bGenerateReqInput\(")
"""SGLang's log of requests, with what came of them (managers/tokenizer_manager.py)."""
_LONG = 32 * 1024
"""A text of this length may begin in the middle of a line."""
_FIRST = re.compile(r"^(?:\([^)\n]{0,80}\) ?)?[(\[]{1,2}[\"']$")
_FAILED = re.compile(r"Traceback|[^\"'\n\\]{0,80}Error")
"""What an exception's arguments begin with."""
_SCORED = re.compile(
    r"[\"'], ?(?:[\"']?-?\d{1,9}(?:\.\d{0,20})?(?:e-?\d{1,3})?[\"']?|tensor\([^()\n]{1,80}\))[\])]{1,2}$"
)
"""The end of a list that has a sample with its score."""


def is_quoted(hit: Hit) -> bool:
    """Whether a match that would show a failure is within other words."""
    kind, start = hit.pattern.kind, hit.match.start()
    if kind.scope in _NO_FAILURES:
        return False
    if hit.raw:
        if _is_in_sample(hit.raw, place_of(hit.raw, hit.part, start)):
            return True
    elif start and len(hit.text) < _LONG and _is_in_sample(hit.text, start):
        return True
    if not start:
        return False
    head = hit.text[max(0, start - 4096) : start].rpartition("\n")[2]
    whole = head + hit.text[start : start + 4096].partition("\n")[0]
    if _BAR in head and whole.count(_BAR) >= _CELL_BARS_COUNT:
        return True
    if kind.scope == "kernel" and (_NAMED.search(head) or _WORKER.match(head)):
        return True
    if any(sign.search(head) for sign in (_ANSWER, TURN, _LIST)) or _ROLE.search(whole):
        return True
    return _OUTPUT.search(head) is not None and _BESIDE.search(whole) is not None


def _is_in_sample(line: str, place: int) -> bool:
    """Whether the string that holds a place of a line as it was written is a sample, by what is beside it."""
    before = before_string(line, place)
    if not before:
        return False
    if _HOLDS.search(before):
        return True
    if _FIRST.search(before) and place > len(before) and not _FAILED.match(line, len(before)):
        return _SCORED.search(line[-200:].rstrip()) is not None
    whole = line[:4096] + line[-4096:]
    return _MAY_HOLD.search(before) is not None and any(sign.search(whole) for sign in (_BESIDE, _ROLE, _ASKED))
