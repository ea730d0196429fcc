"""rule.yaml -> Rule: names looked up in the vocabulary, thresholds with units, every fault at its line."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from rlhfdoctor.conditions.files import Faults, Place, convert, read_yaml
from rlhfdoctor.conditions.resolve import Conditions, Resolver, read_conditions
from rlhfdoctor.engine.rulefile import LookAlikeForm, Remedy, RuleForm, TargetForm, Weight, texts
from rlhfdoctor.engine.schema import (
    DOC_HEADINGS,
    PLACE,
    DataRequest,
    LookAlike,
    Rule,
    RuledOutBy,
    Target,
    Treatment,
    WeightedCondition,
)
from rlhfdoctor.engine.skeleton import left_of_skeleton
from rlhfdoctor.errors import RuleError
from rlhfdoctor.settings.spell import is_specifier, is_word, known_names
from rlhfdoctor.vocabulary.names import Fact


class RuleResolver(Resolver):
    """Looks up what a rule names beside its conditions."""

    def places(self, sentences: Iterable[tuple[Place, str]]) -> None:
        """Looks up the facts that sentences name in braces."""
        for place, text in sentences:
            for word in PLACE.findall(text):
                self.fact(word, place)

    def target(self, to: Any, place: Place) -> Any:
        """A new value, or how the figures of the case give it."""
        if not isinstance(to, dict):
            self.word(to, place)
            return to
        form = convert(to, TargetForm, place, self.faults)
        if form is None:
            return None

        if form.else_ is not UNSET:
            self.word(form.else_, (*place, "else"))

        def optional(key: str, word: Any) -> Fact | None:
            return None if word is UNSET else self.fact(word, (*place, key))

        return Target(
            fact=optional("evidence", form.evidence),
            sized_by=optional("from", form.from_),
            scale=None if form.scale is UNSET else form.scale,
            least=None if form.least is UNSET else form.least,
            otherwise=() if form.else_ is UNSET else (form.else_,),
            never_lowered=form.raise_ is not UNSET,
            never_below=optional("raise", form.raise_ if isinstance(form.raise_, str) else UNSET),
        )

    def word(self, value: Any, place: Place) -> None:
        """That a value can be written into a script as it is: a shell would run what stands behind a semicolon."""
        if not (value is None or isinstance(value, bool | int | float) or (isinstance(value, str) and is_word(value))):
            why = "a value is a number, true, false, null or one word"
            self.faults.add(place, f"'{value}' cannot be written into a script as it is; {why}")

    def look_alike(self, form: LookAlikeForm, place: Place) -> LookAlike:
        """A row of what looks alike; whether its causes exist is checked when all rules are known."""
        given = [key for key in ("causes", "other", "note") if getattr(form, key)]
        if len(given) != 1:
            self.faults.add(
                place, f"a look-alike has one of causes, other and note; this one has {' and '.join(given) or 'none'}"
            )
        elif form.differs and given == ["note"]:
            self.faults.add((*place, "differs"), "'differs' is given together with 'causes' or 'other'")
        return LookAlike(
            tuple(form.causes), *(" ".join(text.split()) for text in (form.differs, form.other, form.note))
        )

    def treatment(self, remedy: Remedy, place: Place, framework: str = "") -> Treatment:
        """A treatment with its names looked up; `framework` is the one whose folder it is from."""
        named = [key for key in ("setting", "measure") if getattr(remedy, key) is not UNSET]
        if len(named) != 1:
            self.faults.add(
                place, "a remedy has one of 'setting' (canonical name) and 'measure' (what no setting makes)"
            )
        setting = str(getattr(remedy, named[0])) if named else ""
        if named == ["setting"]:
            self.name(setting, known_names(), "setting", (*place, "setting"))
        if named == ["measure"] and not remedy.instead:
            self.faults.add(place, f"the measure '{setting}' needs 'instead': the text that is shown")
        if remedy.versions and not is_specifier(remedy.versions):
            self.faults.add(
                (*place, "versions"),
                f"'{remedy.versions}' is no specifier; write it like '>=0.5.4' or 'deepspeed >=0.14.1,<0.18.3'",
            )
        frees = None
        if remedy.frees is not UNSET:
            fact = self.fact(remedy.frees.evidence, (*place, "frees", "evidence"), "bytes")
            frees = None if fact is None else (fact, remedy.frees.least, remedy.frees.most)
        return Treatment(
            setting=setting,
            to=self.target(remedy.to, (*place, "to")),
            safety=remedy.safety,
            effect=" ".join(remedy.effect.split()),
            cost=remedy.cost,
            when=None if remedy.when is UNSET else self.condition(remedy.when, (*place, "when")),
            framework=framework,
            versions=remedy.versions,
            side_effects=tuple(remedy.side_effects),
            note=remedy.note,
            add=remedy.add,
            frees=frees,
            instead=remedy.instead,
            is_measure=named == ["measure"],
            published=remedy.published,
        )


def read_rule(folder: Path, conditions: Conditions | None = None) -> Rule:
    """The rule of a folder.

    Args:
        folder: holds rule.yaml, fires/ and silent/.
        conditions: named conditions; by default those of conditions.yaml next to the folder.

    Raises:
        RuleError: all faults of the rule, one per line, each with file and line.
    """
    raw, faults = read_yaml(folder / "rule.yaml")
    return resolve_rule(raw, faults, folder, read_conditions(folder.parent) if conditions is None else conditions)


def resolve_rule(raw: Any, faults: Faults, folder: Path, conditions: Conditions) -> Rule:
    """The rule of a folder from the plain values of its file.

    Raises:
        RuleError: as `read_rule`.
    """
    form = _form(raw, faults)
    resolver = RuleResolver(faults, conditions)
    for kind in ("fires", "silent"):
        if not any((folder / kind).glob("*/*")):
            faults.add((), f"the rule has no sample under {kind}/; it needs at least one")
    if form is None:
        raise RuleError("\n".join(faults.found))
    if form.id != folder.name:
        faults.add(("id",), f"id '{form.id}' differs from the folder's name '{folder.name}'")
    if not form.docs.false_positives:
        faults.add(("docs", "false_positives"), "'false_positives' needs at least one look-alike or note")
    rule = _resolved(form, resolver, folder / "rule.yaml")
    resolver.places(texts(form))
    faults.check()
    return replace(rule, is_draft=True) if left_of_skeleton(raw) else rule


def _form(raw: Any, faults: Faults) -> RuleForm | None:
    """The typed file; by msgspec at once if valid, else value by value, for all of its faults."""
    if not isinstance(raw, dict):
        faults.add((), "a rule is a mapping")
        return None
    try:
        return msgspec.convert(raw, RuleForm)
    except (msgspec.ValidationError, UnicodeEncodeError):
        form = convert(raw, RuleForm, (), faults)
        return form if isinstance(form, RuleForm) else None


def _resolved(form: RuleForm, look: RuleResolver, path: Path) -> Rule:
    detect = form.detect

    def weighted(key: str, parts: list[Weight]) -> tuple[WeightedCondition, ...]:
        return tuple(
            WeightedCondition(
                look.condition(p.when, ("detect", key, i, "when")), float(p.weight), " ".join(p.says.split())
            )
            for i, p in enumerate(parts)
        )

    return Rule(
        id=form.id,
        kind=form.kind,
        axis=form.axis,
        title=" ".join(form.title.split()),
        summary=" ".join(form.summary.split()),
        requires=look.condition(detect.requires, ("detect", "requires")),
        prior=float(detect.prior),
        speaks_for=weighted("for", detect.for_),
        speaks_against=weighted("against", detect.against),
        rules_out=tuple(
            RuledOutBy(look.condition(r.when, ("detect", "rules_out", i, "when")), " ".join(r.because.split()))
            for i, r in enumerate(detect.rules_out)
        ),
        missing=tuple(
            DataRequest(
                None if m.unless is UNSET else look.condition(m.unless, ("detect", "missing", i, "unless")),
                " ".join(m.what.split()),
                " ".join(m.how_to_check.split()),
            )
            for i, m in enumerate(detect.missing)
        ),
        suppresses=tuple(form.suppresses),
        docs={heading: " ".join(getattr(form.docs, heading).split()) for heading in DOC_HEADINGS},
        next_step=" ".join(form.docs.next_step.split()),
        false_positives=tuple(
            look.look_alike(one, ("docs", "false_positives", i)) for i, one in enumerate(form.docs.false_positives)
        ),
        remediation=tuple(look.treatment(r, ("remediation", i)) for i, r in enumerate(form.remediation)),
        references=tuple(form.references),
        path=path,
    )
