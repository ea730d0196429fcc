"""A comparison of two runs, on a terminal or as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlhfdoctor.comparison import Comparison, Figure
from rlhfdoctor.i18n.message import ENGLISH, NOTHING, Language, Message, joined, quoted, say
from rlhfdoctor.report.json_text import to_text
from rlhfdoctor.report.phrasing import NOT_SET, headline
from rlhfdoctor.report.said import said
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Incident
from rlhfdoctor.units import show_bytes, show_ratio, show_seconds

SCHEMA = "rlhfdoctor.comparison/1"


def verdict(found: Comparison) -> Message:
    """In one sentence whether it became better, worse, or neither."""
    one, two = found.before, found.after
    unknown = (one.verdict == "inconclusive", two.verdict == "inconclusive")
    if all(unknown):
        return say("nothing shows how either run ended")
    if any(unknown):
        return (
            say("nothing shows how the first run ended")
            if unknown[0]
            else say("nothing shows how the second run ended")
        )
    if found.doubts and one.death is not None:
        return say("these runs do not show whether a change helped: {doubts:; }", doubts=found.doubts)
    if one.death is not None and two.death is None:
        return say("the second run survived what the first one died of")
    if one.death is None and two.death is not None:
        return say("the first run ended well, the second did not")
    if one.death is None:
        return say("both ended well")
    causes = [incident.best.cause if incident.best else None for incident in (one, two)]
    same = two.death is not None and one.death.killer == two.death.killer
    if same and causes[0] == causes[1]:
        return say("both died, of the same cause")
    return say("the second run came as far as the first one died, and died of something else")


def render(found: Comparison, console: Console, t: Language = ENGLISH) -> None:
    """Prints what became of each run, the figures side by side, and the settings that differ."""
    console.print(Text(t(verdict(found)), style="bold"))
    if found.doubts and found.before.death is None:
        console.print(Text(t(say("not comparable: {doubts:; }", doubts=found.doubts))))
    for letter, incident in (("A", found.before), ("B", found.after)):
        console.print(
            Text.assemble(
                (f"{letter}  ", "bold"),
                clean(t(_fate(incident)), 1000),
                (f"  {clean(', '.join(incident.sources))}", "dim"),
            )
        )
    if found.figures:
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in ("", "A", "B"):
            table.add_column(name, justify="right" if name else "left")
        table.add_column(t(say("difference")), justify="left")
        for figure in found.figures:
            table.add_row(
                clean(t(figure.name)),
                t(_value(figure, figure.before)),
                t(_value(figure, figure.after)),
                _difference(figure, t),
            )
        console.print()
        console.print(table)
    else:
        console.print(Text("\n" + t(say("no figures: neither run was recorded by doctor watch")), style="dim"))
    console.print(
        Text(
            "\n"
            + t(say("settings that differ") if found.settings else say("no setting differs, as far as the files show")),
            style="bold" if found.settings else "dim",
        )
    )
    for spelled, old, new in found.settings:
        console.print(Text(f"   {clean(spelled)}: {t(_setting(old))} -> {t(_setting(new))}"))


def _fate(incident: Incident) -> Message:
    if incident.death is None:
        return say("ended well") if incident.verdict == "healthy" else say("unknown how it ended")
    killer = quoted(incident.death.killer) if incident.death.killer else say("never began")
    step = say("in step {step}", step=incident.death.step) if incident.death.step is not None else NOTHING
    return say("{fact} ({remark})", fact=headline(incident), remark=joined(killer, step, by=", "))


def _setting(value: object) -> Message:
    return NOT_SET if value is None else quoted(clean(str(value)))


def _value(figure: Figure, value: float | None) -> Message:
    if value is None:
        return quoted("-")
    if figure.unit == "s":
        return say("{value:s}", value=round(value, 2))
    if figure.unit == "count":
        return say("{value:.0f}", value=value)
    return (
        say("{size:bytes} a step", size=value) if figure.unit == "bytes_per_step" else say("{value:bytes}", value=value)
    )


def _difference(figure: Figure, t: Language) -> Text:
    if figure.before is None or figure.after is None:
        return Text("-", style="dim")
    change = figure.after - figure.before
    if not change:
        return Text(t(say("none")), style="dim")
    size = (
        show_seconds(round(abs(change), 2))
        if figure.unit == "s"
        else f"{abs(change):.0f}"
        if figure.unit == "count"
        else show_bytes(abs(change))
    )
    words = f"{'+' if change > 0 else '-'}{size}"
    if figure.before and figure.unit != "count" and figure.unit != "bytes_per_step":
        words += f" ({show_ratio(change / abs(figure.before))})"
    if figure.within_noise:
        return Text(t(joined(quoted(words), say("within noise"), by=", ")), style="dim")
    return Text(words, style="" if figure.unit == "count" else "red" if change > 0 else "green")


def render_json(found: Comparison) -> str:
    """The comparison as indented JSON text."""
    whole: dict[str, Any] = {
        "schema": SCHEMA,
        **said(says=verdict(found)),
        "comparable": not found.doubts,
        "doubts": [said(says=doubt) for doubt in found.doubts],
        "runs": [
            {
                "sources": list(incident.sources),
                "verdict": incident.verdict,
                "killer": (incident.death.killer or None) if incident.death else None,
                "cause": incident.best.cause if incident.best else None,
                "confidence": incident.best.confidence if incident.best else None,
            }
            for incident in (found.before, found.after)
        ],
        "figures": [
            {
                **said(name=f.name),
                "unit": f.unit,
                "before": f.before,
                "after": f.after,
                "noise": f.noise,
                "within_noise": f.within_noise,
            }
            for f in found.figures
        ],
        "settings": [{"spelled": spelled, "before": old, "after": new} for spelled, old, new in found.settings],
    }
    return to_text(whole) + "\n"
