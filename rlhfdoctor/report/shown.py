"""Which findings a reader sees in full."""

from __future__ import annotations

from rlhfdoctor.types import Finding, Incident

LIKELY, POSSIBLE = -0.8, -1.4
"""Odds (log-odds among its rivals) from which a finding is shown where nothing died, and where something did."""
LEAST_CONFIDENCE = 0.2
"""On pages, findings below are only named."""


def roots(incident: Incident) -> list[Finding]:
    """Findings that no other one explains."""
    return [finding for finding in incident.findings if finding.explained_by is None]


def likely(incident: Incident) -> list[Finding]:
    """Those whose missing inputs are worth asking for."""
    return [finding for finding in roots(incident)[:3] if finding.odds >= POSSIBLE]


def worth_showing(incident: Incident) -> list[Finding]:
    """Those that a terminal shows without being asked for all: the cause, or what may be it."""
    found = roots(incident)
    if incident.verdict == "cause":
        return found[:1]
    if incident.verdict == "healthy":
        found = [finding for finding in found if finding.evidence]
    if incident.verdict in ("healthy", "inconclusive"):
        return [finding for finding in found[:2] if finding.odds >= LIKELY]
    return [finding for finding in found[:3] if finding.odds >= POSSIBLE]


def is_of_host_memory(incident: Incident) -> bool:
    """Whether host memory ran out, so that who held how much of it is part of the answer."""
    return incident.axes.limit is not None and incident.axes.limit.name in ("cgroup", "node", "numa node", "ray")
