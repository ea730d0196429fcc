"""An estimate for people and for machines: a table of roles and phases for each place, against its limits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rlhfdoctor.estimates import Estimate, Limit, Need, Place
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Patch
from rlhfdoctor.units import show_bytes, show_ratio

SCHEMA = "rlhfdoctor.estimate/1"
ERROR = 0.10
"""Nine of ten measured peaks are no further from the estimate (tests/bench/BUDGET.md)."""
_PLACES: Mapping[Place, str] = {"host": "host memory", "shm": "/dev/shm", "gpu": "one GPU, the fullest"}
_OF: Mapping[Place, str] = {"host": "of host memory", "shm": "of /dev/shm", "gpu": "on the fullest GPU"}
_PHASES = {"score": "log-probs", "weight_sync": "weight sync", "checkpoint": "save", "final_save": "final save"}
_PART_COUNT = 8


def verdict(found: Estimate) -> str:
    """One word, the worst first.

    `over` (will not fit, or probably not), `trap` (the settings lead to a known failure, regardless of memory), `tight` (fits by less
    than the known error, or only while sequences stay short), `fits`, `unknown` (no limit is known).
    """
    known = [limit for limit in found.limits if limit.bytes]
    if any(found.breaks(limit) for limit in known):
        return "over"
    if found.hazards:
        return "trap"
    return "unknown" if not known else _in_words(found, found.phases)


def by_phase(found: Estimate) -> dict[str, str]:
    """`over`, `tight`, `fits` or `unknown` for each phase by itself."""
    return {phase: _in_words(found, (phase,)) for phase in found.phases}


def _in_words(found: Estimate, phases: Sequence[str], limits: Sequence[Limit] | None = None) -> str:
    """The worst verdict of these phases against the limits."""
    known = [limit for limit in (found.limits if limits is None else limits) if limit.bytes]
    if not known:
        return "unknown"
    if any(found.used(limit, phase, surely=True) > (limit.bytes or 0) for limit in known for phase in phases):
        return "over"
    return "tight" if any(found.share(limit, *phases) > 1 / (1 + ERROR) for limit in known) else "fits"


def sentence(found: Estimate) -> str:
    """The result in one sentence, as a job script would log it."""
    if not found.hazards:
        return _of_memory(found)
    memory, traps = _of_memory(replace(found, hazards=())), [f"in {_phase(h.phase)}, {h.says}" for h in found.hazards]
    if verdict(found) == "over":
        return f"{memory}; and a known trap: {'; '.join(traps)}"
    return f"a known trap: {'; '.join(traps)} (memory: {memory})"


def _of_memory(found: Estimate) -> str:
    known = [limit for limit in found.limits if limit.bytes]
    broken = [(limit, at) for limit in known if (at := found.breaks(limit))]
    if broken:
        certain = [pair for pair in broken if _surely_over(found, pair[0])]
        limit, (phase, size) = min(certain or broken, key=lambda pair: found.phases.index(pair[1][0]))
        last, most = found.peak(limit, surely=True)
        later = f"; at its peak, in {_phase(last)}, {show_bytes(most)}" if last != phase else ""
        if phase == "final_save":
            most, trains = max(
                ((found.used(limit, p), p) for p in found.phases if p != phase), key=lambda pair: pair[0]
            )
            later = f"; what comes before it takes {show_bytes(most)} at most, in {_phase(trains)}"
        word, doubt = (
            ("will not fit", "")
            if certain
            else ("will probably not fit", f"; the estimate may be off by {show_ratio(ERROR)}")
        )
        return f"{word}: {_phase(phase)} takes {show_bytes(size)} of the {limit.name}'s {show_bytes(limit.bytes or 0)}, {show_bytes(size - (limit.bytes or 0))} too much{later}{doubt}"
    if not known:
        places = [
            f"{show_bytes(highest[1])} {name}, in {_phase(highest[0])}"
            for place, name in _OF.items()
            if (highest := _peak_of(found, place))[1]
        ]
        return f"no limit is known (--host-memory, --shm, --gpu); at the peak {'; '.join(places)}"
    worst = max(known, key=found.share)
    phase, peak = found.peak(worst)
    most = worst.bytes or 1
    if peak > most:
        sure = found.peak(worst, surely=True)[1]
        return f"may not fit: {_phase(phase)} takes {show_bytes(peak)} of the {worst.name}'s {show_bytes(most)} if all sequences are at their longest, and {show_bytes(sure)} in any case"
    close = f"; the estimate may be off by {show_ratio(ERROR)}" if verdict(found) == "tight" else ""
    return f"{'too close to call' if close else 'fits'}: {_phase(phase)} takes {show_bytes(peak)} of the {worst.name}'s {show_bytes(most)}, {show_bytes(most - peak)} ({show_ratio((most - peak) / most)}) left{close}"


def _surely_over(found: Estimate, limit: Limit) -> bool:
    """Whether the limit is exceeded also if what is estimated, and not set, is smaller by the known error."""
    for phase in found.phases:
        exact = found.exact(limit, phase)
        if found.used(limit, phase, surely=True) - exact > (1 + ERROR) * max((limit.bytes or 0) - exact, 0):
            return True
    return False


def _peak_of(found: Estimate, place: Place) -> tuple[str, int]:
    sizes = [(phase, found.of(place, phase)) for phase in found.phases]
    return max(sizes, key=lambda pair: pair[1])


def _phase(phase: str) -> str:
    return _PHASES.get(phase, phase)


def render(found: Estimate, console: Console) -> None:
    """Prints the tables, the largest parts of each peak, and what was assumed."""
    style = {"over": "bold red", "trap": "bold red", "tight": "bold yellow", "fits": "bold green", "unknown": "bold"}[
        verdict(found)
    ]
    console.print(Text(sentence(found), style=style))
    console.print(Text(f"{found.framework} {found.version or '(version unknown)'}; {clean(found.node)}", style="dim"))
    for place in _PLACES:
        if any(need.place == place for need in found.needs):
            console.print()
            console.print(_table(found, place))
            for limit in found.limits:
                if limit.place == place:
                    console.print(_against(found, limit))
            _parts(found, place, console)
    hazards = tuple(f"{_phase(h.phase)}: {h.says} (doctor rules explain {h.cause})" for h in found.hazards)
    for title, lines in (
        ("traps", hazards),
        ("assumed", found.assumed),
        ("not read", tuple(f"{g.what}: {g.why}" for g in found.gaps)),
    ):
        if lines:
            console.print(Text(f"\n{title}", style="bold"))
            for line in lines:
                console.print(Padding(Text(clean(line)), (0, 0, 0, 3)))


def _table(found: Estimate, place: Place) -> Table:
    table = Table(
        title=_PLACES[place], title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0)
    )
    table.add_column("")
    totals = {phase: found.of(place, phase) for phase in found.phases}
    peak = max(totals, key=lambda phase: totals[phase])
    for phase in found.phases:
        table.add_column(Text(_phase(phase), style="bold" if phase == peak else ""), justify="right", no_wrap=True)
    for role in found.roles:
        sizes = [found.of(place, phase, role) for phase in found.phases]
        if any(sizes):
            counts = {
                need.count for need in found.needs if need.role == role and need.place == place and not need.moment
            }
            many = f" x{max(counts)}" if counts and max(counts) > 1 and place != "gpu" else ""
            table.add_row(f"{role}{many}", *(show_bytes(size) if size else "-" for size in sizes))
    cells = [
        Text(show_bytes(size), style="bold reverse" if phase == peak else "bold") for phase, size in totals.items()
    ]
    table.add_row(Text("together", style="bold"), *cells)
    for limit in found.limits:
        if limit.place == place and limit.bytes:
            table.add_row(
                Text(f"of {limit.name}" if limit.name.startswith("/") else f"of the {limit.name}", style="dim"),
                *(_of_limit(found, limit, p) for p in found.phases),
            )
    sums = [sum(found.of(place, phase, role) for role in found.roles) for phase in found.phases]
    if any(whole > totals[phase] for whole, phase in zip(sums, found.phases, strict=True)):
        table.caption = Text(
            "each role at its own peak; roles on one GPU or in one process take turns, so that together they need less than the sum",
            style="dim",
        )
        table.caption_justify = "left"
    return table


def _of_limit(found: Estimate, limit: Limit, phase: str) -> Text:
    """How much of a limit a phase takes."""
    style = {"over": "red", "tight": "yellow", "fits": "green"}.get(_in_words(found, (phase,), (limit,)), "")
    return Text(f"{100 * found.used(limit, phase) / (limit.bytes or 1):.0f} %", style=style)


def _against(found: Estimate, limit: Limit) -> Text:
    phase, peak = found.peak(limit)
    if limit.bytes is None:
        return Text(f"{limit.name}: {limit.basis}", style="dim")
    left = limit.bytes - peak
    surely = found.breaks(limit) is not None
    how = (
        f"{show_bytes(-left)} too much{'' if surely else ' if all sequences are at their longest'}"
        if left < 0
        else f"{show_bytes(left)} left"
    )
    style = "red" if surely else "yellow" if left < 0 else "yellow" if left < limit.bytes * ERROR else "green"
    return Text.assemble(
        f"{limit.name} {show_bytes(limit.bytes)}: ", (how, style), f" in {_phase(phase)}  ", (clean(limit.basis), "dim")
    )


def _parts(found: Estimate, place: Place, console: Console) -> None:
    """What the peak is made of, the largest first; on GPUs those of the fullest."""
    phase, _ = _peak_of(found, place)
    rows = [need for need in found.needs if need.place == place and phase in need.phases]
    if place == "gpu":
        labels = {need.gpus for need in rows}
        fullest = max(
            labels, key=lambda label: replace(found, needs=tuple(n for n in rows if n.gpus == label)).of("gpu", phase)
        )
        rows = [need for need in rows if need.gpus == fullest]
    rows = sorted(_together(rows, place), key=lambda need: -_size(need))
    console.print(Text(f"in {_phase(phase)}:", style="dim"))
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(justify="right", no_wrap=True, min_width=9)
    table.add_column(overflow="fold")
    for need in rows[:_PART_COUNT]:
        many = f" ({need.count} x {show_bytes(need.bytes)})" if need.count > 1 and place != "gpu" else ""
        words = "".join(
            (
                ", page-locked" if need.pinned else "",
                ", if all sequences are at their longest"
                if need.at_longest
                else ", for a moment"
                if need.moment
                else "",
            )
        )
        table.add_row(show_bytes(_size(need)), Text.assemble(f"{need.role}: {need.what}{words}", (many, "dim")))
    rest = sum(_size(need) for need in rows[_PART_COUNT:])
    if rest:
        table.add_row(show_bytes(rest), Text(f"{len(rows) - _PART_COUNT} smaller ones", style="dim"))
    console.print(table)


def _together(rows: Sequence[Need], place: Place) -> list[Need]:
    """What is there at the same time: of the moments of roles that take turns, the largest."""
    sums: dict[tuple[str, str, str], int] = {}
    for need in rows:
        if need.moment:
            key = ("" if place == "gpu" else need.process, need.role, need.moment)
            sums[key] = sums.get(key, 0) + _size(need)
    best = {process: max((k for k in sums if k[0] == process), key=lambda k: sums[k]) for process, _, _ in sums}
    return [
        n
        for n in rows
        if not n.moment
        or best["" if place == "gpu" else n.process] == ("" if place == "gpu" else n.process, n.role, n.moment)
    ]


def _size(need: Need) -> int:
    return need.bytes if need.place == "gpu" else need.bytes * need.count


def to_dict(found: Estimate) -> dict[str, Any]:
    """The estimate as one object of plain types."""
    return {
        "schema": SCHEMA,
        "verdict": verdict(found),
        "says": sentence(found),
        "framework": {"name": found.framework, "version": found.version},
        "node": found.node,
        "phases": list(found.phases),
        "by_phase": by_phase(found),
        "limits": [
            {
                "name": limit.name,
                "place": limit.place,
                "bytes": limit.bytes,
                "basis": clean(limit.basis),
                "peak_phase": found.peak(limit)[0],
                "peak_bytes": found.peak(limit)[1],
            }
            for limit in found.limits
        ],
        "roles": {
            place: {
                role: {phase: found.of(place, phase, role) for phase in found.phases}
                for role in found.roles
                if any(found.of(place, phase, role) for phase in found.phases)
            }
            for place in _PLACES
        },
        "together": {place: {phase: found.of(place, phase) for phase in found.phases} for place in _PLACES},
        "needs": [
            {
                "role": need.role,
                "place": need.place,
                "phases": list(need.phases),
                "bytes": need.bytes,
                "count": need.count,
                "what": need.what,
                "pinned": need.pinned,
                "moment": need.moment,
                "at_longest": need.at_longest,
                "from_step": need.from_step,
            }
            for need in found.needs
        ],
        "assumed": [clean(line) for line in found.assumed],
        "hazards": [{"phase": h.phase, "cause": h.cause, "says": clean(h.says)} for h in found.hazards],
        "gaps": [{"what": clean(gap.what), "why": clean(gap.why)} for gap in found.gaps],
        "error_ratio": ERROR,
    }


def render_json(found: Estimate, after: Estimate | None = None, patches: Sequence[Patch] = ()) -> str:
    """The estimate as indented JSON text, with the suggestion if requested."""
    whole = to_dict(found)
    if after is not None:
        changes = [
            {
                "setting": p.setting,
                "spelled": p.spelled,
                "before": p.before,
                "after": p.after,
                "file": p.file,
                "line": p.line,
                "safety": p.safety,
                "cost": p.cost,
                "diff": p.diff,
            }
            for p in patches
        ]
        whole["suggestion"] = {"says": sentence(after), "verdict": verdict(after), "changes": changes}
    return json.dumps(whole, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def render_suggestion(after: Estimate, patches: Sequence[Patch], console: Console) -> None:
    """Prints the smallest change that fits."""
    console.print(Text("\nsmallest change that fits, by the estimate", style="bold"))
    if not patches:
        others = "more nodes, or GPUs and host with more memory"
        short = {
            (limit.place, phase)
            for limit in after.limits
            for phase in after.phases
            if limit.bytes and after.used(limit, phase) > limit.bytes
        }
        if short == {("host", "resume")}:
            others = "start from the saved weights alone, without the optimizer's states, or on a host with more memory or swap"
        elif ("host", "resume") in short:
            others += (
                "; more nodes from the saved weights only, as a checkpoint's shards are for as many ranks as wrote it"
            )
        words = (
            f"none of the known ones is enough: {others}"
            if sentence(after).startswith(("will", "may not"))
            else f"none of the known ones avoids the trap (doctor rules explain {', '.join(dict.fromkeys(h.cause for h in after.hazards))})"
            if after.hazards
            else "none is needed"
        )
        console.print(Padding(Text(words), (0, 0, 0, 3)))
        return
    for patch in patches:
        console.print(
            Text.assemble(
                ("   ", ""),
                (f"{patch.spelled}: {patch.before} -> {patch.after}", "bold"),
                (f"  [{patch.safety}]", "dim"),
                f"  {patch.cost}",
            )
        )
    console.print(Padding(Text(f"then: {sentence(after)}"), (0, 0, 0, 3)))
    for diff in dict.fromkeys(patch.diff for patch in patches if patch.diff):
        console.print(Text(clean_diff(diff)), soft_wrap=True)


def clean_diff(text: str) -> str:
    """A diff without control characters, lines kept."""
    return "\n".join(clean(line, 4000) for line in text.splitlines())
