"""The report as Markdown, for issue trackers and chat."""

from __future__ import annotations

import re

from rlhfdoctor.i18n.message import ENGLISH, Language, Message, say
from rlhfdoctor.report.phrasing import NOT_SET, SAFETIES, VERDICTS, headline, killed, known_version, sentence
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Finding, Incident, Quote
from rlhfdoctor.units import show_bytes, show_confidence

_LEAST_CONFIDENCE = 0.2
"""Findings below are named only."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~])")


def render(incident: Incident, t: Language = ENGLISH) -> str:
    """The whole report as Markdown text."""
    lines = [f"## {t(VERDICTS[incident.verdict])}: {_plain(t(headline(incident)))}", ""]
    if incident.death is not None:
        lines += [_plain(t(killed(incident))) + t.stop, ""]
        event = incident.death.event
        if event is not None:
            lines += [f"`{_code(str(event.origin))}`", *_block(event.text), ""]
    if incident.framework is not None:
        lines += [
            f"{t(say('Framework'))}: {_plain(t(known_version(incident.framework)))} ({_plain(t(incident.framework.basis))})",
            "",
        ]
    for finding in incident.findings:
        if finding.confidence >= _LEAST_CONFIDENCE:
            lines += _finding(finding, t)
    remote = [f for f in incident.findings if f.confidence < _LEAST_CONFIDENCE and f.explained_by is None]
    if remote:
        lines += [
            t(say("Less likely")) + ": " + ", ".join(f"{f.cause} ({show_confidence(f.confidence)})" for f in remote),
            "",
        ]
    if incident.ruled_out:
        lines += [f"### {t(say('Ruled out'))}", ""]
        lines += [f"- **{r.cause}**: {_plain(t(r.because))}" for r in incident.ruled_out] + [""]
    if incident.ledger:
        lines += [
            f"### {t(say('Ledger'))}",
            "",
            f"| {t(say('part'))} | {t(say('size'))} | {t(say('basis'))} |",
            "|---|---:|---|",
        ]
        lines += [
            f"| {_plain(t(p.part))} | {show_bytes(p.bytes)} | {_plain(t(p.basis))} |" for p in incident.ledger
        ] + [""]
    if incident.gaps:
        lines += [f"### {t(say('Not read'))}", ""]
        lines += [f"- {_plain(t(g.what))}: {_plain(t(g.why))}" for g in incident.gaps] + [""]
    return "\n".join(lines).rstrip() + "\n"


def _finding(finding: Finding, t: Language) -> list[str]:
    if finding.explained_by is not None:
        return [f"- {t(say('echo of'))} **{finding.explained_by}**: {finding.cause} ({_plain(t(finding.title))})", ""]
    lines = [
        f"### {finding.cause} ({show_confidence(finding.confidence)}): {_plain(t(finding.title))}",
        "",
        _plain(t(finding.summary)),
        "",
    ]
    lines += (
        [_quoted(say("for"), q, t) for q in finding.evidence]
        + [_quoted(say("against"), q, t) for q in finding.against]
        + [""]
    )
    for patch in finding.patches:
        before = patch.before if patch.before is not None else t(NOT_SET)
        lines += [
            f"**{_plain(t(patch.named))}**: `{_code(before)}` → `{_code(str(patch.after))}` ({t(SAFETIES[patch.safety])}). {' '.join(_plain(sentence(part, t)) for part in (patch.effect, patch.note) if part)}",
            "",
        ]
        if patch.diff:
            fence = "`" * max(3, *(len(run) + 1 for run in re.findall(r"`+", patch.diff)), 3)
            lines += [f"{fence}diff", patch.diff.rstrip("\n"), fence, ""]
    if finding.missing:
        lines += [f"{t(say('Would settle it'))}:", ""]
        lines += [f"- {_plain(t(m.what))}: `{_code(t(m.settle))}`" for m in finding.missing] + [""]
    return lines


def _quoted(side: Message, quote: Quote, t: Language) -> str:
    where = f" (`{_code(quote.file)}:{quote.line}`)" if quote.file else ""
    return f"- {t(side)}: {_plain(t(quote.says))}{where}"


def _plain(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", clean(text, 2000))


def _code(text: str) -> str:
    return clean(text, 500).replace("`", "'")


def _block(text: str) -> list[str]:
    return ["```text", clean(text, 500).replace("```", "'''"), "```"]
