"""How likely a finding is among its rivals: a softmax over log-odds in which "something else" is a candidate, too.

Causes of one kind that say the same of an incident (what limit was hit, what filled it, in which moment, by which
course) exclude each other; those that say something else of it may hold at the same time. Causes of different kinds
exclude each other always: a run ends once. What a finding explains is no rival of it (suppresses).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from rlhfdoctor.axes import Candidate
from rlhfdoctor.engine.calibrate import Curve, confidence
from rlhfdoctor.types import Finding
from rlhfdoctor.vocabulary.run import Axis


def compete(findings: Sequence[Finding], curve: Curve) -> list[Finding]:
    """The findings with their odds among their rivals; echoes stay behind and as they are.

    Those that are more likely than not come first, each group in the order of its own evidence: on an axis with few
    rivals little evidence is enough to be likely.
    """
    roots = [f for f in findings if f.explained_by is None]
    shared = (_among(f, [r for r in roots if r is not f and _are_rivals(r, f)], curve) for f in roots)
    ranked = sorted(shared, key=lambda f: (round(f.odds, 6) < 0, -f.score, f.cause))
    return [*ranked[:1], *(_behind(f, curve) for f in ranked[1:]), *(f for f in findings if f.explained_by is not None)]


def is_decided(findings: Sequence[Finding]) -> bool:
    """Whether the first finding is a verdict: more likely than its rivals and something else together."""
    return bool(findings) and findings[0].explained_by is None and round(findings[0].odds, 6) >= 0


def shares(findings: Sequence[Finding], axis: Axis, curve: Curve) -> tuple[Candidate, ...]:
    """The causes of one axis, of the first finding's kind; what their shares lack to one is something else."""
    kind = _kind(findings[0]) if findings else ""
    here = [f for f in findings if f.explained_by is None and f.axis == axis and _kind(f) == kind]
    powers = [math.exp(f.score / curve.temperature) for f in here]
    total = curve.something_else + math.fsum(powers)
    ranked = sorted(zip(here, powers), key=lambda pair: (-pair[1], pair[0].cause))
    return tuple(Candidate(f.cause, round(power / total, 2)) for f, power in ranked)


def _among(finding: Finding, rivals: Sequence[Finding], curve: Curve) -> Finding:
    others = math.fsum(math.exp(rival.score / curve.temperature) for rival in rivals)
    odds = finding.score / curve.temperature - math.log(curve.something_else + others)
    return replace(finding, odds=odds, confidence=confidence(odds, curve.knots))


def _behind(finding: Finding, curve: Curve) -> Finding:
    """A finding that is not the first: at the same odds, fewer of them are what has to change."""
    return replace(finding, confidence=min(finding.confidence, confidence(finding.odds, curve.behind)))


def _are_rivals(one: Finding, other: Finding) -> bool:
    return _kind(one) != _kind(other) or one.axis == other.axis


def _kind(finding: Finding) -> str:
    return finding.cause.partition("-")[0]
