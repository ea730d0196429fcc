"""The findings, best first: evidence on both sides, what is missing, what to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from rlhfdoctor.i18n.message import NOTHING, Language, Message, say
from rlhfdoctor.report.marked import code, fenced_diff, plain
from rlhfdoctor.report.next_step import patch_command
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.phrasing import NOT_SET, SAFETIES, change, freed, place, sentence
from rlhfdoctor.report.safety import COLOURS
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean, without_secrets
from rlhfdoctor.report.section import Section
from rlhfdoctor.report.shown import LEAST_CONFIDENCE, roots, worth_showing
from rlhfdoctor.types import Finding, Incident, Patch, Quote
from rlhfdoctor.units import show_confidence

if TYPE_CHECKING:
    from rlhfdoctor.charts import Chart

_SIDES: Mapping[str, Message] = {"log": say("log"), "evidence": say("computed"), "setting": say("setting")}


def _text(incident: Incident, page: Page) -> None:
    for index, finding in enumerate(roots(incident)):
        echoes = [f for f in incident.findings if f.explained_by == finding.cause]
        titled = index == 0 and incident.verdict == "cause"  # the headline is its title
        _finding(finding, echoes, page, title=NOTHING if titled else finding.title)


def _finding(finding: Finding, echoes: list[Finding], page: Page, title: Message) -> None:
    style = "red" if finding.confidence >= 0.5 else "yellow"
    page.head(
        (f"\nfinding[{finding.cause}]", f"bold {style}"),
        (f" {show_confidence(finding.confidence)}", "bold"),
        (f"  {page.words(title)}" if title else "", ""),
    )
    page.write(page.words(finding.summary))
    if finding.differs:
        page.write(page.words(say("difference: {differs}", differs=finding.differs)), "dim")
    for quote in finding.evidence:
        _quote(quote, "+", page)
    for quote in finding.against:
        _quote(quote, "-", page)
    for echo in echoes:
        page.write(page.words(say("explains {cause}: {title}", cause=echo.cause, title=echo.title)), "dim")
    for patch in finding.patches:
        _patch(patch, page)


def _quote(quote: Quote, sign: str, page: Page) -> None:
    page.write(page.words(quote.says), "green" if sign == "+" else "red", first=f"   {sign} ")
    if quote.file and (quote.file, quote.line) not in page.quoted:
        page.quoted.add((quote.file, quote.line))
        page.quote("     --> ", place(quote), "cyan")
        if quote.text:
            page.quote("      | ", quote.text, "dim")


def _patch(patch: Patch, page: Page) -> None:
    t = page.words
    page.print(patch_lines(patch, page))
    parts = (patch.effect, freed(patch), cost(patch), *patch.side_effects, patch.note)
    page.write(" ".join(sentence(part, t) for part in parts if part), first=" " * 9)
    for line in patch.diff.splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        page.head((f"      {clean(line, 400)}", colour))


def patch_lines(patch: Patch, page: Page) -> list[Text]:
    """The setting, its value before and after, and how safe that is."""
    t, values = page.words, change(patch)
    says = f"  {t(NOT_SET) if values[0] is None else values[0]} -> {values[1]}" if values else ""
    label = f"   {t(say('help'))}: "
    parts = ((t(patch.named) + says, "bold"), (f"  [{patch.safety}]", COLOURS[patch.safety]))
    return page.lines(*parts, first=label, rest=" " * 9, edge="bold green")


def cost(patch: Patch) -> Message:
    """What it costs; empty if nothing."""
    return say("Cost: {cost}", cost=patch.cost) if patch.cost else NOTHING


def _markdown(incident: Incident, t: Language) -> Iterator[str]:
    shown = _in_full(incident)
    for finding in incident.findings:
        if finding in shown or finding.explained_by is not None:
            yield from _marked(finding, t)
    remote = [f for f in roots(incident) if f not in shown]
    if remote:
        names = ", ".join(f"{f.cause} ({show_confidence(f.confidence)})" for f in remote)
        yield from (f"{t(say('Less likely'))}: {names}", "")


def _in_full(incident: Incident) -> list[Finding]:
    """Those that are not only named: the likely ones, and where nothing is singled out, what the terminal shows."""
    candidates = worth_showing(incident)
    return [f for f in roots(incident) if f.confidence >= LEAST_CONFIDENCE or f in candidates]


def _marked(finding: Finding, t: Language) -> list[str]:
    if finding.explained_by is not None:
        return [f"- {t(say('echo of'))} **{finding.explained_by}**: {finding.cause} ({plain(t(finding.title))})", ""]
    lines = [
        f"### {finding.cause} ({show_confidence(finding.confidence)}): {plain(t(finding.title))}",
        "",
        plain(t(finding.summary)),
        "",
    ]
    lines += (
        [_marked_quote(say("for"), q, t) for q in finding.evidence]
        + [_marked_quote(say("against"), q, t) for q in finding.against]
        + [""]
    )
    for patch in finding.patches:
        values = change(patch)
        says = f": `{code(t(NOT_SET) if values[0] is None else values[0])}` → `{code(values[1])}`" if values else ""
        effect = " ".join(plain(sentence(part, t)) for part in (patch.effect, patch.note) if part)
        lines += [f"**{plain(t(patch.named))}**{says} ({t(SAFETIES[patch.safety])}). {effect}", ""]
        if patch.diff:
            lines += fenced_diff(patch.diff)
    if finding.missing:
        lines += [f"{t(say('Would settle it'))}:", ""]
        lines += [f"- {plain(t(m.what))}: `{code(t(m.settle))}`" for m in finding.missing] + [""]
    return lines


def _marked_quote(side: Message, quote: Quote, t: Language) -> str:
    where = f" (`{code(place(quote))}`)" if quote.file else ""
    return f"- {t(side)}: {plain(t(quote.says))}{where}"


def _html(incident: Incident, _charts: Sequence[Chart], t: Language) -> dict[str, Any]:
    found = roots(incident)
    places = {(e.origin.file, e.origin.line): place for place, e in reversed([*enumerate(incident.timeline)])}
    shown = _in_full(incident)
    return {
        "findings": shown,
        "remote": [f for f in found if f not in shown],
        "echoes": [f for f in incident.findings if f.explained_by is not None],
        "freed": freed,
        "command": lambda finding, patch: " ".join(patch_command(incident, finding, patch)),
        "safety": lambda patch: t(SAFETIES[patch.safety]),
        "not_set": t(NOT_SET),
        "change": change,
        "where": place,
        "number": lambda quote: places.get((quote.file, quote.line)) if quote.file else None,
        "side": lambda quote: t(_SIDES[quote.kind]),
    }


def _plain_finding(finding: Finding) -> dict[str, Any]:
    return {
        "cause": finding.cause,
        "confidence": finding.confidence,
        "explained_by": finding.explained_by,
        **said(title=finding.title, summary=finding.summary),
        "evidence": [_plain_quote(quote) for quote in finding.evidence],
        "against": [_plain_quote(quote) for quote in finding.against],
        "missing": [said(what=m.what, settle=m.settle) for m in finding.missing],
        "patches": [_plain_patch(patch) for patch in finding.patches],
    }


def _plain_quote(quote: Quote) -> dict[str, Any]:
    return {
        "kind": quote.kind,
        "file": quote.file,
        "line": quote.line,
        "text": None if quote.text is None else clean(quote.text, 2000),
    } | said(says=quote.says)


def _plain_patch(patch: Patch) -> dict[str, Any]:
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
        "diff": without_secrets(patch.diff),
    }


SECTION = Section(
    name="findings",
    place=10,
    title=say("findings"),
    text=_text,
    markdown=_markdown,
    html=_html,
    to_dict=lambda incident: [_plain_finding(finding) for finding in incident.findings],
)
