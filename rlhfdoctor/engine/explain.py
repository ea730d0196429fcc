"""A rule for people: its page."""

from __future__ import annotations

import functools
import itertools
import textwrap
import unicodedata
from collections.abc import Sequence

from rlhfdoctor.engine.schema import PLACE, LookAlike, Rule, Treatment
from rlhfdoctor.i18n.message import ENGLISH, Language, Message, joined, quoted, say, template
from rlhfdoctor.settings.spell import FRAMEWORKS, spell

_HEADINGS = {
    "meaning": say("What it means"),
    "impact": say("What it does to a run"),
    "check": say("How to check by hand"),
}


def explain(rule: Rule, t: Language = ENGLISH) -> str:
    """The page of a rule as plain text, 80 columns wide, in the language of `t`."""
    parts = [f"{rule.id}: {t(template(rule.title))}", ""]
    for key, heading in _HEADINGS.items():
        parts += [t(heading), *_wrap(t(template(rule.docs[key]))), ""]
    parts += [t(say("What looks alike")), *_wrap(t(_look_alikes(rule.false_positives))), ""]
    if rule.remediation:
        parts.append(t(say("Treatment")))
        for item in rule.remediation:
            where = f" ({item.framework})" if item.framework else ""
            version = t(say(" at {versions}", versions=item.versions)) if item.versions else ""
            effect = t(_unmeasured(item.effect))
            what = t(template(item.instead)) if item.instead else item.setting
            parts += _wrap(f"- {what}{where}{version} [{item.safety}]: {effect}")
            spelled = _spelled(item)
            if spelled:
                parts += _wrap(f"  {t(say('spelled: {spelled}', spelled=spelled))}")
            if item.cost:
                parts += _wrap(f"  {t(say('cost: {cost}', cost=template(item.cost)))}")
            parts += [
                line
                for effect in item.side_effects
                for line in _wrap(f"  {t(say('side effect: {effect}', effect=template(effect)))}")
            ]
            if item.note:
                parts += _wrap(f"  {t(template(item.note))}")
        parts.append("")
    if rule.references:
        parts += [t(say("References")), *(f"  {link}" for link in rule.references), ""]
    return "\n".join(parts).rstrip()


def _look_alikes(look_alikes: Sequence[LookAlike]) -> Message:
    """What lies between two notes is one sentence."""
    sentences = []
    for is_note, group in itertools.groupby(look_alikes, key=lambda one: bool(one.note)):
        if is_note:
            sentences += [template(one.note) for one in group]
        else:
            names = functools.reduce(lambda one, two: say("{one}, {two}", one=one, two=two), map(_look_alike, group))
            sentences.append(say("{causes}.", causes=names))
    return joined(*sentences, by=" ")


def _look_alike(one: LookAlike) -> Message:
    names = joined(*map(quoted, one.causes), by=" and ") if one.causes else template(one.other)
    return say("{fact} ({remark})", fact=names, remark=template(one.differs)) if one.differs else names


def _spelled(treatment: Treatment) -> str:
    """How the frameworks write a setting, each in its newest spelling; empty if it is described in prose."""
    if treatment.instead:
        return ""
    tables = (treatment.framework,) if treatment.framework else (*FRAMEWORKS, "container", "ray", "torch", "deepspeed")
    found = [(name, spell(treatment.setting, name, None)) for name in tables]
    return "; ".join(f"{name} {row.spelled}" for name, row in found if row is not None and row.form != "code")


def _unmeasured(text: str) -> Message:
    """A rule's sentence without a case: each of its places is the amount that will be measured."""
    return template(text, **dict.fromkeys(PLACE.findall(text), say("the measured amount")))


def _wrap(text: str) -> list[str]:
    indent = "    " if text.startswith(("- ", "  ")) else "  "
    wide = sum(1 for letter in text if unicodedata.east_asian_width(letter) in "WF")
    return textwrap.wrap(
        text.strip(),
        78 - 39 * wide // max(len(text), 1),  # a wide letter takes two columns
        initial_indent="  " if text.startswith("- ") else indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
