"""Which findings a reader sees in full."""

from __future__ import annotations

from rlhfdoctor.types import Finding, Incident

LIKELY, POSSIBLE = -0.4, -1.4
"""Odds (log-odds among its rivals) from which a runner-up is shown in full, and from which it is shown at all."""
LEAST_CONFIDENCE = 0.2
"""On pages, findings below are only named."""


def roots(incident: Incident) -> list[Finding]:
    """Findings that no other one explains."""
    return [finding for finding in incident.findings if finding.explained_by is None]


def likely(incident: Incident) -> list[Finding]:
    """Those whose missing inputs are worth asking for."""
    return [finding for finding in roots(incident)[:3] if finding.odds >= POSSIBLE]


def worth_showing(incident: Incident) -> list[Finding]:
    """Those that a terminal shows without being asked for all."""
    found = roots(incident)
    if incident.verdict == "cause":
        return found[:1] + [finding for finding in found[1:3] if finding.odds >= LIKELY]
    if incident.verdict in ("healthy", "inconclusive"):
        return [finding for finding in found[:2] if finding.odds >= 2 * LIKELY]
    return [finding for finding in found[:3] if finding.odds >= POSSIBLE]
