"""The terminal report, in the form of a good compiler diagnostic; one screen for the usual case."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from rlhfdoctor.report.clean import clean
from rlhfdoctor.report.story import headline, killed
from rlhfdoctor.types import Finding, Incident, Patch, Quote
from rlhfdoctor.units import show_bytes

_STYLE = {"cause": "bold red", "undecided": "bold yellow", "healthy": "bold green"}
_SAFETY = {"safe": "green", "consent": "yellow", "show": "magenta"}
_SAFETY_SAYS = {
    "safe": "safe: changes neither what is learned nor whether it runs",
    "consent": "needs your consent: it costs speed, memory elsewhere, or precision",
    "show": "shown only, never written: it edits code or changes what is learned",
}


def render(incident: Incident, console: Console, all_findings: bool = False) -> None:
    """Prints the report. Text from logs is cleaned of control characters first."""
    console.print(
        Text.assemble((f"{incident.verdict}", _STYLE[incident.verdict]), ("  ", ""), (headline(incident), "bold")) if incident.verdict == "cause"
        else Text(headline(incident), style=_STYLE[incident.verdict])
    )  # fmt: skip
    if incident.death is not None:
        _death(incident, console)
    if incident.framework is not None:
        framework = incident.framework
        version = framework.version or (
            f"{framework.since or 'any'} to {framework.until or 'newest'} by its spellings" if framework.since or framework.until else "version unknown"
        )  # fmt: skip
        console.print(Text(f"   {framework.name} {version}  ({framework.basis})", style="dim"))
    roots = [f for f in incident.findings if f.explained_by is None]
    shown = roots if all_findings else _worth_showing(incident, roots)
    for index, finding in enumerate(shown):
        echoes = [f for f in incident.findings if f.explained_by == finding.cause]
        _finding(finding, echoes, console, full=index == 0 or all_findings)
    if len(roots) > len(shown):
        names = ", ".join(f"{f.cause} {f.confidence:.2f}" for f in roots[len(shown) :][:5])
        console.print(Text(f"\nless likely: {names}  (--all shows them)", style="dim"))
    if incident.ruled_out:
        console.print(Text("\nruled out", style="bold"))
        for item in incident.ruled_out[:5]:
            console.print(Text(f"   {item.cause}: {clean(item.because)}"))
    if incident.ledger:
        _ledger(incident, console)
    _gaps(incident, roots, console)


def _worth_showing(incident: Incident, roots: list[Finding]) -> list[Finding]:
    if incident.verdict == "cause":
        close = [f for f in roots[1:3] if f.confidence >= 0.4]
        return roots[:1] + close
    return roots[:3]


def _death(incident: Incident, console: Console) -> None:
    console.print(Text(f"   {clean(killed(incident))}"))
    event = incident.death.event if incident.death else None
    if event is not None:
        console.print(Text.assemble(("  --> ", "blue"), (str(event.origin), "cyan")))
        console.print(Text.assemble(("   | ", "blue"), (clean(event.text, 220), "")))


def _finding(finding: Finding, echoes: list[Finding], console: Console, full: bool) -> None:
    style = "red" if finding.confidence >= 0.5 else "yellow"
    console.print(
        Text.assemble(("\n", ""), (f"finding[{finding.cause}]", f"bold {style}"), (f" {finding.confidence:.2f}", "bold"), (f"  {finding.title}", ""))
    )  # fmt: skip
    console.print(Text(f"   {clean(finding.summary, 600)}"))
    if full or finding.evidence:
        for quote in finding.evidence[: 6 if full else 2]:
            _quote(quote, "for", console)
        for quote in finding.against[: 3 if full else 1]:
            _quote(quote, "against", console)
    for echo in echoes:
        console.print(Text(f"   explains: {echo.cause} ({echo.title})", style="dim"))
    if full:
        for patch in finding.patches:
            _patch(patch, console)
    elif finding.patches:
        console.print(Text(f"   help: {', '.join(p.spelled for p in finding.patches[:3])}", style="dim"))


def _quote(quote: Quote, side: str, console: Console) -> None:
    mark = ("   + ", "green") if side == "for" else ("   - ", "red")
    console.print(Text.assemble(mark, (clean(quote.says, 300), "")))
    if quote.file:
        where = quote.file if quote.line is None else f"{quote.file}:{quote.line}"
        console.print(Text.assemble(("     --> ", "blue"), (clean(where), "cyan")))
        if quote.text:
            console.print(Text.assemble(("      | ", "blue"), (clean(quote.text, 180), "dim")))


def _patch(patch: Patch, console: Console) -> None:
    change = (
        f"{patch.before if patch.before is not None else '(not set)'} -> {patch.after}"
        if not patch.spelled.endswith(":")
        else ""
    )
    console.print(Text.assemble(("   help: ", "bold green"), (f"{clean(patch.spelled)}  {clean(change)}", "bold"), (f"  [{patch.safety}]", _SAFETY[patch.safety])))  # fmt: skip
    for line in (patch.effect, patch.cost and f"cost: {patch.cost}", *patch.side_effects, patch.note):
        if line:
            console.print(Text(f"         {clean(line, 400)}"))
    for line in patch.diff.splitlines():
        colour = "green" if line.startswith("+") else "red" if line.startswith("-") else "dim"
        console.print(Text(f"      {clean(line, 220)}", style=colour), soft_wrap=True)


def _ledger(incident: Incident, console: Console) -> None:
    console.print(Text("\nledger", style="bold"))
    for part in incident.ledger[:8]:
        console.print(Text(f"   {show_bytes(part.bytes):>10}  {clean(part.part)}  ({clean(part.basis)})"))


def _gaps(incident: Incident, roots: list[Finding], console: Console) -> None:
    wanted = {(m.what, m.settle) for f in roots[:3] for m in f.missing}
    if incident.verdict != "healthy" and not roots:
        wanted = {("what killed the process", "dmesg -T | grep -iE 'oom|killed process'   (on the node, as root)")}
    if wanted and incident.verdict != "healthy":
        console.print(Text("\nwould settle it" if incident.verdict == "undecided" else "\nnot known", style="bold"))
        for what, settle in sorted(wanted)[:5]:
            console.print(Text.assemble(("   ", ""), (clean(what), ""), (": ", ""), (clean(settle), "bold")))
    if incident.gaps:
        console.print(Text(f"\nnot read ({len(incident.gaps)})", style="bold"))
        for gap in incident.gaps[:5]:
            console.print(Text(f"   {clean(gap.what)}: {clean(gap.why)}", style="dim"))
    patches = [p for f in roots[:1] for p in f.patches]
    classes = [c for c in ("safe", "consent", "show") if any(p.safety == c for p in patches)]
    if classes and incident.verdict == "cause":
        console.print()
        for name in classes:
            console.print(Text.assemble((f"[{name}]", _SAFETY[name]), (f" {_SAFETY_SAYS[name]}", "dim")))
        if any(p.diff for p in patches):
            source = clean(incident.sources[0]) if incident.sources else "PATH"
            console.print(Text(f"write it: doctor patch {source} --write   (--consent {roots[0].cause} for the others; --revert undoes)", style="dim"))  # fmt: skip
