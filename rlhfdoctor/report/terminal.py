"""The terminal report, in the form of a good compiler diagnostic; one screen for the usual case."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from rlhfdoctor.i18n.message import ENGLISH, NOTHING, Language, Message, quoted, say
from rlhfdoctor.report.phrasing import NOT_SET, VANISHED, VERDICTS, freed, headline, killed, known_version, sentence
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Finding, Incident, Part, Patch, Quote
from rlhfdoctor.units import show_bytes, show_confidence

_STYLE = {"cause": "bold red", "undecided": "bold yellow", "healthy": "bold green"}
_SAFETY = {"safe": "green", "consent": "yellow", "show": "magenta"}
_SAFETY_SAYS = {
    "safe": say("changes neither what is learned nor whether it runs"),
    "consent": say("needs your consent: it costs speed, memory elsewhere, or precision"),
    "show": say("shown only, never written: an edit of code, or it changes what is learned"),
}
_EVIDENCE_COUNT = 5
_LIKELY, _POSSIBLE = -0.4, -1.4
"""Scores (log-odds) from which a runner-up is shown in full, and from which it is shown at all."""
_DIFF_COUNT = 3
_LEDGER_COUNT = 7


class _Page:
    """Prints lines that fit: sentences wrap behind a hanging indent, quoted lines are cut."""

    def __init__(self, console: Console, everything: bool, words: Language) -> None:
        self.console, self.words = console, words
        self.everything = everything
        self.quoted: set[tuple[str | None, int | None]] = set()

    def write(self, text: str, style: str = "", first: str = "   ", rest: str | None = None) -> None:
        """A sentence."""
        indent = " " * len(first) if rest is None else rest
        lines = textwrap.wrap(clean(text, 4000), max(self.console.width - len(indent), 20), break_on_hyphens=False) or [
            ""
        ]
        for number, line in enumerate(lines):
            self.console.print(Text(f"{indent if number else first}{line}", style=style), soft_wrap=True)

    def quote(self, prefix: str, text: str, style: str = "") -> None:
        """A line of a file, cut at the screen's edge."""
        width = max(self.console.width - len(prefix), 20)
        self.console.print(Text.assemble((prefix, "blue"), (clean(text, width), style)), soft_wrap=True)

    def head(self, *parts: tuple[str, str]) -> None:
        """A line of its own."""
        self.console.print(Text.assemble(*parts), soft_wrap=True)


def render(incident: Incident, console: Console, all_findings: bool = False, words: Language = ENGLISH) -> None:
    """Prints the report in the language of `words`. Text from logs is cleaned of control characters first."""
    t = words
    page = _Page(console, all_findings, t)
    style = _STYLE[incident.verdict]
    if incident.verdict == "cause":
        page.head((t(VERDICTS["cause"]), style), ("  ", ""), (t(headline(incident)), "bold"))
    else:
        page.head((t(headline(incident)), style))
    if incident.death is not None:
        page.write(t(killed(incident)))
        event = incident.death.event
        if event is not None:
            page.quote("  --> ", str(event.origin), "cyan")
            page.quote("   | ", event.text)
            page.quoted.add((event.origin.file, event.origin.line))
    if incident.death is not None and incident.death.killer == "sigkill-unknown":
        page.write(t(VANISHED), "dim")
    if incident.framework is not None:
        page.write(f"{t(known_version(incident.framework))}  ({t(incident.framework.basis)})", "dim")
    roots = [f for f in incident.findings if f.explained_by is None]
    shown = roots if all_findings else _worth_showing(incident, roots)
    for index, finding in enumerate(shown):
        echoes = [f for f in incident.findings if f.explained_by == finding.cause]
        titled = index == 0 and incident.verdict == "cause"  # the headline is its title
        _finding(finding, echoes, page, full=index == 0 or all_findings, title=NOTHING if titled else finding.title)
    if len(roots) > len(shown):
        names = ", ".join(
            f"{f.cause} {show_confidence(f.confidence)}{f' ({t(f.differs)})' if f.differs else ''}"
            for f in roots[len(shown) :][:5]
        )
        page.head(("", ""))
        page.write(t(say("less likely: {names}  (--all shows them)", names=names)), "dim", first="")
    if incident.ruled_out:
        page.head(("\n" + t(say("ruled out")), "bold"))
        for item in incident.ruled_out if all_findings else incident.ruled_out[:4]:
            page.write(f"{item.cause}: {t(item.because)}")
    if incident.ledger:
        page.head(("\n" + t(say("ledger")), "bold"))
        for part, basis in _ledger(incident.ledger):
            shared = part.is_rest and part.bytes < 0
            name = say("counted twice (shared pages)") if shared else part.part
            size = abs(part.bytes) if shared else part.bytes
            page.write(f"{show_bytes(size):>10}  {t(name)}{f'  ({t(basis)})' if basis else ''}")
    _missing(incident, roots, page)
    _gaps(incident, page)
    _next_step(incident, shown[:1], page)


def _ledger(parts: Sequence[Part]) -> Iterator[tuple[Part, Message]]:
    """The largest parts and always the remainder; a basis is shown if it differs from the row above."""
    rest = [part for part in parts if part.is_rest or part.bytes < 0]
    before = NOTHING
    for part in [*[part for part in parts if part not in rest][:_LEDGER_COUNT], *rest]:
        yield part, NOTHING if part.basis == before else part.basis
        before = part.basis


def _worth_showing(incident: Incident, roots: list[Finding]) -> list[Finding]:
    if incident.verdict == "cause":
        return roots[:1] + [f for f in roots[1:3] if f.score >= _LIKELY]
    if incident.verdict == "healthy":
        return [f for f in roots[:2] if f.score >= 2 * _LIKELY]
    return [f for f in roots[:3] if f.score >= _POSSIBLE]


def _finding(finding: Finding, echoes: list[Finding], page: _Page, full: bool, title: Message) -> None:
    style = "red" if finding.confidence >= 0.5 else "yellow"
    page.head(
        (f"\nfinding[{finding.cause}]", f"bold {style}"),
        (f" {show_confidence(finding.confidence)}", "bold"),
        (f"  {page.words(title)}" if title else "", ""),
    )
    page.write(page.words(finding.summary))
    if finding.differs:
        page.write(page.words(say("difference: {differs}", differs=finding.differs)), "dim")
    count = len(finding.evidence) if page.everything else _EVIDENCE_COUNT if full else 2
    for quote in finding.evidence[:count]:
        _quote(quote, "+", page, full)
    for quote in finding.against[: count if full else 1]:
        _quote(quote, "-", page, full)
    for echo in echoes:
        page.write(page.words(say("explains {cause}: {title}", cause=echo.cause, title=echo.title)), "dim")
    if not full:
        if finding.patches:
            names = ", ".join(clean(page.words(p.named)) for p in finding.patches[:3])
            page.write(page.words(say("help: {names}  (--all shows the diffs)", names=names)), "dim")
        return
    diffs = 0
    for patch in finding.patches:
        wanted = page.everything or (patch.safety != "show" and diffs < _DIFF_COUNT)
        diffs += wanted and bool(patch.diff)
        _patch(patch, page, wanted)


def _quote(quote: Quote, sign: str, page: _Page, full: bool) -> None:
    page.write(page.words(quote.says), "green" if sign == "+" else "red", first=f"   {sign} ")
    if quote.file and full and (quote.file, quote.line) not in page.quoted:
        page.quoted.add((quote.file, quote.line))
        where = quote.file if quote.line is None else f"{quote.file}:{quote.line}"
        page.quote("     --> ", where, "cyan")
        if quote.text:
            page.quote("      | ", quote.text, "dim")


def _patch(patch: Patch, page: _Page, with_diff: bool) -> None:
    t = page.words
    before = t(NOT_SET) if patch.before is None else patch.before
    change = f"  {before} -> {patch.after}" if patch.after not in (None, "null") else ""
    page.head(
        (f"   {t(say('help'))}: ", "bold green"),
        (clean(t(patch.named) + change, 200), "bold"),
        (f"  [{patch.safety}]", _SAFETY[patch.safety]),
    )
    cost = say("Cost: {cost}", cost=patch.cost) if patch.cost else NOTHING
    page.write(
        " ".join(
            sentence(part, t) for part in (patch.effect, freed(patch), cost, *patch.side_effects, patch.note) if part
        ),
        first="         ",
    )
    if not with_diff:
        return
    for line in patch.diff.splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        page.head((f"      {clean(line, 400)}", colour))


def _missing(incident: Incident, roots: list[Finding], page: _Page) -> None:
    if incident.verdict == "healthy":
        return
    t = page.words
    likely = [f for f in roots[:3] if f.score >= _POSSIBLE]
    wanted = {m.settle: m.what for f in likely for m in f.missing}
    if not likely:
        wanted = {
            say("dmesg -T | grep -iE 'oom|killed process'   (as root on the node)"): say("what killed the process"),
            quoted("cat /sys/fs/cgroup/memory.max || cat /sys/fs/cgroup/memory/memory.limit_in_bytes"): say(
                "the job's memory limit"
            ),
            say("the end of the dead process's own log (worker-*.err, python-core-worker-*.log)"): say(
                "its last words"
            ),
        }
    if wanted:
        page.head(("\n" + t(say("would settle it") if incident.verdict == "undecided" else say("not known")), "bold"))
        for settle, what in list(wanted.items())[:5]:
            page.write(f"{t(what)}: {t(settle)}")


def _gaps(incident: Incident, page: _Page) -> None:
    if not incident.gaps:
        return
    page.head(("\n" + page.words(say("not read ({gaps})", gaps=len(incident.gaps))), "bold"))
    for gap in incident.gaps if page.everything else incident.gaps[:5]:
        page.write(f"{page.words(gap.what)}: {page.words(gap.why)}", "dim")


def _next_step(incident: Incident, first: list[Finding], page: _Page) -> None:
    patches = [p for f in first for p in f.patches]
    if not patches or incident.verdict != "cause":
        return
    t = page.words
    page.head(("", ""))
    for name in ("safe", "consent", "show"):
        if any(p.safety == name for p in patches):
            page.head((f"[{name}]", _SAFETY[name]), (f" {t(_SAFETY_SAYS[name])}", "dim"))
    command = f"doctor patch {' '.join(clean(source) for source in incident.sources)} --write"
    if any(p.diff and p.safety == "safe" for p in patches):
        page.head(
            (t(say("write the safe ones: ")), "dim"), (command, "bold"), (t(say("   (--revert takes it back)")), "dim")
        )
    if any(p.diff and p.safety == "consent" for p in patches):
        page.head(
            (t(say("and with consent:    ")), "dim"),
            (f"{command} --consent {first[0].cause}", "bold"),
            (t(say("   (--revert takes it back)")), "dim"),
        )
