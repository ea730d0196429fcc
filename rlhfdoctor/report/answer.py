"""The answer on one screen: verdict, reasons, the next command; what does not fit is left to `--all`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from rich.text import Text

from rlhfdoctor.i18n.message import NOTHING, Message, joined, plural, say
from rlhfdoctor.report.composed import composed
from rlhfdoctor.report.next_step import are_mixed, next_command, next_step, writable
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.phrasing import VERDICTS, freed, headline, killed, place, sentence, vanished
from rlhfdoctor.report.safety import COLOURS, EXPLAINED
from rlhfdoctor.report.sections.coverage import coverage_says
from rlhfdoctor.report.sections.differences import describe
from rlhfdoctor.report.sections.findings import cost, patch_lines
from rlhfdoctor.report.sections.settle import wanted
from rlhfdoctor.report.sections.warnings import warnings
from rlhfdoctor.report.shown import roots, worth_showing
from rlhfdoctor.types import Death, Event, Finding, Incident, Quote
from rlhfdoctor.units import show_confidence

ROWS = 22
"""Of the smallest terminal that people work in."""
STYLES = {"cause": "bold red", "undecided": "bold yellow", "healthy": "bold green", "inconclusive": "bold yellow"}
_LINES, _RIVALS = 3, 2


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that are shown together or not at all."""

    lines: Sequence[Text]
    rank: int = 0
    """0: always; others in ascending order, as long as there is room."""
    names_finding: bool = False


def answer(incident: Incident, page: Page) -> list[Text]:
    """The lines of the screen; a finding that has no room is named among those that are also possible."""
    shown = worth_showing(incident)
    while True:
        blocks = list(_blocks(incident, shown, page))
        kept = fitted(blocks)
        if len(shown) <= 1 or all(block in kept for block in blocks if block.names_finding):
            return [line for block in kept for line in block.lines]
        shown = shown[:-1]


def fitted(blocks: Sequence[Block], rows: int = ROWS) -> list[Block]:
    """Those that fit into so many rows, in their order."""
    left = rows - sum(len(block.lines) for block in blocks if not block.rank)
    kept = {number for number, block in enumerate(blocks) if not block.rank}
    for number in sorted(set(range(len(blocks))) - kept, key=lambda number: blocks[number].rank):
        if len(blocks[number].lines) <= left:
            left -= len(blocks[number].lines)
            kept.add(number)
    return [blocks[number] for number in sorted(kept)]


def _blocks(incident: Incident, shown: Sequence[Finding], page: Page) -> Iterator[Block]:
    """The blocks of the screen from top to bottom."""
    yield from _verdict(incident, page)
    yield from _doubts(incident, page)
    for number, finding in enumerate(shown):
        is_cause = incident.verdict == "cause"
        yield from _cause(incident, finding, page) if is_cause else _candidate(incident, finding, page, number)
    yield from _settle(incident, page)
    yield Block([Text()])
    yield from _rest(incident, shown, page)
    yield from _next(incident, page)


def _verdict(incident: Incident, page: Page) -> Iterator[Block]:
    """What ended whom, the line that shows it, and the incident in one sentence."""
    t, style, death = page.words, STYLES[incident.verdict], incident.death
    if incident.verdict == "cause":
        label = t(VERDICTS["cause"]) + "  "
        yield Block(page.lines((t(headline(incident)), "bold"), first=label, most=2, edge=style))
    else:
        yield Block(page.lines((t(headline(incident)), style), first="", most=2))
    if death is not None:
        yield Block(page.lines((t(killed(incident)), ""), most=3))
        if death.event is not None:
            yield Block(_quoted(death.event, page))
        if vanished(death):
            yield Block(page.lines((t(vanished(death)), "dim"), most=3), rank=2 if incident.verdict == "cause" else 0)
    if composed(incident):
        yield Block(page.lines((sentence(composed(incident), t), ""), most=3))
    if death is None and incident.coverage.read:
        yield Block(page.lines((t(coverage_says(incident)), "dim"), most=4))
    for number, event in enumerate(incident.unrecognised[:_LINES]):
        yield Block(_quoted(event, page), rank=1 if number == 0 and death is None else 4)


def _quoted(event: Event, page: Page) -> list[Text]:
    return [*page.quoted_lines("  --> ", str(event.origin), "cyan"), *page.quoted_lines("   | ", event.text)]


def _doubts(incident: Incident, page: Page) -> Iterator[Block]:
    """What the verdict may be wrong about; files that differ from the log; what could not be read."""
    t, found = page.words, incident.differences.settings
    for warning in warnings(incident):
        yield Block(page.lines((t(warning), "yellow"), most=4))
    if found:
        says = say("file and log differ, and the log is what ran: {difference}", difference=describe(found[0]))
        yield Block(page.lines((t(says), "yellow"), most=4), rank=1)
    if incident.gaps:
        gap, count = incident.gaps[0], len(incident.gaps)
        says = say("{what}: {why}", what=gap.what, why=gap.why)
        if count > 1:
            more = plural("{n} more source was not read whole", "{n} more sources were not read whole", count - 1)
            says = joined(says, more)
        yield Block(page.lines((t(says), "dim"), most=2), rank=1)


def _cause(incident: Incident, finding: Finding, page: Page) -> Iterator[Block]:
    """Why it is this cause, and what to change."""
    yield Block([Text(), *_name(finding, NOTHING, page)])
    summary = page.lines((page.words(finding.summary), ""), most=3)
    yield Block(summary, rank=2 if composed(incident) else 0)
    yield from _evidence(_telling(finding, incident.death), finding.against, page, ranks=(1, 1, 3, 4))
    yield from _changes(finding, page)


def _candidate(incident: Incident, finding: Finding, page: Page, number: int) -> Iterator[Block]:
    """A finding that may be the cause, or that is worth knowing."""
    yield Block([Text(), *_name(finding, finding.title, page)], rank=0 if number == 0 else 2, names_finding=True)
    yield Block(page.lines((page.words(finding.summary), ""), most=3), rank=3 + number)
    ranks = (2 + number,) if number else (1, 2, 4)
    yield from _evidence(_telling(finding, incident.death), finding.against, page, ranks)


def _name(finding: Finding, title: Message, page: Page) -> list[Text]:
    style = "bold red" if finding.confidence >= 0.5 else "bold yellow"
    parts = [(f"finding[{finding.cause}]", style), (f" {show_confidence(finding.confidence)}", "bold")]
    return page.lines(*parts, (f"  {page.words(title)}" if title else "", ""), first="", rest="   ", most=2)


def _telling(finding: Finding, death: Death | None) -> list[Quote]:
    """What speaks for it, each figure once; what only says again that the run died comes last."""
    shown = death.event.origin if death is not None and death.event is not None else None
    remarks = {dict(quote.says.arguments).get("remark", quote.says): quote for quote in reversed(finding.evidence)}
    return sorted(
        (quote for quote in finding.evidence if quote in remarks.values()),
        key=lambda q: shown is not None and (q.file, q.line) == (shown.file, shown.line) and not q.says.arguments,
    )


def _evidence(pro: Sequence[Quote], contra: Sequence[Quote], page: Page, ranks: Sequence[int]) -> Iterator[Block]:
    """What speaks for it, so much as there are ranks, and the first that speaks against it."""
    for quote, rank in zip(pro, ranks):
        yield Block(_told(quote, "   + ", "green", page), rank)
    for quote in contra[:1]:
        yield Block(_told(quote, "   - ", "red", page), ranks[0])


def _told(quote: Quote, sign: str, style: str, page: Page) -> list[Text]:
    where = f"  {PurePath(place(quote)).name}" if quote.file and quote.line is not None else ""
    return page.lines((page.words(quote.says), style), (where, "cyan"), first=sign, most=3)


def _changes(finding: Finding, page: Page) -> Iterator[Block]:
    """What helps, first what can be written; which published cures do nothing."""
    t, chosen = page.words, writable(finding)
    cures = sorted((p for p in finding.patches if not p.published), key=lambda patch: patch is not chosen)
    for number, patch in enumerate(cures):
        yield Block(patch_lines(patch, page), rank=3 if number else 0)
        says = " ".join(sentence(part, t) for part in (freed(patch), cost(patch)) if part)
        if says and number == 0:
            yield Block(page.lines((says, ""), first=" " * 9, most=2), rank=2)
    for number, patch in enumerate(p for p in finding.patches if p.published):
        yield Block(page.lines((t(patch.named), "dim"), most=2), rank=3 if number else 1)
    if cures:
        safety = cures[0].safety
        yield Block(page.lines((f"[{safety}] ", COLOURS[safety]), (t(EXPLAINED[safety]), "dim"), edge=""), rank=4)


def _settle(incident: Incident, page: Page) -> Iterator[Block]:
    """Where no cause is singled out: what would decide it."""
    if incident.verdict not in ("undecided", "inconclusive"):
        return
    for number, (settle, what) in enumerate(wanted(incident).items()):
        lines = page.lines((f"{page.words(what)}: {page.words(settle)}", ""), most=3)
        head = [Text(), Text(page.words(say("would settle it")), style="bold")] if number == 0 else []
        yield Block([*head, *lines], rank=3 if number else 0)


def _rest(incident: Incident, shown: Sequence[Finding], page: Page) -> Iterator[Block]:
    """What else may be, and how much more there is to read."""
    found = roots(incident)
    others = [f for f in found if f not in shown] if incident.death is not None else []
    rivals = tuple(f"{f.cause} {show_confidence(f.confidence)}" for f in others[:_RIVALS])
    counts = (
        plural("{n} echo", "{n} echoes", len(incident.findings) - len(found)),
        plural("{n} cause ruled out", "{n} causes ruled out", len(incident.ruled_out)),
    )
    more = joined(*(count for count in counts if dict(count.arguments)["n"]), by=", ")
    says = joined(
        say("also possible: {names:, }", names=rivals) if rivals else NOTHING,
        say("more with --all: {more}", more=more) if more else say("more with --all"),
    )
    yield Block(page.lines((page.words(says), "dim"), first="", rest="   ", most=2))


def _next(incident: Incident, page: Page) -> Iterator[Block]:
    """What to do now, and the command for it as the last line."""
    command = next_command(incident)
    if are_mixed(incident):
        step = next_step(incident)
    elif "--write" in command:
        step = say("make this change; without --write it is only shown, --revert undoes it")
    elif command[0].startswith("dmesg"):
        step = say("hand over the kernel's log of the node, too; reading it may take root")
    elif incident.verdict in ("undecided", "inconclusive") and wanted(incident):
        step = say("get one of these, or check by hand what is suspected")
    else:
        step = next_step(incident)
    yield Block(page.lines((page.words(say("now: {step}", step=step)), "bold"), first="", rest="   ", most=3))
    yield Block(page.command(command))
