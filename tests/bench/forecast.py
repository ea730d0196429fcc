"""How good the forecasts are: every recorded run, replayed through the forecast as the recorder would have made it.

    python -m tests.bench.forecast [FOLDER...]

Without folders, all recorded runs of samples/ and rules/. A limit is reached when the kernel kills there; without a kill,
when 97 % of it are in use. A forecast held if the limit was reached within its bounds, or within a tick of them. One that was
still open when the run ended is counted nowhere. Results: FORECAST.md.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rlhfdoctor.record.alarm import Alarms
from rlhfdoctor.record.limits import Limits
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.record import StoredEvent, is_a
from rlhfdoctor.trace.schema import NULL, TABLES
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.limits import limit_of

ROOT = Path(__file__).parents[2]
FULL_RATIO = 0.97
TICK_S = 1.0
Key = tuple[str, str]
"""Name and level of a limit."""


class Said(NamedTuple):
    """A forecast of one tick."""

    at_s: float
    key: Key
    left_s: float
    low_s: float
    high_s: float | None


@dataclass
class Replay:
    """What was said of one run, and what came."""

    name: str
    said: list[Said] = field(default_factory=list)
    alarms: list[tuple[float, Key, str]] = field(default_factory=list)
    reached: dict[Key, float] = field(default_factory=dict)
    killed: dict[Key, float] = field(default_factory=dict)
    end_s: float = 0.0
    code: int | None = None
    ticks: int = 0

    def verdicts(self) -> Iterator[tuple[Said, bool]]:
        """Each forecast that was decided, and whether it held; those after the limit was reached do not count."""
        for one in self.said:
            reached = self.reached.get(one.key)
            if reached is not None and one.at_s < reached:
                late = one.high_s is not None and one.at_s + one.high_s + TICK_S < reached
                yield one, not late and reached >= one.at_s + one.low_s - TICK_S
            elif reached is None and one.high_s is not None and one.at_s + one.high_s + TICK_S < self.end_s:
                yield one, False

    def false_alarms(self) -> list[tuple[float, Key, str]]:
        """Alarms of a limit that nothing ever reached."""
        return [alarm for alarm in self.alarms if alarm[1] not in self.reached]

    def lead_s(self) -> dict[Key, float | None]:
        """For each limit where the kernel killed: how long before that the first alarm came."""
        first = {key: at for at, key, _ in reversed(self.alarms)}
        return {key: at - first[key] if first.get(key, at) < at else None for key, at in self.killed.items()}


def replay(folder: Path) -> Replay:
    """One run, tick by tick."""
    found, limits, alarms = Replay(folder.parent.name), Limits(), Alarms(600.0)
    names: dict[int, Key] = {}
    first_s = 0.0
    for item in _items(folder):
        if isinstance(item, Sample):
            at_s = item.mono_ns / 1e9
            first_s = first_s or at_s
            found.end_s = at_s - first_s
            found.ticks += 1
            _tick(found, limits, alarms, names, item, at_s - first_s)
        else:
            _event(found, limits, names, item, item.get(R.mono_ns, 0) / 1e9 - first_s)
    return found


def _items(folder: Path) -> Iterator[Sample | StoredEvent]:
    for path in sorted(folder.glob("*.trace")):
        yield from SegmentReader(str(path)).read([], final=True)


def _event(found: Replay, limits: Limits, names: dict[int, Key], event: StoredEvent, at_s: float) -> None:
    if is_a(event, RECORD.limit.seen):
        names[event[R.uid]] = (event[R.name], event[R.level])
    elif is_a(event, RECORD.cgroup.seen):
        names.setdefault(-event[R.uid], ("cgroup", event[R.path]))
    elif is_a(event, RECORD.note.mark) and isinstance(event.get(R.step), int) and hasattr(limits, "begin_step"):
        limits.begin_step(at_s, event[R.step])
    elif is_a(event, RECORD.note.oom_kill) and event[R.level] != "node":
        key = ("cgroup", event[R.level])
        found.killed.setdefault(key, at_s)
        found.reached[key] = found.killed[key]
    elif is_a(event, RECORD.job.exited):
        found.code = event[R.code]


def _tick(
    found: Replay, limits: Limits, alarms: Alarms, names: dict[int, Key], sample: Sample, at_s: float
) -> None:
    table = "limit" if "limit" in sample.tables else "cgroup"
    used_name, size_name = ("used_bytes", "limit_bytes") if table == "limit" else ("used_bytes", "max_bytes")
    uids, columns = sample.tables.get(table, ([], []))
    of = dict(zip(TABLES[table], columns, strict=False))
    for index, uid in enumerate(uids):
        key = names.get(uid if table == "limit" else -uid)
        used, size = of[used_name][index], of[size_name][index]
        if key is None or NULL in (used, size) or (name := limit_of(key[0])) is None:
            continue
        limits._take(at_s, name, key[1], used, size)
        if used >= FULL_RATIO * size:
            found.reached.setdefault(key, at_s)
    for limit in limits.all.values():
        forecast = limit.forecast
        if limit.seen_s == at_s and forecast is not None and forecast.left_s:
            key = (limit.name, limit.level)
            found.said.append(Said(at_s, key, forecast.left_s, forecast.low_s or 0.0, forecast.high_s))
    for limit, says in alarms.check(limits.all.values()):
        found.alarms.append((at_s, (limit.name, limit.level), str(says)))


def runs(folders: Sequence[str]) -> list[Path]:
    """Folders with segments: those given, or all of the repository."""
    roots = [Path(folder) for folder in folders] or [ROOT / "samples", ROOT / "rules"]
    return sorted({path.parent for root in roots for path in root.rglob("*.trace")})


def main(folders: Sequence[str]) -> None:
    """Prints the tables."""
    found = [replay(folder) for folder in runs(folders)]
    print("| run | ended | ticks | forecasts | held of decided | alarms | false | lead s |\n|---|---|---|---|---|---|---|---|")
    total: list[bool] = []
    leads: list[float | None] = []
    for run in found:
        verdicts = [held for _, held in run.verdicts()]
        total += verdicts
        lead = list(run.lead_s().values())
        leads += lead
        shown = ", ".join("none" if one is None else f"{one:.1f}" for one in lead)
        held = f"{sum(verdicts)} of {len(verdicts)}" if verdicts else ""
        end = "killed" if run.killed else "well" if run.code == 0 else "" if run.code is None else f"{run.code}"
        print(
            f"| {run.name} | {end} | {run.ticks} | {len(run.said)} | {held} | {len(run.alarms)} "
            f"| {len(run.false_alarms())} | {shown} |"
        )
    well = [run for run in found if run.code == 0 and not run.reached]
    known = [0.0 if one is None else one for one in leads]
    print(f"\nintervals that held: {sum(total)} of {len(total)} ({sum(total) / max(1, len(total)):.0%})")
    print(f"runs that ended well: {len(well)}, with {sum(len(r.said) for r in well)} forecasts and "
          f"{sum(len(r.alarms) for r in well)} alarms")
    print(f"false alarms of all runs: {sum(len(run.false_alarms()) for run in found)}")
    print(f"kills: {len(known)}, an alarm before {sum(one is not None for one in leads)}; median lead "
          f"{median(known) if known else 0:.1f} s, of those with one "
          f"{median([x for x in leads if x is not None] or [0]):.1f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
