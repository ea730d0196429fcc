"""An estimate as JSON, `rlhfdoctor.estimate/1`; fields are only ever added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlhfdoctor.budget.types import PLACES, Estimate
from rlhfdoctor.report.estimate_verdict import ERROR, by_phase, sentence, verdict
from rlhfdoctor.report.json_text import to_text
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import without_secrets
from rlhfdoctor.types import Patch

SCHEMA = "rlhfdoctor.estimate/1"


def to_dict(found: Estimate) -> dict[str, Any]:
    """The estimate as one object of plain types."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(found),
        **said(says=sentence(found), node=found.node, assumed=found.assumed),
        "framework": {"name": found.framework, "version": str(found.version) or None},
        "phases": list(found.phases),
        "by_phase": by_phase(found),
        "limits": [
            {
                "name": limit.name,
                "place": limit.place,
                "bytes": limit.bytes,
                **said(basis=limit.basis),
                "peak_phase": found.peak(limit)[0],
                "peak_bytes": found.peak(limit)[1],
            }
            for limit in found.limits
        ],
        "roles": {
            place: {
                role: {phase: found.of(place, phase, role) for phase in found.phases}
                for role in found.roles
                if any(found.of(place, phase, role) for phase in found.phases)
            }
            for place in PLACES
        },
        "together": {place: {phase: found.of(place, phase) for phase in found.phases} for place in PLACES},
        "needs": [
            {
                "role": need.role,
                "place": need.place,
                "phases": list(need.phases),
                "bytes": need.bytes,
                "count": need.count,
                **said(what=need.what),
                "pinned": need.pinned,
                "moment": need.transient,
                "at_longest": need.at_longest,
                "from_step": need.after_first_step,
            }
            for need in found.needs
        ],
        "hazards": [{"phase": h.phase, "cause": h.cause, **said(says=h.says)} for h in found.hazards],
        "gaps": [said(what=gap.what, why=gap.why) for gap in found.gaps],
        "error_ratio": ERROR,
    }


def render(found: Estimate, after: Estimate | None = None, patches: Sequence[Patch] = ()) -> str:
    """The estimate as indented JSON text, with the suggestion if requested."""
    whole = to_dict(found)
    if after is not None:
        changes = [
            {
                "setting": p.setting,
                "spelled": p.spelled,
                "before": p.before,
                "after": p.after,
                "file": p.file,
                "line": p.line,
                "safety": p.safety,
                **said(cost=p.cost),
                "diff": without_secrets(p.diff),
            }
            for p in patches
        ]
        whole["suggestion"] = {**said(says=sentence(after)), "verdict": verdict(after), "changes": changes}
    return to_text(whole) + "\n"
