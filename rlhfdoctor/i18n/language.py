"""The languages of reports, and translation of an incident. The tables are data: i18n/zh/ and each rule's zh.yaml."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import resources

import yaml

from rlhfdoctor.charts import Chart
from rlhfdoctor.engine.catalogue import rules_folder
from rlhfdoctor.i18n.words import ENGLISH, Words
from rlhfdoctor.types import Finding, Incident, Missing, Patch, Quote

LANGUAGES = ("en", "zh")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def preferred() -> str:
    """The language of the environment: zh where LC_ALL, LC_MESSAGES or LANG begin so, else en."""
    found = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if found.lower().startswith("zh") else "en"


@functools.cache
def load_words(name: str) -> Words:
    """The table of a language: sentences of the doctor and of the bundled rules."""
    if name == "en":
        return ENGLISH
    folder = resources.files("rlhfdoctor.i18n") / name
    page = read_table((folder / "report.yaml").read_text(encoding="utf-8"))
    table = {english: other for english, other in page.items() if "{" not in english}
    for file in ("evidence", "patches", "reading"):
        table |= read_table((folder / f"{file}.yaml").read_text(encoding="utf-8"))
    for path in sorted(rules_folder().glob(f"*/{name}.yaml")):
        table |= read_table(path.read_text(encoding="utf-8"))
    return Words(name, table, page)


def read_table(text: str) -> Mapping[str, str]:
    """English -> the other language, from a list of pairs."""
    return {row["en"]: row["zh"] for row in yaml.load(text, Loader=_LOADER) or () if row["zh"]}


def translate(incident: Incident, words: Words) -> Incident:
    """The incident with every sentence of the doctor in the reader's language; quoted lines, names and commands stay."""
    if words is ENGLISH:
        return incident
    of = words.of
    framework = incident.framework
    return replace(
        incident,
        framework=replace(framework, basis=of(framework.basis)) if framework is not None else None,
        findings=tuple(_finding(finding, words) for finding in incident.findings),
        ruled_out=tuple(replace(item, because=of(item.because)) for item in incident.ruled_out),
        ledger=tuple(replace(part, part=of(part.part), basis=of(part.basis)) for part in incident.ledger),
        gaps=tuple(replace(gap, what=of(gap.what), why=of(gap.why)) for gap in incident.gaps),
    )


def _finding(finding: Finding, words: Words) -> Finding:
    of = words.of
    return replace(
        finding,
        title=of(finding.title),
        summary=of(finding.summary),
        evidence=tuple(_quote(quote, words) for quote in finding.evidence),
        against=tuple(_quote(quote, words) for quote in finding.against),
        missing=tuple(Missing(what=of(item.what), settle=of(item.settle)) for item in finding.missing),
        patches=tuple(_patch(patch, words) for patch in finding.patches),
        differs=of(finding.differs),
    )


def _quote(quote: Quote, words: Words) -> Quote:
    return replace(quote, says=words.of(quote.says))


def _patch(patch: Patch, words: Words) -> Patch:
    of = words.of
    return replace(
        patch,
        spelled=of(patch.spelled),
        effect=of(patch.effect),
        cost=of(patch.cost),
        note=of(patch.note),
        side_effects=tuple(of(effect) for effect in patch.side_effects),
    )


def translate_chart(chart: Chart, words: Words) -> Chart:
    """A chart's titles, names, limits and notes in the reader's language."""
    if words is ENGLISH:
        return chart
    panels = tuple(
        replace(
            panel,
            title=words.of(panel.title),
            labels=tuple(words.of(name) for name in panel.names),
            bounds=tuple(replace(bound, name=words.of(bound.name)) for bound in panel.bounds),
        )
        for panel in chart.panels
    )
    marks = tuple(replace(mark, says=words.of(mark.says)) for mark in chart.marks)
    return replace(chart, panels=panels, marks=marks, notes=tuple(words.of(note) for note in chart.notes))
