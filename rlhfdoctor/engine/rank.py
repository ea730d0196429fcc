"""Ranks the findings of the rules: best first, secondary failures after their cause.

The score of a rule is the sum of its prior and of the weights of all conditions that hold, in log-odds; how likely it
is among its rivals is in rivals.py, the share of such findings that were right in calibrate.py. What is unknown moves
nothing and is listed as missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from rlhfdoctor.conditions.match import Answer, Facts, ask
from rlhfdoctor.engine.calibrate import confidence, load_curve
from rlhfdoctor.engine.rivals import compete
from rlhfdoctor.engine.schema import PLACE, Rule, Treatment
from rlhfdoctor.faults import PATIENCE_S, isolated
from rlhfdoctor.i18n.message import Argument, Message, say, template, term
from rlhfdoctor.types import Finding, Gap, Missing, Quote, RuledOut
from rlhfdoctor.vocabulary.index import FACTS
from rlhfdoctor.vocabulary.names import Fact, Unit
from rlhfdoctor.vocabulary.run import SPOKEN

SHOWN_SCORE = -2.2
"""Findings are shown above this (log-odds)."""
BARE_SCORE = -0.85
"""Score (log-odds) from which a finding without supporting evidence is shown."""


def diagnose(rules: Sequence[Rule], facts: Facts, gaps: list[Gap]) -> tuple[list[Finding], list[RuledOut]]:
    """All findings of the rules, best first, and the causes that a fact excludes; a rule that fails is a gap."""
    findings: list[Finding] = []
    excluded: list[RuledOut] = []
    curve = load_curve()
    for rule in rules:
        with isolated(say("rule {cause}", cause=rule.id), gaps, PATIENCE_S):
            result = _result(rule, facts)
            if isinstance(result, Finding):
                findings.append(result)
            elif result is not None:
                excluded.append(result)
    findings.sort(key=lambda f: (-f.score, f.cause))
    # a finding without support is kept only if there is no other, to show how to check it
    findings = [f for f in findings if f.evidence or f.score >= BARE_SCORE] or findings[:2]
    return _tell_apart(compete(_fold(findings, rules), curve), rules), excluded


def _result(rule: Rule, facts: Facts) -> Finding | RuledOut | None:
    """A rule's verdict on the facts; None if it does not apply."""
    if ask(rule.requires, facts).value is not True:
        return None
    reason = next((r.because for r in rule.rules_out if ask(r.when, facts).value), None)
    if reason is not None:
        return RuledOut(cause=rule.id, because=fill(reason, facts))
    finding = judge(rule, facts)
    if round(finding.score, 6) > SHOWN_SCORE:
        return finding
    if rule.speaks_against and finding.against:
        return RuledOut(cause=rule.id, because=finding.against[0].says)
    return None


def judge(rule: Rule, facts: Facts) -> Finding:
    """The result of one rule on the facts."""
    score = rule.prior
    speaking: list[Quote] = []
    against: list[Quote] = []
    needed = ask(rule.requires, facts)
    for part in rule.speaks_for:
        answer = ask(part.when, facts)
        if answer.value:
            score += part.weight
            speaking.append(_quote(answer, fill(part.says, facts)))
    for part in rule.speaks_against:
        answer = ask(part.when, facts)
        if answer.value:
            score -= part.weight
            against.append(_quote(answer, fill(part.says, facts)))
    missing = [
        Missing(what=template(w.what), settle=template(w.how_to_check))
        for w in rule.missing
        if w.unless is None or ask(w.unless, facts).value is not True
    ]
    if (
        needed.quotes
        and needed.quotes[0].says
        and not any(quote.says.mentions(needed.quotes[0].says) for quote in speaking)
    ):
        speaking.append(needed.quotes[0])
    return Finding(
        cause=rule.id,
        title=template(rule.title),
        axis=rule.axis,
        confidence=confidence(score, load_curve().knots),
        score=score,
        odds=score,
        summary=fill(rule.summary, facts),
        next_step=template(rule.next_step),
        check=template(rule.docs["check"]),
        evidence=_once(speaking),
        against=tuple(against),
        missing=tuple(missing),
    )


def treatments(rule: Rule, facts: Facts) -> list[Treatment]:
    """The rule's treatments whose own condition holds; a condition on an unset setting does not hold."""
    return [t for t in rule.remediation if t.when is None or ask(t.when, facts, closed=True).value]


def _quote(answer: Answer, says: Message) -> Quote:
    first = next((q for q in answer.quotes if q.text), answer.quotes[0] if answer.quotes else None)
    if first is None:
        return Quote(kind="evidence", says=says)
    if first.kind == "evidence" and first.says and not says.mentions(first.says):
        says = say("{fact} ({remark})", fact=says, remark=first.says)
    return Quote(kind=first.kind, says=says, file=first.file, line=first.line, text=first.text)


def _once(quotes: Sequence[Quote]) -> tuple[Quote, ...]:
    """Each sentence once; several may rest on the same line."""
    return tuple({(q.says, q.file, q.line): q for q in quotes if q.says}.values())


def _kind(finding: Finding) -> str:
    return finding.cause.partition("-")[0]


def _fold(findings: list[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """Secondary failures go after the best finding that explains them."""
    suppresses = {rule.id: rule.suppresses for rule in rules}
    done: list[Finding] = []
    echoes: list[Finding] = []
    for finding in findings:
        root = next(
            (
                f
                for f in findings
                if f is not finding
                and finding.cause in suppresses.get(f.cause, ())
                and f.score >= (finding.score if _kind(f) == _kind(finding) else min(0.0, finding.score))
                and finding.cause not in [e.cause for e in echoes if e.explained_by == f.cause]
                and f.cause not in {e.cause for e in echoes}
            ),
            None,
        )
        if root is None:
            done.append(finding)
        else:
            echoes.append(replace(finding, explained_by=root.cause))
    return done + echoes


def _tell_apart(findings: list[Finding], rules: Sequence[Rule]) -> list[Finding]:
    """Add to each runner-up how it differs from the first finding."""
    if not findings:
        return findings
    rule = next(rule for rule in rules if rule.id == findings[0].cause)
    differs = {cause: look_alike.differs for look_alike in rule.false_positives for cause in look_alike.causes}
    return [findings[0], *(replace(f, differs=template(differs.get(f.cause, ""))) for f in findings[1:])]


def fill(text: str, facts: Facts) -> Message:
    """A rule's sentence with the values of its places such as `{ray.used_bytes}`; unknown ones become 'unknown'."""
    return template(text, **{name: _value(FACTS[name], facts) for name in dict.fromkeys(PLACE.findall(text))})


def _value(fact: Fact, facts: Facts) -> Argument:
    evidence = facts.evidence.get(fact)
    value = evidence.value if evidence is not None else None
    if value is None:
        return _UNKNOWN.get(fact.unit, say("unknown"))
    if isinstance(value, int | float) and not isinstance(value, bool) and fact.unit in _SHOWN:
        return Message(f"{{value:{fact.unit}}}", (("value", value),))
    if isinstance(value, Message):
        return value
    return term(value) if isinstance(value, str) and value in SPOKEN else str(value)


_SHOWN: Collection[Unit] = ("bytes", "share", "s")
_UNKNOWN: Mapping[Unit, Message] = {"bytes": say("an unknown amount"), "s": say("an unknown time")}
