"""The live view, read from the store: which processes hold the memory, when which limit is reached."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from rlhfdoctor.record.state import Limit, Role, State
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.trace.record import RecordEvent, record_of, time_of
from rlhfdoctor.units import show_bytes, show_duration
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import NODE, LimitName
from rlhfdoctor.vocabulary.names import Record

_BARS = " ▁▂▃▄▅▆▇█"
_STALE_S = 5.0
_LEAST_ROLES = 3
NAMES: Mapping[LimitName, str] = {
    "cgroup": "container limit",
    "node": "node memory",
    "ray": "Ray's threshold",
    "shm": "/dev/shm",
    "gpu": "GPU",
}


def name_limit(name: LimitName, level: str) -> str:
    """A limit for people."""
    return clean(f"GPU {level}" if name == "gpu" else NAMES[name], 40)


class View:
    """What rich draws; rebuilt from the state on every refresh."""

    def __init__(self, state: State, title: str, folder: str, log_lines: list[str]) -> None:
        """`log_lines`: the last lines of the job's output, newest last; changed from outside."""
        self.state, self.title, self.folder, self.log_lines = state, title, folder, log_lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or console.height
        head = [*self._head(width), *self._limits(width)]
        tail = [*self._pinned(width), *self._gpus(width, height)]
        foot = Text(f"{self.folder} · Ctrl-C leaves the view, the run goes on"[:width], style="dim", no_wrap=True)
        room = height - len(head) - 2  # one for the header of the roles, one for the foot
        if room - len(tail) < _LEAST_ROLES:
            tail = []
        if room < 1:
            yield from [*head, foot][-height:] if height < len(head) else [*head[: height - 1], foot]
            return
        roles = self._roles(width, room - len(tail))
        yield from head
        yield roles
        yield from tail
        yield from self._news(width, max(0, room - len(tail) - roles.row_count))
        yield foot

    def _head(self, width: int) -> list[Text]:
        s = self.state
        elapsed = show_duration((s.last_s or 0) - (s.first_s or 0)) if s.first_s else "starting"
        where = clean(_where(s))
        left = Text.assemble(
            ("rlhfdoctor ", "bold"),
            (clean(self.title)[:28], ""),
            (f"  {elapsed}", "dim"),
            (f"  {where}" if where else "", "cyan"),
        )
        own = s.recorder.get("rss_bytes")
        right = f"recorder {s.cost_ratio:.1%} of a core, {show_bytes(own)}" if own else ""
        if s.age_s > _STALE_S and s.ended is None and s.first_s is not None:
            right = f"no sample for {show_duration(s.age_s)}"
        if s.recorder.get("kept_count"):
            right = "disk takes nothing: recording to memory"
        warns = "no sample" in right or "disk" in right
        if warns and left.cell_len + len(right) >= width:
            left.truncate(max(0, width - len(right) - 1))
        gap = width - left.cell_len - len(right)
        if gap > 0:
            left.append(" " * gap).append(right, style="red" if warns else "dim")
        left.no_wrap = True
        return [left]

    def _limits(self, width: int) -> list[Text]:
        first = self.state.binding
        if first is None:
            return [Text("waiting for the first sample", style="dim")]
        lines = [self._bar(first, width), Text(f"  {say_left(first)}", style=_colour(first), no_wrap=True)]
        others = [limit for limit in self.state.limits.values() if limit is not first and (limit.name != "gpu")]
        others.sort(key=lambda limit: -limit.full_ratio)
        if others:
            uses = ""
            for limit in others:
                use = f"{name_limit(limit.name, limit.level)} {limit.full_ratio:.0%} of {show_bytes(limit.limit_bytes)}"
                part = f"{' · ' if uses else '  '}{use}"
                uses += part if len(uses) + len(part) <= width else ""
            lines.append(Text(uses, style="dim", no_wrap=True))
        return lines

    def _bar(self, limit: Limit, width: int) -> Text:
        label = name_limit(limit.name, limit.level)
        numbers = f"{limit.full_ratio:4.0%}  {show_bytes(limit.used_bytes)} of {show_bytes(limit.limit_bytes)}"
        room = max(8, width - len(label) - len(numbers) - 4)
        filled = min(room, round(room * limit.full_ratio))
        return Text.assemble(
            (f"{label} ", "bold"),
            ("━" * filled, _colour(limit)),
            ("─" * (room - filled), "dim"),
            f"  {numbers}",
            no_wrap=True,
        )

    def _roles(self, width: int, room: int) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), show_edge=False, header_style="dim", width=width)
        table.add_column("role", no_wrap=True, max_width=18)
        for name in ("n", "anon", "shmem", "per min"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("memory so far", no_wrap=True, ratio=1)
        roles = sorted((r for r in self.state.roles.values() if r.count), key=lambda r: -(r.anon_bytes + r.shmem_bytes))
        news = 5 if room > 12 else 0
        most = len(roles) if len(roles) <= room - news else max(1, room - news - 1)
        for role in roles[:most]:
            table.add_row(*self._role(role, max(8, width - 52)))
        if len(roles) > most:
            rest = roles[most:]
            table.add_row(
                f"{len(rest)} more",
                str(sum(r.count for r in rest)),
                show_bytes(sum(r.anon_bytes for r in rest)),
                "",
                "",
                "",
            )
        return table

    def _role(self, role: Role, room: int) -> tuple[str | Text, ...]:
        slope = self.state.slope(role)
        change = (
            ""
            if slope is None
            else ("+" if slope > 0 else "") + show_bytes(slope * 60)
            if abs(slope) * 60 > 1 << 20
            else "steady"
        )
        return (
            clean(role.name),
            str(role.count),
            show_bytes(role.anon_bytes),
            show_bytes(role.shmem_bytes),
            change,
            Text(sparkline([value for _, value in role.history], room), style="cyan"),
        )

    def _pinned(self, width: int) -> list[Text]:
        line = say_shared(self.state)
        return [Text(line[:width], no_wrap=True)] if line else []

    def _gpus(self, width: int, height: int) -> list[Text]:
        cells = []
        for index, gpu in enumerate(self.state.gpus):
            total, used, busy = gpu["total_bytes"], gpu["used_bytes"], gpu["busy_ratio"]
            if total and used is not None:
                load = "" if busy is None else f" {busy:.0%} busy"
                cells.append(f"GPU {index} {show_bytes(used)} of {show_bytes(total)}{load}")
            else:
                cells.append(f"GPU {index} unknown")
        per_line = max(1, width // 40)
        lines = [
            Text("".join(f"{c:<40}" for c in cells[i : i + per_line]).rstrip(), no_wrap=True)
            for i in range(0, len(cells), per_line)
        ]
        return lines[: max(1, height // 4)]

    def _news(self, width: int, room: int) -> list[Text]:
        """Last events, then the last lines of the job's output, as many as fit."""
        events = [say_event(event) for event in list(self.state.events)[-max(1, room // 2) :]]
        lines = [Text(text[:width], style="yellow" if bad else "", no_wrap=True) for text, bad in events if text]
        logs = (
            [clean(line)[:width] for line in self.log_lines[-max(0, room - len(lines)) :]] if room > len(lines) else []
        )
        return [*lines[:room], *(Text(line, style="dim", no_wrap=True) for line in logs)][:room]


def _where(state: State) -> str:
    """Step and phase."""
    parts = [*([f"step {state.step}"] if state.step is not None else []), *([str(state.phase)] if state.phase else [])]
    return " ".join(parts)


def _colour(limit: Limit) -> str:
    soon = limit.left_s is not None and limit.left_s < 600
    return (
        "red"
        if limit.full_ratio > 0.9 or (soon and limit.full_ratio > 0.5)
        else "yellow"
        if soon or limit.full_ratio > 0.75
        else "green"
    )


def say_left(limit: Limit) -> str:
    """The forecast in words, with its uncertainty."""
    if limit.left_s is None:
        return "no limit in sight: nothing grows towards one"
    span = ""
    if limit.low_s is not None and limit.high_s is not None and limit.high_s - limit.low_s > 0.1 * limit.left_s:
        span = f" ({show_duration(limit.low_s)} to {show_duration(limit.high_s)})"
    elif limit.low_s is not None and limit.high_s is None:
        span = f" (at least {show_duration(limit.low_s)})"
    return f"full in about {show_duration(limit.left_s)}{span} at +{show_bytes(limit.slope_bytes_per_s * 60)} a minute"


def say_shared(state: State) -> str:
    """Pinned, shared and shm totals in one line."""
    host = state.host
    parts = []
    shared = max((row["rss_shmem_bytes"] or 0 for row in state.rows.values()), default=0)
    locked = sum((row["locked_bytes"] or 0) + (row["pinned_bytes"] or 0) for row in state.rows.values())
    shmem, used, unlinked = host.get("shmem_bytes"), host.get("shm_used_bytes"), host.get("shm_unlinked_bytes")
    if locked:
        parts.append(f"mlocked or pinned {show_bytes(locked)}")
    if shmem is not None and used is not None and shmem > used:
        parts.append(f"shmem without files {show_bytes(shmem - used)}")
    elif shared:
        parts.append(f"largest shmem {show_bytes(shared)}")
    if used is not None:
        orphaned = host.get("shm_orphaned_bytes") or 0
        line = f"/dev/shm {show_bytes(used)}"
        if unlinked is not None and unlinked > 1 << 20:
            line += f", {show_bytes(unlinked)} of it unlinked"
        parts.append(line + (f", {show_bytes(orphaned)} orphaned" if orphaned else ""))
    return " · ".join(parts)


def say_event(event: RecordEvent) -> tuple[str, bool]:
    """An event as a line, and whether it is bad news."""
    at = time.strftime("%H:%M:%S", time.localtime(time_of(event) / 1e9))
    kind = record_of(event)
    says: dict[Record | None, Callable[[], tuple[str, bool]]] = {
        RECORD.note.alarm: lambda: (f"alarm: {event[R.text]}", True),
        RECORD.note.oom_kill: lambda: (
            f"the kernel killed {event[R.count]} at "
            f"{'the node' if event[R.level] == NODE else event[R.level].rsplit('/', 1)[-1]}",
            True,
        ),
        RECORD.kernel.line: lambda: (event[R.text].partition("+00:00 ")[2], True),
        RECORD.kernel.other: lambda: (f"the kernel killed a process of another job (pid {event[R.pid]})", False),
        RECORD.cgroup.oom: lambda: ("out of memory in the cgroup", True),
        RECORD.job.exited: lambda: (f"the command ended: {show_exit(int(event[R.code]))}", event[R.code] != 0),
        RECORD.process.exited: lambda: (
            f"pid {event[R.pid]} ended: {show_exit(int(event[R.code]))}",
            event[R.code] != 0,
        ),
        RECORD.process.gone: lambda: (
            f"{event.get(R.role) or event.get(R.name)} pid {event[R.pid]} is gone; "
            f"it held {show_bytes(event[R.rss_anon_bytes] or 0)} anon",
            True,
        ),
        RECORD.note.gap: lambda: (f"not available: {event[R.what]}: {event[R.why]}", False),
        RECORD.store.recovered: lambda: (
            f"the disk takes writes again; {event[R.kept_count]} frames were kept in memory",
            False,
        ),
        RECORD.recorder.end: lambda: (f"recording ended: {event[R.why]}", False),
        RECORD.store.dropped: lambda: (
            f"the trace is too large: its {event[R.segments_count]} oldest segments were deleted",
            False,
        ),
        RECORD.node.back: lambda: (f"node {event.get(R.node)} is back", False),
        RECORD.metrics.serving: lambda: (f"metrics at http://127.0.0.1:{event[R.port]}/metrics", False),
        RECORD.ray.node: lambda: (f"Ray node {event.get(R.address) or ''} (raylet {event[R.pid]})", False),
        RECORD.node.lost: lambda: (f"node {event.get(R.node)} is lost: {event.get(R.why)}", True),
    }
    if kind not in says:
        return "", False
    text, bad = says[kind]()
    return f"{at} {clean(text)}", bad


def show_exit(code: int) -> str:
    """An exit code for people.

    >>> show_exit(0), show_exit(3), show_exit(-9)
    ('exit status 0', 'exit status 3', 'killed by SIGKILL')
    """
    import signal

    if code >= 0:
        return f"exit status {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"


def sparkline(values: list[int], width: int) -> str:
    """The last values as bars, the largest one full.

    >>> sparkline([0, 1, 2, 4, 8], 5)
    ' ▁▂▄█'
    """
    shown = values[-width:]
    top = max(shown, default=0)
    return "".join(_BARS[round(value / top * 8)] if top else " " for value in shown)


def show_line(state: State) -> str:
    """The state as one plain line, for pipes."""
    limit = state.binding
    where = _where(state)
    at = time.strftime("%H:%M:%S", time.localtime(state.last_s or 0))
    if limit is None:
        return f"{at} recording"
    roles = sorted((r for r in state.roles.values() if r.count), key=lambda r: -(r.anon_bytes + r.shmem_bytes))[:3]
    used = ", ".join(f"{r.name} {show_bytes(r.anon_bytes + r.shmem_bytes)}" for r in roles)
    use = f"{name_limit(limit.name, limit.level)} {limit.full_ratio:.0%} of {show_bytes(limit.limit_bytes)}"
    left = f"; {say_left(limit)}" if limit.left_s is not None else ""
    return clean(f"{at} {where + ': ' if where else ''}{use}{left}; {used}")
