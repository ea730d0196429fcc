"""All declared names by their words, for readers of names in text: rules, tables, the page of the vocabulary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType

from rlhfdoctor.vocabulary import events, facts, recorder_events
from rlhfdoctor.vocabulary.fields import FIELD
from rlhfdoctor.vocabulary.names import AnyName, Fact, Field, Kind, Record, RecordField, Scope, Trait, names_of
from rlhfdoctor.vocabulary.record_fields import RECORD_FIELD
from rlhfdoctor.vocabulary.traits import TRAIT


def scopes(module: ModuleType) -> Iterator[type[Scope]]:
    """The scopes that a module declares, in order."""
    return (
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Scope) and value is not Scope
    )


def _by_word(kind: type[AnyName], *found: type[Scope]) -> Mapping[str, AnyName]:
    return MappingProxyType({str(name): name for scope in found for name in names_of(scope, kind)})


KINDS: Mapping[str, Kind] = _by_word(Kind, *scopes(events))
FACTS: Mapping[str, Fact] = _by_word(Fact, *scopes(facts))
FIELDS: Mapping[str, Field] = _by_word(Field, FIELD)
TRAITS: Mapping[str, Trait] = _by_word(Trait, TRAIT)
RECORDS: Mapping[str, Record] = _by_word(Record, *scopes(recorder_events))
RECORD_FIELDS: Mapping[str, RecordField] = _by_word(RecordField, RECORD_FIELD)
