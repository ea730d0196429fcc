"""Samples that a trainer prints: conversations with the model, whose lines are data.

Where a sample ends is known by what its form puts behind it, which an answer in that form does not hold: the fields
after an answer (verl: workers/reward_manager/naive.py), the token that ends a turn (the chat templates of the models).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rlhfdoctor.logs.prefix import split_as, splits
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT


class Form(NamedTuple):
    """How samples of one kind are written."""

    when: str
    begin: str
    """Part of a regular expression, as are the others; `^` is where a line's words begin."""
    end: str
    """Where an answer, or all of a sample, ends; what stands behind is none of it."""
    sample: str
    answer: str = ""
    """A begin that ends the question before it."""
    more: str = ""
    """How a line begins that goes on with a sample behind an end."""
    before: str = ""
    """What a sample has before its end."""


_OPEN = r"^[\[(\"']{0,3}"
"""Of a list of texts, as Python prints it, with its line ends taken back (`restore`)."""
_QWEN, _LLAMA, _GEMMA = r"<\|im_start\|>", r"<\|start_header_id\|>", r"<start_of_turn>"
_DEEPSEEK, _MISTRAL = r"<｜(?:User|Assistant)｜>", r"\[INST\] "
TURN = re.compile(rf"{_QWEN}\w|{_LLAMA}\w|{_GEMMA}\w|{_DEEPSEEK}|{_MISTRAL}")
"""What stands before words of a conversation on the same line."""
_FIELD = r"^\[(?:ground_truth|answer|score|reward|acc|pred)(?:[_/]\w{1,40})?\](?:\s|$)"
_BEHIND = r"(?=\s{0,8}(?:$|<|[\"'](?:[,\])]|$)))"
"""What can stand behind the end of a turn: another token, the end of a text in a list; no other words."""
FORMS = (
    Form(
        "verl (workers/reward_manager/naive.py), EasyR1: prompt, response, ground truth and score, each as it is",
        r"^\[(?:prompt|response)\](?:\s|$)",
        _FIELD,
        "(TaskRunner pid=285358) [response] We divide both sides by 3.",
        r"^\[response\]",
        _FIELD,
    ),
    Form(
        "Qwen, Yi",
        rf"{_OPEN}{_QWEN}(?:system|user|assistant|tool)\b",
        r"(?<![\"'])<\|im_end\|>" + _BEHIND,
        "<|im_start|>assistant",
    ),
    Form(
        "Llama 3",
        rf"{_OPEN}(?:<\|begin_of_text\|>)?{_LLAMA}\w",
        r"(?<![\"'])<\|eot_id\|>" + _BEHIND,
        "<|start_header_id|>user<|end_header_id|>",
    ),
    Form(
        "Gemma",
        rf"{_OPEN}(?:<bos>)?{_GEMMA}(?:user|model)\b",
        r"(?<![\"'])<end_of_turn>" + _BEHIND,
        "<start_of_turn>model",
    ),
    Form(
        "DeepSeek",
        rf"{_OPEN}(?:<｜begin▁of▁sentence｜>)?{_DEEPSEEK}",
        r"(?<![\"'])<｜end▁of▁sentence｜>" + _BEHIND,
        "<｜Assistant｜><think>",
    ),
    Form("Llama 2, Mistral", rf"{_OPEN}(?:<s>)?{_MISTRAL}", r"</s>$", "<s>[INST] What is 6 times 7? [/INST]"),
    Form("Phi, GLM, Zephyr", rf"{_OPEN}<\|(?:user|assistant|system)\|>", r"<\|end\|>$|</s>$", "<|assistant|>"),
    Form(
        "the template of DeepSeek-R1-Zero, of TinyZero, of OpenRLHF's examples",
        r"^(?:(?:User|Human|Assistant|Prompt|Response):|<think>)",
        r"</(?:answer|think)>" + _BEHIND,
        "Assistant: Let me solve this step by step.",
        r"^(?:Assistant:|Response:|<think>)",
        r"^<answer>",
        r"Assistant:|Response:|<think>",
    ),
)
"""The templates are in each model's tokenizer_config.json, on Hugging Face."""
_WHO = re.compile(r"\([^)\n]{1,80}\) {0,4}")
_RECORD = r"\[rank ?\d{1,6}\]|[EWI]\d{4} \d|\[?20\d\d-\d\d-\d\d[ T]|(?:INFO|ERROR|WARNING|CRITICAL) \d"
_OTHERS_OF_WORKER = re.compile(_RECORD)
"""Behind Ray's prefix, where neither the kernel nor Slurm speaks."""
_OTHERS = re.compile(rf"{_RECORD}|(?:slurmstepd|srun|kernel|systemd)\b|\[ *\d{{1,9}}\.\d{{3,6}}\]")
"""How lines begin that a program, a rank or the kernel wrote: no text of a sample, as far as anyone can know."""
_RAISED = re.compile(r"[\w.]{0,80}(?:Error|Exception)\b")
"""Begin of a line that names an exception, whose message may be about a tag."""
_INSIDE = re.compile(rf"\S {{0,8}}(?:{_QWEN}\w|{_LLAMA}\w|{_GEMMA}\w|(?<!Assistant: )<think>)")
"""A turn that begins behind other words: its end is not that of what stands before that line."""
_MOST_LINES = 2000
"""From the begin of a sample on, empty ones and those of other processes included."""
_MOST_TEXTS = 20_000
_SAME = 40
"""Characters by which lines are looked up: behind them, an event may hold the next line, too (`restore`)."""


@dataclass(slots=True)
class _Said:
    """A line of a sample."""

    who: str
    """Prefixes that say of which process it is."""
    text: str
    begin: int
    """Number of the line where the sample begins."""
    count: int
    """How often the sample has it."""
    seen: set[int] = field(default_factory=set)
    """Numbers of lines that were taken for it."""

    def holds(self, who: str, text: str, number: int) -> bool:
        """Whether a line is of the sample; one more of its text than the sample has is not."""
        if who and self.who and who != self.who:
            return False
        if not 0 < number - self.begin <= _MOST_LINES or (number not in self.seen and len(self.seen) >= self.count):
            return False
        if not (text.startswith(self.text) or self.text.startswith(text)):
            return False
        self.seen.add(number)
        return True


class Samples:
    """The samples that a trainer prints into one log: their lines are data, over as many lines as it takes."""

    def __init__(self) -> None:
        self._said: dict[str, list[_Said]] = {}
        self._count = 0

    def without(self, events: Iterable[Event]) -> Iterator[Event]:
        """The events outside of samples; each sample's begin comes before its lines, and is taken away, too."""
        for event in events:
            number = event.origin.line or 0
            if event.kind == EVENT.data.sample:
                self._add(event, number)
            elif not self._is_said(event.text, number):
                yield event

    def _is_said(self, text: str, number: int) -> bool:
        """Whether a line is one of a sample, with or without what a collector put before it."""
        if not self._said:
            return False
        ways = [(way.who, words) for way in splits(text) for words in way.words[:1]]
        return sum(said.holds(*way, number) for way in ways for said in self._said.get(way[1][:_SAME], ())) > 0

    def _add(self, begin: Event, number: int) -> None:
        """Keeps the lines up to the last end before the next sample: without an end, it is unknown which they are."""
        ways = [(way.kinds, way.who, way.words[0]) for way in splits(begin.text) if way.words]
        found = [
            (who, _lines(rule, kinds, who, words, begin))
            for kinds, who, words in ways
            for rule in _RULES
            if rule.begins(words)
        ]
        who, lines = max(found, key=lambda one: len(one[1]), default=("", []))
        self._count += len(lines)
        if self._count > _MOST_TEXTS:
            self._said.clear()
            self._count = len(lines)
        for text, count in Counter(lines).items():
            self._said.setdefault(text[:_SAME], []).append(_Said(who, text, number, count))


class _Rule:
    """A form, compiled."""

    def __init__(self, form: Form) -> None:
        self.begins = re.compile(form.begin).search
        self.answers = re.compile(form.answer or r"(?!)").search
        self.goes_on = re.compile(form.more or r"(?!)").search
        self.has_begun = re.compile(form.before).search
        self._end = re.compile(form.end)
        self._is_tag = bool(form.before)

    def ends(self, words: str) -> re.Match[str] | None:
        """The end of an answer in a line's words, where one can stand."""
        found = None if self._is_tag and _RAISED.match(words) else self._end.search(words)
        return None if found is None or _INSIDE.search(words, 0, found.start()) else found


_RULES = tuple(map(_Rule, FORMS))


def _lines(rule: _Rule, kinds: tuple[str, ...], who: str, words: str, begin: Event) -> list[str]:
    """The lines of a sample up to its first end: a failure behind a complete sample is none of it.

    A process of a known number had not died before its last complete sample. Where lines do not say of which process
    they are, a begin is that of the next sample; an answer ends the question.
    """
    front = "ray" in kinds
    others = _OTHERS_OF_WORKER if front else _OTHERS
    is_question = not rule.answers(words)
    has_begun = rule.has_begun(words) is not None
    lines = list[str]()
    last, is_open = 0, not has_begun or not _is_complete(rule, words)
    for words in _of_same(kinds, who, begin.after):
        if others.match(words) or (not front and _WHO.match(words)):
            continue
        if rule.begins(words):
            if not front:
                return lines if is_question and is_open and rule.answers(words) else lines[:last]
            is_open = True
        elif not is_open and rule.goes_on(words):
            is_open = True
        elif not is_open and not front:
            break
        lines.append(words)
        has_begun = has_begun or rule.has_begun(words) is not None
        if is_open and has_begun and rule.ends(words):
            last, is_open = len(lines), not _is_complete(rule, words)
    return lines[:last]


def _of_same(kinds: tuple[str, ...], who: str, lines: Iterable[str]) -> Iterator[str]:
    """The words of the lines that have the same prefixes."""
    for line in lines:
        said = split_as(line, len(kinds))
        if said.kinds == kinds and said.who == who:
            yield from said.words


def _is_complete(rule: _Rule, words: str) -> bool:
    """Whether an end is in these words, behind which no other turn begins."""
    end = rule.ends(words)
    return end is not None and TURN.search(words, end.end()) is None
