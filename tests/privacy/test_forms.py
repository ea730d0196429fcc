"""The expressions of the redactor: none may take long, whatever a line holds."""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest

import rlhfdoctor.privacy
from rlhfdoctor.privacy import below, given, names, pairs, programs, tokens, views, web
from rlhfdoctor.privacy.labels import LABELS
from tests.test_tokens import seconds

PAIRS = ("name_first", "value_first", "nested", "listed")
BELOW = ("opens", "head", "item")
MOST = 16_000
"""The most that an expression repeats something of several letters."""


def _expressions() -> Iterator[tuple[str, str]]:
    """Name and text of every expression in rlhfdoctor/privacy."""
    for module in pkgutil.iter_modules(rlhfdoctor.privacy.__path__):
        for name, value in vars(importlib.import_module(f"rlhfdoctor.privacy.{module.name}")).items():
            found = value if isinstance(value, tuple) else (value,)
            yield from ((f"{module.name}.{name}", one.pattern) for one in found if isinstance(one, re.Pattern))
    yield from ((f"web {number}", place.form) for number, place in enumerate(web.PLACES))
    yield from ((f"programs {number}", place.form) for number, place in enumerate(programs.PLACES))
    yield from ((f"labels {number}", label.form) for number, label in enumerate(LABELS))
    yield from ((f"key {number}", form) for number, form in enumerate(given.KEY_BLOCKS))
    yield from (("named", names.NAMED), ("block", names.IN_BLOCK), ("next", views.BELOW))
    yield from ((name, getattr(pairs, name.upper())) for name in PAIRS)
    yield from ((name, getattr(below, name.upper())) for name in BELOW)
    for service, markers, form in tokens.PREFIXED:
        yield service, re.escape(markers.split()[0]) + form
    yield from ((service, form) for service, _, form in tokens.INNER)


EXPRESSIONS = dict(_expressions())
WHOLE = {"labels._NO_HOST", "labels.PUBLIC_HOSTS", "labels._TOKEN", "paths._KNOWN", "paths._LIBRARIES"}
"""Asked about one name each, of which no other expression takes more than 255 letters."""
_REPEATS = (codes.MAX_REPEAT, codes.MIN_REPEAT)


def _faults(tree: Any, inside: bool = False) -> Iterator[str]:
    """Repeats that may take more than a line's length: without an end inside of another, or of more than letters."""
    for op, value in tree:
        if op in _REPEATS:
            _, most, body = value
            is_letter = len(body) == 1 and body[0][0] in (codes.IN, codes.ANY, codes.LITERAL, codes.NOT_LITERAL)
            if most is codes.MAXREPEAT and (inside or not is_letter):
                yield f"no end: {body}"
            if most is not codes.MAXREPEAT and most > MOST:
                yield f"{most} times {body}"
            yield from _faults(body, inside or most is codes.MAXREPEAT or most > 1)
        elif op is codes.BRANCH:
            for branch in value[1]:
                yield from _faults(branch, inside)
        elif op is codes.SUBPATTERN:
            yield from _faults(value[-1], inside)
        elif op in (codes.ASSERT, codes.ASSERT_NOT):
            yield from _faults(value[1], inside)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_repeats_are_bounded(name: str) -> None:
    """A repeat without an end is one of single letters, inside of no other repeat."""
    assert list(_faults(parser.parse(EXPRESSIONS[name]))) == []


def _grows(pattern: re.Pattern[str], word: str) -> bool:
    """Whether eight times the length takes far more than eight times as long, in each of five tries."""
    short, long = (word * (size // len(word) + 1) for size in (1024, 8 * 1024))
    return all(seconds(pattern, long) > 30 * seconds(pattern, short) for _ in range(5))


def _signs() -> Iterator[tuple[str, str]]:
    """Each expression that looks at lines with a sign, with the words that such a line may repeat."""
    for form in (*web.PLACES, *programs.PLACES, *LABELS):
        words = [sign.replace("_", " ") for sign in form.signs.split()]
        yield form.form, words[0]


@pytest.mark.parametrize(("form", "word"), list(_signs()), ids=[str(number) for number, _ in enumerate(_signs())])
def test_no_form_grows_faster_than_its_line(form: str, word: str) -> None:
    """On lines that say its sign again and again, with what may follow it."""
    pattern = re.compile(form)
    ends = (word, f"{word} ", f"{word}=a ", f"{word} -p a", f"{word}: 'a' ", f"{word}/a.b@")
    assert not [text for text in ends if _grows(pattern, text)]


@pytest.mark.parametrize("word", ["a_", "key ", "token=", "api_key: ", "a:b:", "- ", "x\n", "token:\n  a\n", "secrets: {", "keys: [", "keys=(a ", "keys:\n- a\n", "keys: - a ", "tokens:\n  a: b\n", '"name":"a","value":"b",', '"value":"a","b":"c",', "name:a,", "value:", "value:aaaa,", "\\", "%41", "\x1b[1m"])
def test_no_pattern_grows_faster_than_its_text(word: str) -> None:
    """All others, on what they are made for."""
    others = [name for name in EXPRESSIONS if "." in name or name in ("named", "block", "next", "key 0", "key 1", *PAIRS, *BELOW)]
    others = [name for name in others if name not in WHOLE]
    assert not [name for name in others if _grows(re.compile(EXPRESSIONS[name]), word)]
