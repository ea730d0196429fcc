"""YAML of the package, parsed once for each content: JSON is read forty times as fast.

A document is kept by the hash of its text, so nothing is ever out of date; one that JSON cannot hold as it is (a date,
a number as a key) is parsed each time.
"""

from __future__ import annotations

import atexit
import functools
import json
from collections.abc import Iterator
from typing import Any

import yaml

from rlhfdoctor import cache
from rlhfdoctor.version import VERSION

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FILE = f"yaml-{VERSION}.json"
"""Its first line is the hash of the rest: of a disk that failed nothing is believed."""
_MOST_COUNT, _MOST_LETTERS = 500, 4 << 20
"""Of all documents, as JSON: the package has some ninety, and every command reads what is kept."""


class _Kept:
    """What was parsed: hash of the text -> JSON."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        head, _, kept = (cache.load(_FILE) or b"").partition(b"\n")
        try:
            found = json.loads(kept) if head == cache.key(kept).encode() else {}
        except (ValueError, RecursionError):
            found = {}
        if isinstance(found, dict) and all(isinstance(text, str) for text in found.values()):
            self.texts = found
        self.is_new = False

    def save(self) -> None:
        """At the end of the process, if something is new."""
        if self.is_new:
            kept = json.dumps(dict(reversed(list(self._newest())))).encode()
            cache.save(_FILE, cache.key(kept).encode() + b"\n" + kept)
            self.is_new = False

    def _newest(self) -> Iterator[tuple[str, str]]:
        """The last ones that were kept, as many as there is room for; a document that is too large is passed over."""
        left = _MOST_LETTERS
        for key, text in list(self.texts.items())[: -_MOST_COUNT - 1 : -1]:
            if len(text) <= left:
                left -= len(text)
                yield key, text


@functools.cache
def _kept() -> _Kept:
    kept = _Kept()
    atexit.register(kept.save)
    return kept


def parse(text: str) -> Any:
    """The values of a document, each time its own.

    Raises:
        yaml.YAMLError: it is not valid YAML.
    """
    return recall(text) or keep(text, yaml.load(text, Loader=LOADER))


def recall(text: str) -> Any | None:
    """What was kept of a document; None if nothing was."""
    found = _kept().texts.get(_key(text))
    try:
        return None if found is None else json.loads(found)
    except ValueError:
        return None


def keep(text: str, value: Any) -> Any:
    """Keeps the values of a document, and gives them back."""
    try:
        plain = json.dumps(value, ensure_ascii=False)
        same = json.loads(plain) == value
    except (TypeError, ValueError, RecursionError):
        same = False
    if same:
        _kept().texts[_key(text)] = plain
        _kept().is_new = True
    return value


def _key(text: str) -> str:
    return cache.key(text.encode("utf-8", "surrogatepass"))
