"""A fleet as text, Markdown or a page: what the runs ended of, what that cost, which ended alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from rlhfdoctor.fleet import UNREADABLE, Fleet, FleetRow, Group
from rlhfdoctor.i18n.message import ENGLISH, Language, Message, joined, plural, say
from rlhfdoctor.report.marked import plain
from rlhfdoctor.report.phrasing import VERDICTS
from rlhfdoctor.report.sanitize import clean, shell_path
from rlhfdoctor.report.web import make_environment, shared_values
from rlhfdoctor.units import show_confidence, show_time

_SHOWN_ROWS = 40
_COUNTED: Mapping[str, Callable[[int], Message]] = {
    "cause": lambda count: say("{count} with a cause", count=count),
    "undecided": lambda count: say("{count} undecided", count=count),
    "inconclusive": lambda count: say("{count} inconclusive", count=count),
    UNREADABLE: lambda count: say("{count} unreadable", count=count),
    "healthy": lambda count: say("{count} healthy", count=count),
}
_STYLES = {"cause": "red", "undecided": "yellow", "inconclusive": "yellow", UNREADABLE: "yellow", "healthy": "green"}


def summary(fleet: Fleet) -> Message:
    """How many runs there were, how they ended, and what those cost that ended badly."""
    bad = fleet.ended_badly
    counts = [(counted, sum(row.verdict == verdict for row in fleet.rows)) for verdict, counted in _COUNTED.items()]
    said = joined(*(counted(count) for counted, count in counts if count), by=", ")
    runs = plural("{n} run: {said}", "{n} runs: {said}", len(fleet.rows), said=said)
    known = [row.node_hours for row in bad if row.node_hours is not None]
    if not known:
        return runs
    cost = say("the runs that died had taken {hours:,.1f} node hours", hours=sum(known))
    if len(known) < len(bad):
        cost = joined(cost, say("(unknown of {count} of them)", count=len(bad) - len(known)), by=" ")
    return joined(runs, cost, by="; ")


def name_of(verdict: str) -> Message:
    """A verdict, in the words of the report."""
    return VERDICTS.get(verdict, say("unreadable"))


def cause_of(row: FleetRow | Group) -> str:
    """The decided cause; empty where there is none."""
    return row.cause or "" if row.verdict == "cause" else ""


def next_command(fleet: Fleet) -> str | None:
    """The command for the run that cost most."""
    worst = max(fleet.ended_badly, key=lambda row: row.node_hours or 0.0, default=None)
    return f"doctor analyze {shell_path(worst.path)}" if worst is not None else None


class Names:
    """Names of runs without what all of them share."""

    def __init__(self, fleet: Fleet) -> None:
        parts = [row.path.split("/") for row in fleet.rows]
        shortest = min(map(len, parts), default=0)
        alike = [len({tuple(part[:count]) for part in parts}) == 1 for count in range(shortest)]
        self._first = max((count for count, same in enumerate(alike) if same), default=0)
        rest = [part[self._first :] for part in parts]
        room = min(map(len, rest), default=1) - 1
        self._last = max(
            (n for n in range(room + 1) if len({tuple(part[len(part) - n :]) for part in rest}) == 1), default=0
        )
        self._numbers: dict[str, int] = {}
        for number, row in enumerate(fleet.rows, 1):
            self._numbers.setdefault(row.path, number)
        one = parts[0] if parts else []
        head, tail = one[: self._first], one[len(one) - self._last :]
        self.pattern = "/".join([*head, "*", *tail]) if head or tail else ""
        """What all names are, with a star for what differs; empty where they share nothing."""

    def short(self, row: FleetRow) -> str:
        """What differs."""
        parts = row.path.split("/")
        return "/".join(parts[self._first : len(parts) - self._last])

    def like(self, row: FleetRow) -> str:
        """The run that ended alike: its number in this fleet, or its path in an earlier one."""
        number = self.number(row)
        return row.same_as or "" if number is None else f"#{number}"

    def number(self, row: FleetRow) -> int | None:
        """Of the run that ended alike, in this fleet."""
        return self._numbers.get(row.same_as) if row.same_as is not None else None


def _hours(hours: float | None) -> str:
    return "-" if hours is None else "<0.1" if 0 < hours < 0.05 else f"{hours:,.1f}"


def render(fleet: Fleet, console: Console, everything: bool = False, t: Language = ENGLISH) -> None:
    """Prints the groups by cost, then a line for each run."""
    console.print(Text(clean(t(summary(fleet)), 1000), style="bold"))
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(t(say("ended by")))
    for name in (say("runs"), say("node hours")):
        table.add_column(t(name), justify="right")
    for group in fleet.groups:
        table.add_row(
            Text(cause_of(group) or t(name_of(group.verdict)), style=_STYLES[group.verdict]),
            str(len(group.rows)),
            _hours(group.node_hours or None),
        )
    console.print()
    console.print(table)
    names = Names(fleet)
    rows = fleet.rows if everything else fleet.rows[:_SHOWN_ROWS]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("#", justify="right", no_wrap=True)
    table.add_column(clean(names.pattern, 60) or t(say("run")), overflow="fold")
    table.add_column(t(say("ended by")), no_wrap=True)
    table.add_column(t(say("sure")), justify="right", no_wrap=True)
    table.add_column(t(say("hours")), justify="right", no_wrap=True)
    table.add_column(t(say("like")), overflow="fold")
    for number, row in enumerate(rows, 1):
        decided = row.verdict == "cause" and row.confidence is not None
        table.add_row(
            str(number),
            clean(names.short(row), 200),
            Text(cause_of(row) or t(name_of(row.verdict)), style=_STYLES[row.verdict]),
            show_confidence(row.confidence or 0.0) if decided else "",
            _hours(row.node_hours),
            clean(names.like(row), 200),
        )
    console.print()
    console.print(table)
    if len(rows) < len(fleet.rows):
        more = plural("{n} more run: --all", "{n} more runs: --all", len(fleet.rows) - len(rows))
        console.print(Text(t(more), style="dim"))
    for row in fleet.rows:
        if row.why is not None:
            console.print(Text(clean(row.why if row.path in row.why else f"{row.path}: {row.why}", 500), style="dim"))
    command = next_command(fleet)
    if command is not None:
        console.print()
        console.print(Text(clean(t(say("next: {command}", command=command)), 1000)))


def render_markdown(fleet: Fleet, t: Language = ENGLISH) -> str:
    """The same as Markdown."""
    lines = [f"## {plain(t(summary(fleet)))}", ""]
    lines += [f"| {t(say('ended by'))} | {t(say('runs'))} | {t(say('node hours'))} |", "|---|--:|--:|"]
    lines += [
        f"| {cause_of(group) or t(name_of(group.verdict))} | {len(group.rows)} | {_hours(group.node_hours or None)} |"
        for group in fleet.groups
    ]
    names = Names(fleet)
    heads = (say("ended by"), say("sure"), say("node hours"), say("what it is"), say("like"))
    lines += [
        "",
        f"| # | {plain(names.pattern) or t(say('run'))} | {' | '.join(map(t, heads))} |",
        "|--:|---|---|--:|--:|---|---|",
    ]
    for number, row in enumerate(fleet.rows, 1):
        cells = (
            str(number),
            plain(names.short(row)),
            cause_of(row) or t(name_of(row.verdict)),
            show_confidence(row.confidence) if row.verdict == "cause" and row.confidence is not None else "",
            _hours(row.node_hours),
            plain(row.why or row.title or ""),
            plain(names.like(row)),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def render_html(fleet: Fleet, *, made_s: float | None = None, version: str = "", t: Language = ENGLISH) -> str:
    """The same as one page that needs neither network nor script."""
    environment = make_environment(t)
    environment.filters |= {"hours": _hours, "sure": show_confidence}
    most = max((group.node_hours for group in fleet.groups), default=0.0)
    return environment.get_template("fleet.html").render(
        **shared_values(t),
        fleet=fleet,
        summary=summary(fleet),
        cause_of=cause_of,
        name_of=name_of,
        most=most or 1.0,
        names=Names(fleet),
        made=show_time(made_s) if made_s is not None else "",
        show_time=show_time,
        version=version,
    )
