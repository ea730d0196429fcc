"""Sentences in the reader's language: a table of English templates, looked up for words of the page and matched against filled sentences."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence

_PLACE = re.compile(r"\{[^{}]*\}")
_LEAST_LETTERS = 4
"""A template with fewer letters of its own would match anything."""
_MOST_PARTS, _LONGEST = 6, 1000
"""At most this many sentences are tried as one, and no longer text is matched: text from a log may be long."""
_HAN = "[\u4e00-\u9fff]"
_JOINTS = {". ": "。", "; ": "；", ": ": "："}
_PROSE = re.compile(r"[A-Za-z]{2,} [a-z]{2,}")
_ERROR = re.compile(r"\w*(?:Error|Exception)\b")


class Words:
    """A language. English needs no table; what a table lacks stays English.

    Example:
        >>> chinese = Words("zh", {"{0} of memory": "{0} 内存", "a node": "一个节点"})
        >>> chinese("{0} of memory", "3 GiB"), chinese.of("a node (3 GiB of memory)"), chinese.of("else")
        ('3 GiB 内存', '一个节点（3 GiB 内存）', 'else')
    """

    def __init__(self, name: str, table: Mapping[str, str], page: Mapping[str, str] | None = None) -> None:
        """English -> the other language; placeholders in braces are in both.

        Args:
            table: sentences about runs, also as parts of larger sentences.
            page: the words of the reports themselves, which are looked up and never searched for; by default the same.
        """
        self.name = name
        self._page = dict(table if page is None else page)
        self._table = {_plain(key): value for key, value in table.items()}
        self._whole = {_folded(key): value for key, value in self._table.items() if not _PLACE.search(key)}
        self.find = functools.lru_cache(maxsize=8192)(self._find)
        self._single = functools.lru_cache(maxsize=8192)(self._find_single)

    @property
    def stop(self) -> str:
        """What ends a sentence."""
        return "。" if self.name == "zh" else "."

    def __call__(self, text: str, *values: object) -> str:
        """A template of the page, filled; `{0}`, `{1}` are the values."""
        found = self._page.get(text, text)
        return self._spaced(found.format(*values)) if values else found

    def of(self, sentence: str) -> str:
        """A filled English sentence in this language; unchanged if it is not in the table."""
        if not self._table:
            return sentence
        found = self.find(sentence) or "".join(known or part for part, known in self._pieces(_plain(sentence)))
        return self._spaced(found)

    def _spaced(self, text: str) -> str:
        """A blank between Chinese and Latin words, but not between Chinese ones, however the parts were joined."""
        if self.name != "zh" or not text:
            return text
        text = re.sub(rf"({_HAN})([A-Za-z0-9/])", r"\1 \2", re.sub(rf"([A-Za-z0-9%])({_HAN})", r"\1 \2", text))
        return re.sub(rf"({_HAN}) +(?={_HAN})", r"\1", text)

    def lacks(self, sentence: str) -> list[str]:
        """The parts of a filled sentence that are not in the table; what holds no prose of the doctor needs no translation."""
        if not _PROSE.search(sentence) or self.find(sentence) is not None:
            return []
        pieces = [part for part, known in self._pieces(_plain(sentence)) if known is None]
        return [part for part in pieces if _PROSE.search(part) and not _ERROR.match(part)]

    def _find(self, sentence: str) -> str | None:
        """The translation of a filled sentence, also of several that were joined; None if a part is unknown."""
        text = _plain(sentence)
        parts = text.split("; ")
        if len(parts) > 1 and all(_is_one(part) and self.find(part) for part in parts):
            return "；".join(self.of(part) for part in parts)
        found = self._single(text)
        if found is not None or not text:
            return found
        pieces = self._pieces(text)
        if len(pieces) > 1 and all(known is not None for _, known in pieces):
            return "".join(known or "" for _, known in pieces)
        return self._filled(text, strict=False)

    def _pieces(self, text: str, joints: Sequence[str] = (". ", "; ", ": ")) -> list[tuple[str, str | None]]:
        """A text cut where the doctor puts sentences together, each piece as long as it is in the table as a whole."""
        if not joints:
            return [(text, self._single(text))]
        joint, parts = joints[0], text.split(joints[0])
        found: list[tuple[str, str | None]] = []
        begin = 0
        while begin < len(parts):
            end = next(
                (
                    n
                    for n in range(min(len(parts), begin + _MOST_PARTS), begin, -1)
                    if self._single(joint.join(parts[begin:n]))
                ),
                None,
            )
            if end is None:
                loose = self._filled(parts[begin], strict=False)
                found += [(parts[begin], loose)] if loose is not None else self._pieces(parts[begin], joints[1:])
                end = begin + 1
            else:
                whole = joint.join(parts[begin:end])
                found.append((whole, self._single(whole)))
            if end < len(parts):
                part, known = found[-1]
                found[-1] = (
                    (part, f"{known.rstrip('。')}{_JOINTS[joint]}") if known is not None else (part + joint, None)
                )
            begin = end
        return found

    def _find_single(self, text: str) -> str | None:
        found = self._whole.get(_folded(text)) or self._with_remark(text, lambda head: self._whole.get(_folded(head)))
        return found or self._filled(text) or self._with_remark(text, self._single)

    def _with_remark(self, text: str, find: Callable[[str], str | None]) -> str | None:
        """`sentence (remark)`, a frequent form of evidence."""
        if not text.endswith(")"):
            return None
        for match in re.finditer(r" \(", text):
            head, tail = find(text[: match.start()]), text[match.end() : -1]
            if head is not None:
                return f"{head}（{self.of(tail)}）"
        return None

    def _filled(self, text: str, strict: bool = True) -> str | None:
        """By a template; unless strict, its last value may be several sentences, such as an error's message."""
        bare = text.rstrip(".")
        if len(bare) > _LONGEST:
            return None
        for pattern, value, order in self._templates:
            match = pattern.fullmatch(bare)
            if match is None or not (all(map(_is_one, match.groups())) or (not strict and match.start(1) > 0)):
                continue
            values = dict(zip(order, match.groups(), strict=True))
            filled = _PLACE.sub(functools.partial(self._value, values), value)
            return filled if bare != text else filled.rstrip("。")
        return None

    def _value(self, values: Mapping[str, str], match: re.Match[str]) -> str:
        """The value of a placeholder: `{0}` translated, `{0!}` unchanged, since it is a name."""
        place = match[0]
        if place.endswith("!}"):
            return values.get(f"{place[:-2]}}}", place)
        return self.of(values[place]) if place in values else place

    @functools.cached_property
    def _templates(self) -> list[tuple[re.Pattern[str], str, list[str]]]:
        """(expression, translation, its places in order), those with most letters of their own first."""
        rows = []
        for key, value in self._table.items():
            order = _PLACE.findall(key)
            letters = len(re.sub(r"\W", "", _PLACE.sub("", key)))
            if order and letters >= _LEAST_LETTERS:
                parts = _PLACE.split(key.rstrip("."))
                rows.append((letters, re.compile(_expression(parts, order), re.S | re.I), value, order))
        rows.sort(key=lambda row: -row[0])
        return [row[1:] for row in rows]


def _is_one(part: str) -> bool:
    """Whether a value is no more than one thing: what holds half of a remark, or several sentences, was matched by mistake."""
    return part.count("(") == part.count(")") and "; " not in part


def _expression(parts: Sequence[str], places: Sequence[str]) -> str:
    """A template as an expression: `{n}` is a number; a place right behind another may be empty."""
    found = re.escape(parts[0])
    for number, place in enumerate(places):
        joined = number > 0 and not parts[number]
        found += (r"(\d[\d,.]*)" if place == "{n}" else "(.*?)" if joined else "(.+?)") + re.escape(parts[number + 1])
    return found


def _plain(text: str) -> str:
    return " ".join(text.split())


def _folded(text: str) -> str:
    """Capital letters and a full stop are the page's, not the sentence's."""
    return text.rstrip(".").lower()


ENGLISH = Words("en", {})
