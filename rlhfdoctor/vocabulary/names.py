"""Names that are declared once, as typed words: what rules, producers or reports may ask for.

A declared name is a `str`, so it is a key of dictionaries and of JSON as any other, and a type of its own, so that a
misspelled or undeclared one is an error: an AttributeError at import where Python names it, an error of mypy where a
bare string is passed, and a RuleError where a rule asks for it.

    class host(Scope):
        limit_bytes = fact(BYTES, "memory limit of the job")      # the word "host.limit_bytes"
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, Literal, TypeAlias, TypeVar, cast, get_args

from rlhfdoctor.vocabulary.run import Failure

Unit: TypeAlias = Literal["bytes", "share", "factor", "s", "count", "flag", "text", "number"]
"""share: a part of a whole, 0 to 1 (written `35 %`); factor: how many times as much (written `2 x`)."""
UNITS: tuple[Unit, ...] = get_args(Unit)
RecordUnit: TypeAlias = Unit | Literal["ns", "list", "messages"]
"""Units of what the recorder stores; ns: nanoseconds of a clock; messages: field -> id and arguments of its text."""
RECORD_UNITS: tuple[RecordUnit, ...] = (*UNITS, "ns", "list", "messages")


AnyName = TypeVar("AnyName", bound="Name")


class Name(str):
    """A declared word; `meaning` is what the page of the vocabulary says of it."""

    meaning: str

    def __new__(cls: type[AnyName], word: str, meaning: str = "", **more: Any) -> AnyName:
        """The word with what is declared of it."""
        name = str.__new__(cls, word)
        name.meaning = meaning
        for key, value in more.items():
            setattr(name, key, value)
        return name


class Field(Name):
    """A field of an event."""

    unit: Unit


class Kind(Name):
    """A kind of event: a message that a program writes, or something that the recorder saw."""

    fields: tuple[Field, ...]
    failure: Failure | None
    """What it means where it always means a failure."""

    @property
    def scope(self) -> str:
        """Who says it: the part before the dot."""
        return self.partition(".")[0]


class Fact(Name):
    """A computed fact that rules may ask for."""

    unit: Unit


class Trait(Name):
    """Something that several frameworks have in common."""


class RecordField(Name):
    """A field of an event that the recorder stores."""

    unit: RecordUnit


class Record(Name):
    """A kind of event that the recorder stores: one word of a trace."""

    fields: tuple[RecordField, ...]
    """Those that it may have besides the fields of every event."""


class Pending:
    """What a declaration holds until its scope gives it the whole word."""

    def __init__(self, make: type[Name], meaning: str, **more: Any) -> None:
        """`make` is the type of the finished name, `more` its further attributes."""
        self.make, self.meaning, self.more = make, meaning, more


class Scope:
    """A namespace of names: the class's name, a dot, the attribute's name."""

    separator = "."

    def __init_subclass__(cls) -> None:
        """Turns every pending declaration into its name."""
        for attribute, pending in list(vars(cls).items()):
            if isinstance(pending, Pending):
                word = f"{cls.__name__}{cls.separator}{attribute}" if cls.separator else attribute
                setattr(cls, attribute, pending.make(word, pending.meaning, **pending.more))


def says(meaning: str, *fields: Field, failure: Failure | None = None) -> Kind:
    """Declares a kind of event with the fields that it may have, and the failure that it always means."""
    return cast(Kind, Pending(Kind, meaning, fields=fields, failure=failure))


def names_of(scope: type[Scope], kind: type[AnyName]) -> Iterator[AnyName]:
    """The names that a scope declares, in order."""
    return (value for value in vars(scope).values() if isinstance(value, kind))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest known word, or nothing.

    >>> did_you_mean("host.limit_byte", ["host.limit_bytes", "shm.size_bytes"])
    " Did you mean 'host.limit_bytes'?"
    """
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" Did you mean '{near[0]}'?" if near else ""
