"""Forms: where something is in a text, how it is written, by which signs its lines are found fast."""

from __future__ import annotations

import functools
import re
from typing import NamedTuple


class Place(NamedTuple):
    """Where a secret stands; the pattern's groups are the secrets."""

    signs: str
    """Words in small letters, of which one is in such a line; a `_` is a space."""
    form: str
    below: int = 0
    """Lines after that of the sign that belong to it."""
    is_random: bool = False
    """Only if it looks drawn by chance."""


class Label(NamedTuple):
    """A place of names; the pattern's groups are the names."""

    kind: str
    """user, host, group, id, phone"""
    signs: str
    """Words in small letters, of which one is in such a line; a `_` is a space."""
    form: str
    below: int = 0
    """Lines after that of the sign that belong to it."""
    in_place: bool = False
    """Whether what stands there is a name for sure, even if it is a word that has other meanings elsewhere."""


@functools.cache
def signs_of(words: str) -> tuple[str, ...]:
    """The signs that a form names; a `_` is a space.

    >>> signs_of("net_use curl")
    ('net use', 'curl')
    """
    return tuple(word.replace("_", " ") for word in words.split())


@functools.cache
def compiled(form: str) -> re.Pattern[str]:
    """The pattern of a form: an import compiles none, since the recorder runs beside the job."""
    return re.compile(form)
