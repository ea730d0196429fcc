"""Lines in which words of a failure are somebody's text: an answer of the model, a name in another message."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from rlhfdoctor.logs.blocks import Hit
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT

_NO_FAILURES = frozenset(("config", "framework", "version", "phase", "progress", "reward", "data", "host", "flight"))
"""Scopes of kinds that say how a run goes, not how it ended."""
_SAID = (
    r"(?:prompts?|responses?|completions?|answers?|questions?|solutions?|instructions?|ground[_ ]truths?"
    r"|chosen|rejected|generated(?:[_ ]texts?)?|(?:model|decoded)[_ ](?:outputs?|texts?|responses?)|回答|回复|提示词)"
)
_ANSWER = re.compile(
    rf"(?i)[\"'](?:{_SAID}|references?)[\"'] ?[:=] ?[\[(]?[\"']"  # at a line's begin, it is the model of that name
    rf"|^[^A-Za-z\"']{{0,60}}(?:\([^)\n]{{0,80}}\) ?|\w{{2,12}}[:|] ?)?\[?{_SAID}\]? ?[:=\]]"
)
"""Keys of samples in JSON and in print-outs (verl prints `[response] ...`, TRL tables and dicts)."""
_NAMED = re.compile(r"[\s(='\"]/\S|\bprocess ['\"`]")
"""In front of the kernel's words: the path of a cgroup, the name of a program, which any user can choose."""

_BAR, _CELL_BARS_COUNT = "│", 3
"""Of a line of a table with columns (TRL prints prompts beside completions); a traceback in a box has two."""
_WHO = re.compile(r"\([^)\n]{1,80}\) {0,4}")
_PROMPT, _RESPONSE = "[prompt]", "[response]"
_FIELD = re.compile(r"\[(?:response|ground_truth|answer|score|reward|acc|pred)\b[\w/ ]{0,40}\]")
"""What is printed behind the text of a sample, in brackets (verl: workers/reward_manager/naive.py)."""
_MOST_LINES = 400
"""From the begin of a sample on, empty ones and those of other processes included."""
_MOST_TEXTS = 20_000


@dataclass(slots=True)
class _Said:
    """A line of a sample."""

    begin: int
    """Number of the line where the sample begins."""
    count: int
    """How often the sample has it."""
    seen: set[int] = field(default_factory=set)
    """Numbers of lines that were taken for it."""

    def holds(self, number: int) -> bool:
        """Whether a line with its text is of the sample; one more of them than the sample has is not."""
        if not 0 < number - self.begin <= _MOST_LINES or (number not in self.seen and len(self.seen) >= self.count):
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
            elif not sum(said.holds(number) for said in self._said.get(event.text, ())):
                yield event

    def _add(self, begin: Event, number: int) -> None:
        """Keeps the lines up to the last field, if one follows: without it, the sample's end is unknown."""
        who = _WHO.match(begin.text)
        front = who[0].strip() if who else ""
        is_answered = begin.text[len(front) :].lstrip().startswith(_RESPONSE)
        lines: list[str] = []
        last = 0
        for text in map(str.strip, begin.after):
            if not text.startswith(front) or (not front and _WHO.match(text)):
                continue
            words = text[len(front) :].lstrip()
            if words.startswith(_PROMPT) or (is_answered and words.startswith(_RESPONSE)):
                break  # the next sample
            is_answered |= words.startswith(_RESPONSE)
            if _FIELD.match(words):
                last = len(lines)
            lines.append(text)
        self._count += last
        if self._count > _MOST_TEXTS:
            self._said.clear()
            self._count = last
        for text, count in Counter(lines[:last]).items():
            self._said.setdefault(text, []).append(_Said(number, count))


def is_quoted(hit: Hit) -> bool:
    """Whether a match that would show a failure is within other words."""
    kind, start = hit.pattern.kind, hit.match.start()
    if kind.scope in _NO_FAILURES or not start:
        return False
    head = hit.text[max(0, start - 4096) : start].rpartition("\n")[2]
    if _BAR in head and (head + hit.text[start : start + 4096].partition("\n")[0]).count(_BAR) >= _CELL_BARS_COUNT:
        return True
    return _ANSWER.search(head) is not None or (kind.scope == "kernel" and _NAMED.search(head) is not None)
