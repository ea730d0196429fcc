"""A rule for people: its page."""

from __future__ import annotations

import functools
import itertools
import re
import textwrap
import unicodedata
from collections.abc import Sequence

from rlhfdoctor.engine.schema import LookAlike, Rule, Treatment
from rlhfdoctor.i18n.words import ENGLISH, Words
from rlhfdoctor.settings.spell import FRAMEWORKS, spell

_HEADINGS = {
    "meaning": "What it means",
    "impact": "What it does to a run",
    "check": "How to check by hand",
}


def explain(rule: Rule, t: Words = ENGLISH) -> str:
    """The page of a rule as plain text, 90 columns wide, in the language of `t`."""
    parts = [f"{rule.id}: {t.of(rule.title)}", ""]
    for key, heading in _HEADINGS.items():
        parts += [t(heading), *_wrap(t.of(rule.docs[key])), ""]
    parts += [t("What looks alike"), *_wrap(_look_alikes(rule.false_positives, t)), ""]
    if rule.remediation:
        parts.append(t("Treatment"))
        for item in rule.remediation:
            where = f" ({item.framework})" if item.framework else ""
            version = t(" at {0}", item.versions) if item.versions else ""
            effect = _show(t.of(item.effect), t)
            parts += _wrap(f"- {t.of(item.instead or item.setting)}{where}{version} [{item.safety}]: {effect}")
            spelled = _spelled(item)
            if spelled:
                parts += _wrap(f"  {t('spelled: {0}', spelled)}")
            if item.cost:
                parts += _wrap(f"  {t('cost: {0}', t.of(item.cost))}")
            parts += [
                line for effect in item.side_effects for line in _wrap(f"  {t('side effect: {0}', t.of(effect))}")
            ]
            if item.note:
                parts += _wrap(f"  {t.of(item.note)}")
        parts.append("")
    if rule.references:
        parts += [t("References"), *(f"  {link}" for link in rule.references), ""]
    return "\n".join(parts).rstrip()


def _look_alikes(look_alikes: Sequence[LookAlike], t: Words) -> str:
    """What lies between two notes is one sentence."""
    sentences = []
    for is_note, group in itertools.groupby(look_alikes, key=lambda one: bool(one.note)):
        if is_note:
            sentences += [t.of(one.note) for one in group]
        else:
            sentences.append(
                functools.reduce(lambda a, b: t("{0}, {1}", a, b), (_look_alike(one, t) for one in group)) + t.stop
            )
    return functools.reduce(lambda a, b: t("{0} {1}", a, b), sentences)


def _look_alike(one: LookAlike, t: Words) -> str:
    names = functools.reduce(lambda a, b: t("{0} and {1}", a, b), one.causes or (t.of(one.other),))
    return t("{0} ({1})", names, t.of(one.differs)) if one.differs else names


def _spelled(treatment: Treatment) -> str:
    """How the frameworks write a setting, each in its newest spelling; empty if it is described in prose."""
    if treatment.instead:
        return ""
    tables = (treatment.framework,) if treatment.framework else (*FRAMEWORKS, "container", "ray", "torch", "deepspeed")
    found = [(name, spell(treatment.setting, name, None)) for name in tables]
    return "; ".join(f"{name} {row.spelled}" for name, row in found if row is not None and row.form != "code")


def _show(text: str, t: Words) -> str:
    return re.sub(r"\{([a-z_.0-9]+)\}", t("the measured amount"), text)


def _wrap(text: str) -> list[str]:
    indent = "    " if text.startswith(("- ", "  ")) else "  "
    wide = sum(1 for letter in text if unicodedata.east_asian_width(letter) in "WF")
    return textwrap.wrap(
        text.strip(),
        88 - 44 * wide // max(len(text), 1),  # a wide letter takes two columns
        initial_indent="  " if text.startswith("- ") else indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
    )
