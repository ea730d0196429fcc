"""The live view, read from the store: which processes hold the memory, when which limit is reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from rlhfdoctor.i18n.message import ENGLISH, Language, Message, say
from rlhfdoctor.record.phrasing import say_event, say_outlook, say_shared, say_use, say_where, say_word
from rlhfdoctor.record.state import Limit, Role, State
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.units import show_bytes
from rlhfdoctor.vocabulary.limits import say_limit

_BARS = " ▁▂▃▄▅▆▇█"
_STALE_S = 5.0
_LEAST_ROLES = 3
_MOST_PROCESSES = 5
_LEAST_BAR = 8
_SHMEM_WIDTH, _HISTORY_WIDTH = 48, 60
"""A terminal of fewer columns has no room for shared memory, or for the history, of roles."""
_GPU_WIDTH = 40


class View:
    """What rich draws; rebuilt from the state on every refresh. Widths are columns of the terminal, not letters."""

    def __init__(self, state: State, title: str, folder: str, log_lines: list[str], words: Language = ENGLISH) -> None:
        """`log_lines`: the last lines of the job's output, newest last; changed from outside."""
        self.state, self.title, self.folder, self.log_lines, self.words = state, title, folder, log_lines, words
        self.has_keys = False
        self.processes_only = self.by_growth = False

    def press(self, key: str) -> None:
        """`p` shows processes in place of roles and news, and back; `g` orders processes by growth, and back."""
        if key == "p":
            self.processes_only = not self.processes_only
        elif key == "g":
            self.by_growth = not self.by_growth

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        head = [*self._head(width), *self._limits(width)]
        tail = [*self._pinned(width), *self._gpus(width, height)]
        foot = self._foot(width)
        room = height - len(head) - 2  # one for the header of the roles, one for the foot
        if room - len(tail) < _LEAST_ROLES:
            tail = []
        if room < 1:
            yield from [*head, foot][-height:] if height < len(head) else [*head[: height - 1], foot]
            return
        if self.processes_only:
            yield from [*head, *self._processes(width, room + 1 - len(tail)), *tail, foot]
            return
        roles = self._roles(width, room - len(tail))
        below = room - len(tail) - roles.row_count  # at least half of it is for news
        processes = self._processes(width, min(_MOST_PROCESSES + 1, below // 2))
        yield from head
        yield roles
        yield from processes
        yield from tail
        yield from self._news(max(0, room - len(tail) - roles.row_count - len(processes)))
        yield foot

    def _say(self, message: Message) -> str:
        """In the language of the view, without control characters."""
        return clean(self.words(message))

    def _foot(self, width: int) -> Text:
        over = self.state.is_over
        leave = self._say(say("the run is over") if over else say("Ctrl-C leaves the view, the run goes on"))
        if self.has_keys:
            keys = (say("p roles") if self.processes_only else say("p processes")), say("g by growth")
            leave = fitting([leave, *map(self._say, keys)], width)
        room = width - cell_len(leave) - 3
        folder = f"{clean(self.folder)} · "
        return Text(f"{folder}{leave}" if cell_len(folder) <= room + 3 else leave, style="dim", no_wrap=True)

    def _head(self, width: int) -> list[Text]:
        s = self.state
        starts = s.first_s is None
        elapsed = say("starting") if starts else say("{time:duration}", time=(s.last_s or 0) - (s.first_s or 0))
        where = self._say(say_where(s))
        left = Text.assemble(
            ("rlhfdoctor ", "bold"),
            (cut(clean(self.title), 28), ""),
            (f"  {self._say(elapsed)}", "dim"),
            (f"  {where}" if where else "", "cyan"),
        )
        warning = self._warning()
        own = s.recorder.get("rss_bytes")
        cost = say("recorder {share:.1%} of a core, {size:bytes}", share=s.cost_ratio, size=own) if own else None
        says = warning or cost
        right = self._say(says) if says else ""
        if warning and left.cell_len + cell_len(right) >= width:
            left.truncate(max(0, width - cell_len(right) - 1))
        gap = width - left.cell_len - cell_len(right)
        if gap > 0:
            left.append(" " * gap).append(right, style="red" if warning else "dim")
        left.no_wrap = True
        return [left]

    def _warning(self) -> Message | None:
        """What is wrong with the recording itself."""
        s = self.state
        if s.recorder.get("kept_count"):
            return say("disk takes nothing: recording to memory")
        if s.age_s > _STALE_S and s.ended is None and s.first_s is not None:
            return say("no sample for {age:duration}", age=s.age_s)
        return None

    def _limits(self, width: int) -> list[Text]:
        first = self.state.binding
        if first is None:
            return [Text(self._say(say("waiting for the first sample")), style="dim", no_wrap=True)]
        left = Text(f"  {self._say(say_outlook(self.state, first))}", style=_colour(first), no_wrap=True)
        others = [limit for limit in self.state.limits.values() if limit is not first and (limit.name != "gpu")]
        others.sort(key=lambda limit: -limit.full_ratio)
        lines = [self._bar(first, width), left]
        if others:
            uses = fitting([self._say(say_use(limit)) for limit in others], width - 2)
            lines.append(Text(f"  {uses}" if uses else "", style="dim", no_wrap=True))
        return lines

    def _bar(self, limit: Limit, width: int) -> Text:
        label = self._say(say_limit(limit.name, limit.level))
        use = say("{used:bytes} of {size:bytes}", used=limit.used_bytes, size=limit.limit_bytes)
        share, figures = f"{limit.full_ratio:.0%}", self._say(use)
        room = width - cell_len(label) - cell_len(figures) - 9
        if room < _LEAST_BAR:
            return Text.assemble((label, "bold"), " ", (share, _colour(limit)), f" {figures}", no_wrap=True)
        filled = min(room, round(room * limit.full_ratio))
        return Text.assemble(
            (f"{label} ", "bold"),
            ("━" * filled, _colour(limit)),
            ("─" * (room - filled), "dim"),
            f"  {share:>4}  {figures}",
            no_wrap=True,
        )

    def _roles(self, width: int, room: int) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", width=width)
        table.add_column(self._say(say("role")), no_wrap=True, max_width=18)
        names = [say("n"), say("anon"), *([say("shmem")] if width >= _SHMEM_WIDTH else []), say("per min")]
        for name in names:
            table.add_column(self._say(name), justify="right", no_wrap=True)
        if width >= _HISTORY_WIDTH:
            table.add_column(self._say(say("memory so far")), no_wrap=True, ratio=1)
        roles = self.state.by_size()
        news = 5 if room > 12 else 0
        most = len(roles) if len(roles) <= room - news else max(1, room - news - 1)
        for role in roles[:most]:
            table.add_row(*self._role(role, width))
        if len(roles) > most:
            rest = roles[most:]
            more = self._say(say("{count} more", count=len(rest)))
            table.add_row(more, str(sum(r.count for r in rest)), show_bytes(sum(r.anon_bytes for r in rest)))
        return table

    def _role(self, role: Role, width: int) -> list[str | Text]:
        history = Text(sparkline([value for _, value in role.history], max(8, width - 52)), style="cyan")
        return [
            self._say(say_word(role.name)),
            str(role.count),
            show_bytes(role.anon_bytes),
            *([show_bytes(role.shmem_bytes)] if width >= _SHMEM_WIDTH else []),
            self._change(self.state.slope(role)),
            *([history] if width >= _HISTORY_WIDTH else []),
        ]

    def _processes(self, width: int, room: int) -> list[Text]:
        """A header and the largest processes, or those that grow most, as many as there is room for."""
        held = self.state.by_held()
        if self.by_growth:
            held.sort(key=lambda process: -(self.state.slope_of(process) or 0.0))
        shown = held[: max(0, room - 1)]
        if not shown:
            return []
        head = [say("pid"), say("holds"), say("per min"), say("command")]
        rows = [
            [str(p.pid or ""), show_bytes(p.held_bytes), self._change(self.state.slope_of(p)), clean(p.command)]
            for p in shown
        ]
        cells = [[self._say(name) for name in head], *rows]
        wide = [max(cell_len(row[column]) for row in cells) for column in range(3)]
        lines = []
        for number, row in enumerate(cells):
            figures = " ".join(" " * (size - cell_len(cell)) + cell for cell, size in zip(row, wide))
            text = cut(f"{figures} {row[3]}", width)
            lines.append(Text(text, style="" if number else "dim", no_wrap=True))
        return lines

    def _change(self, slope: float | None) -> str:
        """Growth of a role in a minute."""
        if slope is None:
            return ""
        if abs(slope) * 60 <= 1 << 20:
            return self._say(say("steady"))
        return ("+" if slope > 0 else "") + show_bytes(slope * 60)

    def _pinned(self, width: int) -> list[Text]:
        line = fitting([self._say(part) for part in say_shared(self.state)], width)
        return [Text(line, no_wrap=True)] if line else []

    def _gpus(self, width: int, height: int) -> list[Text]:
        cells = [self._gpu(index, gpu) for index, gpu in enumerate(self.state.gpus)]
        per_line = max(1, width // _GPU_WIDTH)
        lines = [
            Text("".join(set_cell_size(cell, _GPU_WIDTH) for cell in cells[i : i + per_line]).rstrip(), no_wrap=True)
            for i in range(0, len(cells), per_line)
        ]
        return lines[: max(1, height // 4)]

    def _gpu(self, index: int, gpu: Mapping[str, Any]) -> str:
        total, used, busy = gpu["total_bytes"], gpu["used_bytes"], gpu["busy_ratio"]
        if not total or used is None:
            return self._say(say("GPU {number} unknown", number=index))
        if busy is None:
            return self._say(say("GPU {number} {used:bytes} of {size:bytes}", number=index, used=used, size=total))
        return self._say(
            say(
                "GPU {number} {used:bytes} of {size:bytes} {busy:.0%} busy",
                number=index,
                used=used,
                size=total,
                busy=busy,
            )
        )

    def _news(self, room: int) -> list[Text]:
        """Last events, then the last lines of the job's output, as many as fit."""
        events = [say_event(event) for event in list(self.state.events)[-max(1, room // 2) :]]
        lines = [Text(self._say(says), style="yellow" if bad else "", no_wrap=True) for says, bad in events if says]
        logs = self.log_lines[-max(0, room - len(lines)) :] if room > len(lines) else []
        return [*lines[:room], *(Text(clean(line), style="dim", no_wrap=True) for line in logs)][:room]


def cut(text: str, width: int) -> str:
    """The start of a text that takes at most `width` columns.

    >>> cut("训练run", 4), cut("训练run", 3)
    ('训练', '训')
    """
    return text if cell_len(text) <= width else set_cell_size(text, width).rstrip()


def fitting(parts: Sequence[str], width: int) -> str:
    """As many of the parts, one behind the other, as `width` columns hold; the first one in any case."""
    line = "".join(parts[:1])
    for part in parts[1:]:
        if cell_len(line) + 3 + cell_len(part) <= width:
            line += f" · {part}"
    return line


def _colour(limit: Limit) -> str:
    soon = limit.left_s is not None and limit.left_s < 600
    return (
        "red"
        if limit.full_ratio > 0.9 or (soon and limit.full_ratio > 0.5)
        else "yellow"
        if soon or limit.full_ratio > 0.75
        else "green"
    )


def sparkline(values: list[int], width: int) -> str:
    """The last values as bars, the largest one full.

    >>> sparkline([0, 1, 2, 4, 8], 5)
    ' ▁▂▄█'
    """
    shown = values[-width:]
    top = max(shown, default=0)
    return "".join(_BARS[round(value / top * 8)] if top else " " for value in shown)
