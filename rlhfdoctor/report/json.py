"""The JSON report: `rlhfdoctor.report/1` of contract.md; fields are only ever added."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any

from rlhfdoctor.privacy.controls import encodable
from rlhfdoctor.report.composed import axes_dict
from rlhfdoctor.report.json_text import to_text
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.report.section import sections
from rlhfdoctor.types import Death, Framework, Incident, Process
from rlhfdoctor.units import show_time

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
        **axes_dict(incident.axes),
        **{s.name: s.to_dict(incident) for s in sections() if s.to_dict is not None},
    }


def render(incident: Incident) -> str:
    """The report as indented JSON text."""
    return encodable(to_text(to_dict(incident))) + "\n"


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
    return {
        "role": process.role,
        "name": None if process.name is None else clean(process.name),
        "pid": process.pid,
        "bytes": process.bytes,
    }
