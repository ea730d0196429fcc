"""What is said to people: a sentence with places for values, put into words by a language at the very end.

The id of a message is its English sentence (gettext's way: it stands where the figures are computed, and translators
see it). A place may say how its value is shown: `{held:bytes}`, `{part:share}`, `{waited:s}`, `{left:duration}`,
`{at:time}`, or a format specification of Python's. The format of a list is its separator: `{names:, }`.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, Union, get_args

from rlhfdoctor.units import show_bytes, show_clock, show_duration, show_ratio, show_seconds, show_time

Argument: TypeAlias = Union[str, int, float, "Message", tuple["Argument", ...], None]
"""Text is a name or a quotation and shown as it is; what is translated is a message itself."""

_Piece: TypeAlias = tuple[str, bool]
"""A part of what is shown, and whether it is quoted text."""
Separator: TypeAlias = Literal["; ", ", ", ". ", ": ", " and ", " "]
SEPARATORS: tuple[Separator, ...] = get_args(Separator)
"""What stands between the parts of a joined message."""
_PLACE = re.compile(r"\{([A-Za-z_][\w.]*)(?::([^{}]*))?\}|(\{\{|\}\})")
_SHOWN: Mapping[str, Callable[[float], str]] = {
    "bytes": show_bytes,
    "share": show_ratio,
    "s": show_seconds,
    "duration": show_duration,
    "time": show_time,
    "clock": show_clock,
}
_FORM = re.compile(r"[+,]{0,2}\d?(?:\.\d)?[a-z%]?")
"""A format of a number that is short whatever the number; longer ones may fill the memory."""
_DEEPEST = 8
_HAN = "[\u4e00-\u9fff]"
_BLANKS = re.compile(
    rf"(?<=[A-Za-z0-9%])(?={_HAN})|(?<={_HAN})(?=[A-Za-z0-9/])|(?<={_HAN}) +(?={_HAN})|(?<=[。；：，]) +"
)
"""Where a blank is missing (an empty match), or is one too many."""


@dataclass(frozen=True, slots=True)
class Message:
    """A sentence or a part of one; false if there is nothing to say.

    Example:
        >>> held = say("the {role} held {held:bytes}", role=term("actor"), held=3 << 30)
        >>> str(held), str(say("{what}; then {names:, }", what=held, names=("a", "b")))
        ('the actor held 3.00 GiB', 'the actor held 3.00 GiB; then a, b')
    """

    id: str = ""
    arguments: tuple[tuple[str, Argument], ...] = ()
    plural: str = ""
    """The English sentence for any number but one, of a message that counts by its argument `n`."""

    def __bool__(self) -> bool:
        return bool(self.id)

    def __str__(self) -> str:
        return ENGLISH(self)

    def mentions(self, other: Message) -> bool:
        """Whether the other message is this one or a part of it."""
        return self == other or any(part.mentions(other) for part in self._parts())

    def with_text(self, change: Callable[[str], str]) -> Message:
        """The same message with its quoted text changed, such as by the names of what was unpacked."""

        def changed(value: Argument) -> Argument:
            if isinstance(value, tuple):
                return tuple(changed(item) for item in value)
            if isinstance(value, Message):
                return value.with_text(change)
            return change(value) if isinstance(value, str) else value

        return replace(self, arguments=tuple((name, changed(value)) for name, value in self.arguments))

    def _parts(self) -> Iterator[Message]:
        for _, value in self.arguments:
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Message):
                    yield item

    def to_dict(self) -> dict[str, Any]:
        """The message for machines: its id, and its arguments if it has some, in plain types."""
        arguments = {name: _plain(value) for name, value in self.arguments}
        return {"id": self.id, "arguments": arguments} if arguments else {"id": self.id}


def say(id: str, /, **arguments: Argument) -> Message:
    """A message; its id is a literal, so that the catalogue of all messages can be collected from the source."""
    return Message(id, tuple(arguments.items()))


def template(text: str, /, **arguments: Argument) -> Message:
    """A message whose sentence is written in a data file: a rule, a framework's folder."""
    return Message(" ".join(text.split()), tuple(arguments.items()))


def plural(one: str, many: str, n: int, /, **arguments: Argument) -> Message:
    """A message in the singular or the plural, as the language counts `n`.

    >>> str(plural("{n} step", "{n} steps", 1)), str(plural("{n} process", "{n} processes", 3))
    ('1 step', '3 processes')
    """
    return Message(one, (("n", n), *arguments.items()), many)


def term(word: str) -> Message:
    """A word of the vocabulary, such as a role or a phase, which languages have names for."""
    return Message(word)


def quoted(text: object) -> Message:
    """Text that is not translated: a name, a path, an error of the operating system."""
    return Message("{text}", (("text", str(text)),)) if str(text) else NOTHING


def joined(*messages: Message, by: Separator = "; ") -> Message:
    """Several messages as one, those that are empty left out; the separator is translated, too."""
    parts = tuple(message for message in messages if message)
    return parts[0] if len(parts) == 1 else Message(f"{{parts:{by}}}", (("parts", parts),)) if parts else NOTHING


NOTHING = Message()


class Language:
    """Puts messages into words. English needs no catalogue; what a catalogue lacks stays English."""

    def __init__(
        self,
        name: str,
        catalogue: Mapping[str, str | tuple[str, ...]] | None = None,
        *,
        choose: Callable[[int], int] = lambda n: int(n != 1),
        stop: str = ".",
        spaced: bool = False,
    ) -> None:
        """Args:
        catalogue: English sentence -> the sentence in this language, or its plural forms.
        choose: which plural form a number takes.
        stop: what ends a sentence.
        spaced: whether a blank stands between Han characters and Latin words.
        """
        self.name, self.stop = name, stop
        self._catalogue, self._choose, self._is_spaced = catalogue or {}, choose, spaced

    def __call__(self, message: Message) -> str:
        """The message in this language."""
        pieces = list(self._render(message))
        text = "".join(piece for piece, _ in pieces)
        return self._spaced(text, pieces) if self._is_spaced else text

    def _render(self, message: Message) -> Iterator[_Piece]:
        values = dict(message.arguments)
        text, end = self._find(message, values.get("n")), 0
        for match in _PLACE.finditer(text):
            yield text[end : match.start()], False
            end = match.end()
            if match[3]:
                yield match[3][0], False
            elif match[1] in values:
                yield from self._show(values[match[1]], match[2] or "")
            else:
                yield match[0], False
        yield text[end:], False

    def _find(self, message: Message, n: Argument) -> str:
        found = self._catalogue.get(message.id)
        if found is None:
            return message.plural if message.plural and n != 1 else message.id
        if isinstance(found, str):
            return found
        return found[min(self._choose(n) if isinstance(n, int) else 0, len(found) - 1)]

    def _show(self, value: Argument, form: str) -> Iterator[_Piece]:
        if isinstance(value, Message):
            yield from self._render(value)
        elif isinstance(value, tuple):
            by, each = (form, "") if form in SEPARATORS else (", ", form)
            for number, item in enumerate(value):
                if number:
                    yield str(self._catalogue.get(by, by)), False
                yield from self._show(item, each)
        else:
            yield _show_plain(value, form), isinstance(value, str)

    def _spaced(self, text: str, pieces: Sequence[_Piece]) -> str:
        """A blank between Han and Latin words, but not between Han ones, however the parts were joined.

        Quoted text stays as it is, with the blanks around it; where it meets a Han or Latin word, one may be put.
        """
        spans, at = [], 0
        for piece, is_quoted in pieces:
            if is_quoted and piece:
                spans.append((at, at + len(piece)))
            at += len(piece)
        begins = [begin for begin, _ in spans]

        def changed(match: re.Match[str]) -> str:
            begin, end = match.span()
            start, stop = spans[bisect_right(begins, end) - 1] if spans else (-1, -1)
            if begin == end:
                return "" if start < begin < stop else " "
            between_han = text[begin - 1] not in "。；：，"
            touches = start <= end and begin <= stop if between_han else start < end and begin < stop
            return match[0] if touches else ""

        return _BLANKS.sub(changed, text)


ENGLISH = Language("en")


def _show_plain(value: str | float | None, form: str) -> str:
    if isinstance(value, str) or value is None or not math.isfinite(value):
        return str(value)
    if form in _SHOWN:
        return _SHOWN[form](value)
    return format(value, form) if form else str(value)


def revived(plain: object) -> Message:
    """The message of `Message.to_dict`; its plural is not stored.

    Raises:
        ValueError: it is not a message, or not the recorder's: it may be a stranger's file. Forms are short, and
            each argument is in one place, so that the text is not much longer than what it is made of.
    """
    return _revive(plain, 0)


def _revive(plain: object, depth: int) -> Message:
    if not isinstance(plain, dict) or not isinstance(plain.get("id"), str) or depth > _DEEPEST:
        raise ValueError("no message")
    places = [match for match in _PLACE.finditer(plain["id"]) if match[1]]
    if len({place[1] for place in places}) < len(places):
        raise ValueError("a value in two places")
    if any(place[2] not in (None, *_SHOWN, *SEPARATORS) and not _FORM.fullmatch(place[2]) for place in places):
        raise ValueError("no form of a value")
    arguments = plain.get("arguments", {})
    if not isinstance(arguments, dict):
        raise ValueError("no arguments")
    return Message(plain["id"], tuple((name, _argument(value, depth + 1)) for name, value in arguments.items()))


def _argument(plain: object, depth: int) -> Argument:
    if isinstance(plain, list) and depth <= _DEEPEST:
        return tuple(_argument(item, depth + 1) for item in plain)
    return plain if plain is None or isinstance(plain, str | int | float) else _revive(plain, depth)


def _plain(value: Argument) -> Any:
    if isinstance(value, Message):
        return value.to_dict()
    return [_plain(item) for item in value] if isinstance(value, tuple) else value
