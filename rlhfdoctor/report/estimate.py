"""An estimate on a terminal: a table of roles by phases for each place, against its limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlhfdoctor.budget.types import Estimate, Limit, Need, Place
from rlhfdoctor.i18n.message import ENGLISH, Language, Message, joined, plural, quoted, say, term
from rlhfdoctor.report.estimate_verdict import (
    ERROR,
    is_short,
    limit_name,
    peak_of,
    phase_name,
    sentence,
    verdict,
    worst,
)
from rlhfdoctor.report.page import Page
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Patch
from rlhfdoctor.units import show_bytes

_PLACES: Mapping[Place, Message] = {
    "host": say("host memory"),
    "shm": quoted("/dev/shm"),
    "gpu": say("one GPU, the fullest"),
}
_PART_COUNT = 8


def render(found: Estimate, console: Console, t: Language = ENGLISH) -> None:
    """Prints the tables, the largest parts of each peak, and what was assumed."""
    style = {"over": "bold red", "trap": "bold red", "tight": "bold yellow", "fits": "bold green", "unknown": "bold"}[
        verdict(found)
    ]
    console.print(Text(clean(t(sentence(found)), 4000), style=style))
    version = found.version or say("(version unknown)")
    head = say("{framework} {version}; {node}", framework=found.framework, version=version, node=found.node)
    console.print(Text(clean(t(head)), style="dim"))
    for place in _PLACES:
        if any(need.place == place for need in found.needs):
            console.print()
            console.print(_table(found, place, t))
            for limit in found.limits:
                if limit.place == place:
                    console.print(_against(found, limit, t))
            _parts(found, place, console, t)
    hazards = tuple(
        say("{phase}: {trap} (doctor rules explain {cause})", phase=phase_name(h.phase), trap=h.says, cause=h.cause)
        for h in found.hazards
    )
    for title, lines in (
        (say("traps"), hazards),
        (say("assumed"), found.assumed),
        (say("not read"), tuple(say("{what}: {why}", what=g.what, why=g.why) for g in found.gaps)),
    ):
        if lines:
            console.print(Text(f"\n{t(title)}", style="bold"))
            for line in lines:
                console.print(Padding(Text(clean(t(line))), (0, 0, 0, 3)))


def _table(found: Estimate, place: Place, t: Language) -> Table:
    table = Table(
        title=t(_PLACES[place]),
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
    )
    table.add_column("")
    totals = {phase: found.of(place, phase) for phase in found.phases}
    peak = max(totals, key=lambda phase: totals[phase])
    for phase in found.phases:
        table.add_column(
            Text(t(phase_name(phase)), style="bold" if phase == peak else ""), justify="right", no_wrap=True
        )
    for role in found.roles:
        sizes = [found.of(place, phase, role) for phase in found.phases]
        if any(sizes):
            counts = {
                need.count for need in found.needs if need.role == role and need.place == place and not need.transient
            }
            many = f" x{max(counts)}" if counts and max(counts) > 1 and place != "gpu" else ""
            table.add_row(f"{t(term(role))}{many}", *(show_bytes(size) if size else "-" for size in sizes))
    cells = [
        Text(show_bytes(size), style="bold reverse" if phase == peak else "bold") for phase, size in totals.items()
    ]
    table.add_row(Text(t(say("together")), style="bold"), *cells)
    for limit in found.limits:
        if limit.place == place and limit.bytes:
            table.add_row(
                Text(t(say("of {limit}", limit=limit_name(limit))), style="dim"),
                *(_of_limit(found, limit, p) for p in found.phases),
            )
    sums = [sum(found.of(place, phase, role) for role in found.roles) for phase in found.phases]
    if any(whole > totals[phase] for whole, phase in zip(sums, found.phases, strict=True)):
        table.caption = Text(
            t(
                say(
                    "each role at its own peak; roles on one GPU or in one process take turns, so that together they "
                    "need less than the sum"
                )
            ),
            style="dim",
        )
        table.caption_justify = "left"
    return table


def _of_limit(found: Estimate, limit: Limit, phase: str) -> Text:
    """How much of a limit a phase takes."""
    style = {"over": "red", "tight": "yellow", "fits": "green"}.get(worst(found, (phase,), (limit,)), "")
    return Text(f"{100 * found.used(limit, phase) / (limit.bytes or 1):.0f} %", style=style)


def _against(found: Estimate, limit: Limit, t: Language) -> Text:
    phase, peak = found.peak(limit)
    if limit.bytes is None:
        return Text(clean(t(say("{limit}: {basis}", limit=_label(limit), basis=limit.basis))), style="dim")
    left = limit.bytes - peak
    surely = found.breaks(limit) is not None
    if left < 0:
        how = say("{more:bytes} too much", more=-left)
        how = how if surely else say("{how} if all sequences are at their longest", how=how)
    else:
        how = say("{left:bytes} left", left=left)
    style = "red" if surely else "yellow" if left < 0 else "yellow" if left < limit.bytes * ERROR else "green"
    size = say("{limit} {size:bytes}: ", limit=_label(limit), size=limit.bytes)
    where = say("{how} in {phase}", how=how, phase=phase_name(phase))
    return Text.assemble(t(size), (t(where), style), "  ", (clean(t(limit.basis)), "dim"))


def _label(limit: Limit) -> Message:
    return {"container": say("container"), "node": say("node")}.get(limit.name, quoted(limit.name))


def _parts(found: Estimate, place: Place, console: Console, t: Language) -> None:
    """What the peak is made of, the largest first; on GPUs those of the fullest."""
    phase, _ = peak_of(found, place)
    rows = [need for need in found.needs if need.place == place and phase in need.phases]
    if place == "gpu":
        labels = {need.gpus for need in rows}
        fullest = max(
            labels, key=lambda label: replace(found, needs=tuple(n for n in rows if n.gpus == label)).of("gpu", phase)
        )
        rows = [need for need in rows if need.gpus == fullest]
    rows = sorted(_together(rows, place), key=lambda need: -_size(need))
    console.print(Text(t(say("in {phase}", phase=phase_name(phase))) + ":", style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    for need in rows[:_PART_COUNT]:
        many = f" ({need.count} x {show_bytes(need.bytes)})" if need.count > 1 and place != "gpu" else ""
        what = joined(need.what, *_remarks(need), by=", ")
        table.add_row(show_bytes(_size(need)), Text.assemble(f"{t(term(need.role))}: {t(what)}", (many, "dim")))
    rest = sum(_size(need) for need in rows[_PART_COUNT:])
    if rest:
        table.add_row(
            show_bytes(rest),
            Text(t(plural("{n} smaller one", "{n} smaller ones", len(rows) - _PART_COUNT)), style="dim"),
        )
    console.print(table)


def _remarks(need: Need) -> Iterator[Message]:
    if need.pinned:
        yield say("page-locked")
    if need.at_longest:
        yield say("if all sequences are at their longest")
    elif need.transient:
        yield say("for a moment")


def _together(rows: Sequence[Need], place: Place) -> list[Need]:
    """What is there at the same time: of the moments of roles that take turns, the largest."""
    sums: dict[tuple[str, str, str], int] = {}
    for need in rows:
        if need.transient:
            key = ("" if place == "gpu" else need.process, need.role, need.transient)
            sums[key] = sums.get(key, 0) + _size(need)
    best = {process: max((k for k in sums if k[0] == process), key=lambda k: sums[k]) for process, _, _ in sums}
    return [
        n
        for n in rows
        if not n.transient
        or best["" if place == "gpu" else n.process] == ("" if place == "gpu" else n.process, n.role, n.transient)
    ]


def _size(need: Need) -> int:
    return need.bytes if need.place == "gpu" else need.bytes * need.count


def render_suggestion(after: Estimate, patches: Sequence[Patch], console: Console, t: Language = ENGLISH) -> None:
    """Prints the smallest change that fits."""
    title = say("smallest change that fits, by the estimate")
    if patches and verdict(after) != "fits":
        title = say("smallest change that helps, by the estimate")
    console.print(Text("\n" + t(title), style="bold"))
    if not patches:
        console.print(Padding(Text(t(_no_change(after))), (0, 0, 0, 3)))
        return
    for patch in patches:
        console.print(
            Text.assemble(
                ("   ", ""),
                (f"{patch.spelled}: {patch.before} -> {patch.after}", "bold"),
                (f"  [{patch.safety}]", "dim"),
                f"  {t(patch.cost)}",
            )
        )
    console.print(Padding(Text(t(say("then: {outcome}", outcome=sentence(after)))), (0, 0, 0, 3)))
    for diff in dict.fromkeys(patch.diff for patch in patches if patch.diff):
        console.print(Text(clean_diff(diff)), soft_wrap=True)


def suggestion(after: Estimate, patches: Sequence[Patch]) -> Message:
    """The same in one sentence."""
    if not patches:
        return _no_change(after)
    changes = tuple(f"{patch.spelled}: {patch.before} -> {patch.after}" for patch in patches)
    return say("change {changes:, }; then: {outcome}", changes=changes, outcome=sentence(after))


def render_next(step: Message, command: Sequence[str], console: Console, t: Language = ENGLISH) -> None:
    """Prints what to do now, and the command for it as the last line."""
    page = Page(console, t)
    console.print()
    page.print([*page.lines((t(say("now: {step}", step=step)), "bold"), first="", rest="   "), *page.command(command)])


def _no_change(after: Estimate) -> Message:
    """Why no change of the known ones is proposed."""
    if not is_short(after):
        causes = tuple(dict.fromkeys(hazard.cause for hazard in after.hazards))
        if causes:
            return say("none of the known ones avoids the trap (doctor rules explain {causes})", causes=causes)
        return say("none is needed")
    short = {
        (limit.place, phase)
        for limit in after.limits
        for phase in after.phases
        if limit.bytes and after.used(limit, phase) > limit.bytes
    }
    others = say("more nodes, or GPUs and host with more memory")
    if short == {("host", "resume")}:
        others = say(
            "start from the saved weights alone, without the optimizer's states, or on a host with more memory or swap"
        )
    elif ("host", "resume") in short:
        others = say(
            "{others}; more nodes from the saved weights only, as a checkpoint's shards are for as many ranks as wrote "
            "it",
            others=others,
        )
    container = next((limit for limit in after.limits if limit.name == "container" and limit.bytes), None)
    node = next((limit.bytes for limit in after.limits if limit.name == "node"), None)
    peak = after.peak(container)[1] if container is not None else 0
    if container is not None and (container.bytes or 0) < peak <= (node or peak):
        others = say(
            "a limit of the container of {size:bytes} or more, if the node has it; or {others}",
            size=round(peak * (1 + ERROR)),
            others=others,
        )
    return say("none of the known ones is enough: {others}", others=others)


def clean_diff(text: str) -> str:
    """A diff without control characters, lines kept."""
    return "\n".join(clean(line, 4000) for line in text.splitlines())
