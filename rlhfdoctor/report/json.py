"""The JSON report: `rlhfdoctor.report/1` of contract.md; fields are only ever added."""

from __future__ import annotations

import functools
import json
import re
from importlib import resources
from typing import Any

from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Death, Event, Finding, Framework, Incident, Patch, Process, Quote
from rlhfdoctor.units import show_time

_SURROGATES = re.compile("[\ud800-\udfff]")
SCHEMA = "rlhfdoctor.report/1"


def to_dict(incident: Incident) -> dict[str, Any]:
    """The report as one object of plain types."""
    death = incident.death
    return {
        "schema": SCHEMA,
        "sources": list(incident.sources),
        "verdict": incident.verdict,
        "killer": (death.killer or None) if death else None,
        "framework": _framework(incident.framework),
        "died": _died(death) if death else None,
        "victim": _process(death.victim) if death else None,
        "culprit": _process(death.culprit) if death and death.culprit else None,
        "findings": [_finding(finding) for finding in incident.findings],
        "ruled_out": [{"cause": r.cause} | said(because=r.because) for r in incident.ruled_out],
        "ledger": [{"bytes": p.bytes} | said(part=p.part, basis=p.basis) for p in incident.ledger],
        "gaps": [said(what=g.what, why=g.why) for g in incident.gaps],
        "timeline": [_moment(event) for event in incident.timeline],
        "settings": [
            {
                "setting": s.name,
                "spelled": s.spelled,
                "value": s.written,
                "file": s.origin.file,
                "line": s.origin.line,
            }
            for s in incident.settings
        ],
    }


def render(incident: Incident) -> str:
    """The report as indented JSON text."""
    text = json.dumps(to_dict(incident), indent=2, ensure_ascii=False, allow_nan=False, default=str)
    return _SURROGATES.sub("\ufffd", text) + "\n"


@functools.cache
def load_schema() -> dict[str, Any]:
    """The JSON Schema of the report (draft 2020-12)."""
    text = (resources.files("rlhfdoctor.report") / "report.schema.json").read_text()
    schema: dict[str, Any] = json.loads(text)
    return schema


def _framework(framework: Framework | None) -> dict[str, Any] | None:
    if framework is None:
        return None
    return {
        "name": framework.name,
        "version": framework.version,
        "basis": str(framework.basis),
        "since": framework.since,
        "until": framework.until,
    }


def _died(death: Death) -> dict[str, Any]:
    event = death.event
    return {
        "time": show_time(death.time) if death.time is not None else None,
        "phase": death.phase,
        "step": death.step,
        "node": death.node,
        "role": death.victim.role,
        "rank": death.victim.rank,
        "pid": death.victim.pid,
        "certain": death.certain,
        "file": event.origin.file if event else None,
        "line": event.origin.line if event else None,
        "text": clean(event.text, 2000) if event else None,
    }


def _process(process: Process) -> dict[str, Any]:
    return {"role": process.role, "name": process.name, "pid": process.pid, "bytes": process.bytes}


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "confidence": finding.confidence,
        "explained_by": finding.explained_by,
        **said(title=finding.title, summary=finding.summary),
        "evidence": [_quote(quote) for quote in finding.evidence],
        "against": [_quote(quote) for quote in finding.against],
        "missing": [said(what=m.what, settle=m.settle) for m in finding.missing],
        "patches": [_patch(patch) for patch in finding.patches],
    }


def _quote(quote: Quote) -> dict[str, Any]:
    return {
        "kind": quote.kind,
        "file": quote.file,
        "line": quote.line,
        "text": None if quote.text is None else clean(quote.text, 2000),
    } | said(says=quote.says)


def _patch(patch: Patch) -> dict[str, Any]:
    host_bytes = list(patch.host_bytes) if patch.host_bytes else None
    return {
        "setting": patch.setting,
        "spelled": patch.spelled,
        "file": patch.file,
        "line": patch.line,
        "before": patch.before,
        "after": patch.after,
        "safety": patch.safety,
        "effect": {**said(basis=patch.effect), "host_bytes": host_bytes, "gpu_bytes": patch.gpu_bytes},
        **said(cost=patch.cost, side_effects=patch.side_effects, note=patch.note, instead=patch.instead),
        "diff": patch.diff,
    }


def _moment(event: Event) -> dict[str, Any]:
    return {
        "time": show_time(event.time) if event.time is not None else None,
        "kind": event.kind,
        "file": event.origin.file,
        "line": event.origin.line,
        "host": event.origin.host,
        "rank": event.origin.rank,
        "text": clean(event.text, 300),
    }
