"""Canonical name <-> spelling at a version, from the frameworks' tables or those next to this module.

A rule says `offload_optimizer`; the table of OpenRLHF maps this to `--adam_offload` up to
0.10.1.post2 and `--ds.adam_offload` from 0.10.2 on.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from rlhfdoctor import documents
from rlhfdoctor.errors import PluginError
from rlhfdoctor.plugins import folders
from rlhfdoctor.units import FACTORS, in_unit
from rlhfdoctor.vocabulary.names import did_you_mean
from rlhfdoctor.vocabulary.settings import UNITS

_MOST_LETTERS = 100
"""Of a release's name."""
_WORD = re.compile(r"[A-Za-z0-9_./:,+@%-][A-Za-z0-9_./:,+@%=-]{0,199}")
FRAMEWORKS = folders.names()
"""Tables of training frameworks, each in its folder; the others (deepspeed, vllm, ray, torch, container) go with any of
them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How one setting is written in a range of releases."""

    name: str
    """Canonical name."""
    spelled: str
    framework: str
    form: str
    """flag, hydra, yaml, json, env, sbatch, or code: only an edit of installed code can change it."""
    since: str | None
    until: str | None
    default: object
    only: str | None = None
    """The one program that takes it, if not the framework's PPO trainer: read where it is written, never proposed."""
    per: str | None = None
    """What it counts for, if not one GPU: all_gpus."""
    needs: str | None = None
    """The setting that must be on for a release to accept this one: it is never switched on alone."""
    factor: float = 1
    """How many of the setting's own unit one of the written value is; `default` is in the setting's own."""
    row: Mapping[str, Any]
    """The whole row of the table: meaning, memory_effect, tradeoff, source."""

    def holds_at(self, version: str | None) -> bool:
        """Whether a release accepts this spelling; an unknown release may."""
        if version is None:
            return True
        here = parse_version(version)
        since, until = parse_version(self.since), parse_version(self.until)
        if here is None:
            return True
        return (since is None or since <= here) and (until is None or here <= until)


_DATE = re.compile(r"\d{4}-\d\d(?:-\d\d)?")


@functools.lru_cache(maxsize=512)
def parse_version(text: str | None) -> Version | None:
    """A release number; None if missing, and for dates or marks that are not a release.

    >>> parse_version("~0.10.2") < parse_version("0.10.10"), parse_version("2025-03") is None
    (True, True)
    """
    if text is None or len(text) > _MOST_LETTERS or _DATE.fullmatch(text):
        return None
    try:
        return Version(text.lstrip("~<=v").split("+")[0])
    except InvalidVersion:
        return None


def is_word(value: str) -> bool:
    """Whether a text means the same without quotes to a shell, to Hydra and in YAML.

    >>> is_word("16g"), is_word("/data/spill"), is_word("500g; reboot")
    (True, True, False)
    """
    return _WORD.fullmatch(value) is not None


def is_specifier(text: str) -> bool:
    """Whether a text names releases: a specifier, or a package and one.

    >>> is_specifier(">=0.5.4"), is_specifier("deepspeed >=0.14.1,<0.18.3"), is_specifier("since 3")
    (True, True, False)
    """
    package, _, specifier = text.partition(" ")
    if specifier and re.fullmatch(r"[A-Za-z][\w.-]*", package) is None:
        return False
    try:
        SpecifierSet(specifier or package)
    except InvalidSpecifier:
        return False
    return True


def table_text(name: str) -> str:
    """The file of a table: in the framework's folder, or next to this module."""
    beside = resources.files("rlhfdoctor.settings") / "tables" / f"{name}.yaml"
    return (folders.settings_file(name) if name in FRAMEWORKS else beside).read_text("utf-8")


@functools.cache
def load_table(framework: str) -> tuple[Spelling, ...]:
    """All spellings of a framework, newest first."""
    found = []
    for row in documents.parse(table_text(framework))["settings"]:
        for own in ({}, *row.get("aliases", ())):
            merged = {**row, **own}
            factor = _factor(merged, framework)
            found.append(
                Spelling(
                    name=row["name"],
                    spelled=merged["spelled"],
                    framework=framework,
                    form=merged["form"],
                    since=merged["since"],
                    until=merged["until"],
                    default=in_unit(merged["default"], 1 / factor),
                    only=merged.get("only"),
                    per=merged.get("per"),
                    needs=merged.get("needs"),
                    factor=factor,
                    row=row,
                )
            )
    return tuple(found)


def _factor(row: Mapping[str, Any], table: str) -> float:
    """Of the unit that a row is written in, if that is not the setting's own.

    Raises:
        PluginError: the setting has no unit, or the unit is not one of its units.
    """
    if "unit" not in row:
        return 1
    known = FACTORS.get(UNITS.get(row["name"], ""), {})
    if row["unit"] in known:
        return known[row["unit"]]
    lines = table_text(table).splitlines()
    place = next((i for i, line in enumerate(lines, 1) if re.match(rf"[ -]*unit: *['\"]?{row['unit']}\b", line)), 1)
    what = f"unknown unit '{row['unit']}'.{did_you_mean(str(row['unit']), known)}" if known else "has no unit"
    raise PluginError(f"{table}: settings.yaml:{place}: {row['name']}: {what}")


TABLES = (*FRAMEWORKS, "deepspeed", "vllm", "ray", "torch", "container")


@functools.cache
def known_names() -> frozenset[str]:
    """Canonical names of all settings that a table has."""
    return frozenset(spelling.name for table in TABLES for spelling in load_table(table))


@functools.cache
def _by_spelling() -> dict[str, tuple[Spelling, ...]]:
    index: dict[str, list[Spelling]] = {}
    for framework in TABLES:
        for spelling in load_table(framework):
            if spelling.form != "code":
                index.setdefault(normal(spelling.spelled), []).append(spelling)
    return {key: tuple(value) for key, value in index.items()}


def normal(spelled: str) -> str:
    """A spelling without leading `+`, with `-` and `_` as one, for comparison.

    >>> normal("--gpu-memory-utilization") == normal("--gpu_memory_utilization")
    True
    """
    text = spelled.lstrip("+~")
    return text if text.startswith("-") and len(text) == 2 else text.replace("-", "_")


def lookup(spelled: str, prefer: str | None = None) -> Spelling | None:
    """The table entry of a spelling as a user wrote it; of several frameworks the preferred one.

    >>> lookup("--adam_offload").name, lookup("--nonsense")
    ('offload_optimizer', None)
    """
    found = _by_spelling().get(normal(spelled), ())
    if prefer in FRAMEWORKS:  # what is only in the tables of the others is not a setting of this one
        found = tuple(s for s in found if s.framework not in FRAMEWORKS or s.framework in folders.lineage(prefer))
    if not found:
        return None
    return next((s for s in found if s.framework == prefer), found[0])


def rows_of(spelled: str, framework: str) -> tuple[Spelling, ...]:
    """All rows of a framework's table that have a spelling."""
    return tuple(s for s in _by_spelling().get(normal(spelled), ()) if s.framework == framework)


def claimants(spelled: str) -> tuple[str, ...]:
    """The frameworks whose tables have a spelling.

    >>> claimants("--colocate_all_models"), claimants("--nonsense")
    (('openrlhf',), ())
    """
    found = dict.fromkeys(s.framework for s in _by_spelling().get(normal(spelled), ()))
    return tuple(name for name in found if name in FRAMEWORKS)


def spellings(name: str, framework: str) -> tuple[Spelling, ...]:
    """All spellings of a canonical name in a framework's table, newest first."""
    return tuple(s for s in load_table(framework) if s.name == name)


def spell(name: str, framework: str, version: str | None) -> Spelling | None:
    """The one spelling that a release accepts; None if the release has no such setting.

    With an unknown version, the newest spelling.

    >>> spell("offload_optimizer", "openrlhf", "0.5.3").spelled
    '--adam_offload'
    >>> spell("rollout.free_cache_engine", "openrlhf", "0.5.3") is None
    True
    >>> spell("ref.offload_param", "openrlhf", "0.2.5") is None  # --ref_offload is train_dpo's
    True
    """
    holding = [s for s in spellings(name, framework) if s.only is None and s.holds_at(version)]
    if version is None or len(holding) < 2:
        return holding[0] if holding else None
    first = holding[0]  # of one spelling the row with the narrowest range knows that release's default
    same = [s for s in holding if s.spelled == first.spelled and s.until is not None]
    return min(same, key=lambda s: parse_version(s.until) or Version("9999"), default=first)
