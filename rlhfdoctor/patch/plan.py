"""Treatments of a rule -> patches: which file, which spelling, which value, which class of safety."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from rlhfdoctor.conditions.match import Facts
from rlhfdoctor.engine.rank import fill
from rlhfdoctor.engine.schema import Target, Treatment
from rlhfdoctor.i18n.message import NOTHING, Message, joined, quoted, say, template
from rlhfdoctor.patch.edit import Edit, add_setting, as_written, change_setting, remove_setting
from rlhfdoctor.patch.spans import make_diff, splice
from rlhfdoctor.patch.target import UNKNOWN, find_target
from rlhfdoctor.plugins import folders
from rlhfdoctor.settings.force import LOGGED, in_force, is_same
from rlhfdoctor.settings.spell import FRAMEWORKS, Spelling, parse_version, spell, spellings
from rlhfdoctor.types import Framework, Patch, Setting, Value
from rlhfdoctor.units import show_value
from rlhfdoctor.vocabulary import TRAIT

_SIDE_TABLES = ("container", "ray", "torch", "deepspeed", "vllm")


@dataclass(frozen=True, slots=True)
class Configuration:
    """The user's configuration as far as it is at hand."""

    texts: Mapping[str, str]
    settings: Sequence[Setting]
    framework: Framework | None
    versions: Mapping[str, tuple[str, str]]
    manager: str = ""
    """Who set the limit around the job: docker, slurm or kubernetes; empty if unknown."""

    def version(self, table: str) -> str | None:
        """The version of what a table describes; unknown, the newest release that takes all of the user's spellings."""
        if self.framework is not None and self.framework.name == table:
            return self.framework.version or self.framework.until
        found = self.versions.get(table)
        return found[0] if found else None

    def editable(self, name: str) -> Setting | None:
        """The user's own, editable line of a setting: the last one in a file, which is in force."""
        found = [s for s in self.settings if s.name == name and s.span is not None and s.origin.file in self.texts]
        return found[-1] if found else None

    def logged(self, name: str) -> Setting | None:
        """The setting as the run had it: as a log shows it, else as a file says it."""
        return in_force(s for s in self.settings if s.name == name).get(name)


def plan_patches(treatments: Sequence[Treatment], facts: Facts, configuration: Configuration) -> Iterator[Patch]:
    """One patch for each treatment that applies to this framework, version and configuration."""
    planned: set[str] = set()
    for treatment in treatments:
        if treatment.setting in planned or not _applies(treatment, configuration):
            continue
        patch = _plan(treatment, facts, configuration)
        if patch is not None:
            planned.add(treatment.setting)
            yield patch


def _applies(treatment: Treatment, configuration: Configuration) -> bool:
    framework = configuration.framework
    if treatment.framework and (framework is None or framework.name != treatment.framework):
        return False
    if not treatment.versions:
        return True
    package, _, specifier = treatment.versions.partition(" ")
    if not specifier:
        package, specifier = framework.name if framework else "", treatment.versions
    here = parse_version(configuration.version(package))
    if here is None:
        return not treatment.published  # an advice is never marked as not applicable on a guess
    try:
        return here in SpecifierSet(specifier, prereleases=True)
    except InvalidSpecifier:
        return False


def _plan(treatment: Treatment, facts: Facts, configuration: Configuration) -> Patch | None:
    if treatment.instead:
        table, spelling = _spelling(treatment, configuration)
        logged = configuration.logged(treatment.setting)
        target = find_target(treatment, logged, facts)
        return None if target is UNKNOWN else _shown(treatment, table, spelling, logged, target, facts, configuration)
    own = configuration.editable(treatment.setting)
    if treatment.to is None and (own is None or own.value is not True):
        return None
    ran = configuration.logged(treatment.setting)
    value = find_target(treatment, _base(own, ran), facts)
    if value is UNKNOWN:
        return None
    if own is not None:
        if _same(own.value, value) or (ran is not None and _same(ran.value, value)):
            return None  # the file has it, or the run had it, whatever the file says by now
        return _of_line(treatment, own, value, facts, configuration)
    logged = ran
    if logged is not None and _same(logged.value, value):
        return None
    table, spelling = _spelling(treatment, configuration)
    if logged is None and spelling is not None and spelling.default is not None and _same_as_default(spelling, value):
        return None  # it is so already
    if value and spelling is not None and spelling.needs and not _is_on(spelling.needs, configuration):
        return None
    if spelling is None or spelling.form == "code":
        return _shown(treatment, table, spelling, logged, value, facts, configuration)
    if treatment.add or (logged is not None and logged.form in LOGGED):
        new = as_written(value, spelling.spelled, spelling.factor)
        added = add_setting(spelling, new, configuration.texts, configuration.settings)
        if added is not None:
            return _patch(treatment, spelling.spelled, logged, new, added, facts, configuration)
    return _shown(treatment, table, spelling, logged, value, facts, configuration)


def _base(own: Setting | None, ran: Setting | None) -> Setting | None:
    """What a factor is applied to: the value that ran, as the file's setting is written."""
    if own is None or ran is None or ran.form not in LOGGED or is_same(own.value, ran.value):
        return own or ran
    return replace(own, value=ran.value)


def _effect(treatment: Treatment, facts: Facts) -> Message:
    """What the change does, with the arithmetic of its size where this case gave the figures."""
    to = treatment.to if isinstance(treatment.to, Target) else Target()
    figures = [
        facts.evidence[name].says for name in (to.sized_by, to.fact) if name is not None and name in facts.evidence
    ]
    freed = facts.evidence.get(treatment.frees[0]) if treatment.frees else None
    return joined(fill(treatment.effect, facts), *figures, freed.says if freed else NOTHING)


def _host_bytes(treatment: Treatment, facts: Facts) -> tuple[int, int] | None:
    """Expected change of host memory on a node, least and most; negative frees."""
    if treatment.frees is None:
        return None
    name, least, most = treatment.frees
    value = facts.evidence[name].value if name in facts.evidence else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return -round(value * most), -round(value * least)


def _same(one: Value, two: Any) -> bool:
    return show_value(one) == show_value(two)


def _same_as_default(spelling: Spelling, value: Any) -> bool:
    return isinstance(spelling.default, bool | int | float) and show_value(spelling.default) == show_value(value)


def _of_line(
    treatment: Treatment, own: Setting, value: Any, facts: Facts, configuration: Configuration
) -> Patch | None:
    text = configuration.texts[own.origin.file]
    value = as_written(value, own.spelled, own.factor)
    if _same(own.written, value):
        return None
    edit = (
        remove_setting(own, text)
        if value in (None, False) and own.value is True and own.form == "flag"
        else change_setting(own, value, text)
    )
    return None if edit is None else _patch(treatment, own.spelled, own, value, edit, facts, configuration)


def _patch(
    treatment: Treatment,
    spelled: str,
    own: Setting | None,
    value: Any,
    edit: Edit,
    facts: Facts,
    configuration: Configuration,
) -> Patch:
    before = configuration.texts[edit.file]
    return Patch(
        setting=treatment.setting,
        published=treatment.published,
        spelled=spelled,
        file=edit.file,
        line=edit.line,
        before=None if own is None else show_value(own.written),
        after=show_value(value),
        safety=treatment.safety,
        effect=_effect(treatment, facts),
        host_bytes=_host_bytes(treatment, facts),
        cost=template(treatment.cost),
        side_effects=tuple(template(effect) for effect in treatment.side_effects),
        note=_note(treatment, configuration),
        diff=make_diff(before, splice(before, edit.replacements), edit.file),
        replacements=edit.replacements,
        base=before,
    )


def _shown(
    treatment: Treatment,
    table: str | None,
    spelling: Spelling | None,
    own: Setting | None,
    value: Any,
    facts: Facts,
    configuration: Configuration,
) -> Patch | None:
    """A change that is described but not made: no file at hand, code only, or the version unknown."""
    if spelling is None and not treatment.instead:
        return None
    spelled = spelling.spelled if spelling else treatment.setting
    ranges: list[Message] = []
    version = configuration.version(table) if table else None
    if table and spelling is not None and spelling.form != "code" and version is None and not treatment.instead:
        known = [s for s in spellings(treatment.setting, table) if s.only is None]
        ranges = [
            say(
                "{spelled} ({since} to {until})",
                spelled=s.spelled,
                since=quoted(s.since) if s.since else say("start"),
                until=quoted(s.until) if s.until else say("newest"),
            )
            for s in known
            if len(known) > 1 or s.until
        ]
    by_version = say("Spelling by version: {ranges:; }.", ranges=tuple(ranges)) if ranges else NOTHING
    note = joined(_note(treatment, configuration), by_version, by=" ")
    return Patch(
        setting=treatment.setting,
        published=treatment.published,
        spelled=spelled if not treatment.instead else str(fill(treatment.instead, facts)),
        instead=fill(treatment.instead, facts),
        file=None,
        line=None,
        before=None if own is None else show_value(own.written),
        after=show_value(as_written(value, spelling.spelled, spelling.factor) if spelling is not None else value),
        safety="show" if spelling is None or spelling.form == "code" else treatment.safety,
        effect=_effect(treatment, facts),
        host_bytes=_host_bytes(treatment, facts),
        cost=template(treatment.cost),
        side_effects=tuple(template(effect) for effect in treatment.side_effects),
        note=note,
    )


def _note(treatment: Treatment, configuration: Configuration) -> Message:
    framework = configuration.framework
    parts = [template(treatment.note)]
    if any(s.form == "env" for table in ("torch", *_own_table(framework)) for s in spellings(treatment.setting, table)):
        parts.append(
            say(
                "A shell's export reaches the workers only if that shell starts Ray; for a running cluster set it in "
                "env_vars of the runtime_env."
            )
        )
    if (
        treatment.versions
        and framework is not None
        and configuration.version(treatment.versions.split()[0] if " " in treatment.versions else framework.name)
        is None
    ):
        parts.append(say("Works only for {versions}; your version is not known.", versions=treatment.versions))
    return joined(*parts, by=" ")


def _spelling(treatment: Treatment, configuration: Configuration) -> tuple[str | None, Spelling | None]:
    """The table and spelling for a setting: the framework's own first, then the other tables."""
    framework = configuration.framework
    tables = (*_own_table(framework), *_SIDE_TABLES)
    for table in tables:
        version = configuration.version(table)
        of_manager = (s for s in spellings(treatment.setting, table) if s.row.get("for") == configuration.manager)
        found = next(of_manager, None) or spell(treatment.setting, table, version)
        if found is not None and _usable(table, configuration):
            return table, found
        if version is not None and table == tables[0] and spellings(treatment.setting, table):
            continue  # the framework has it, but not at this version
    return None, None


def _is_on(name: str, configuration: Configuration) -> bool:
    there = configuration.logged(name)
    return there is not None and there.value not in (False, None)


def _own_table(framework: Framework | None) -> tuple[str, ...]:
    return (framework.name,) if framework is not None and framework.name in FRAMEWORKS else ()


def _usable(table: str, configuration: Configuration) -> bool:
    """Whether a key of a table other than the framework's has an effect on it."""
    if table == "deepspeed":
        framework = configuration.framework
        return framework is None or not folders.has(framework.name, TRAIT.ignores_deepspeed_keys)
    if table == "vllm":
        return configuration.framework is None
    return True
