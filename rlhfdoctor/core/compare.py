"""Two runs side by side: did the patch help?

Verdicts, peaks, growth, step time, settings, what is only noise, and whether the runs can show it at all.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from rlhfdoctor.comparison import Comparison, Figure
from rlhfdoctor.core.comparable import find_doubts, look_at
from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_catalogue
from rlhfdoctor.evidence.case import Case
from rlhfdoctor.evidence.window import FailureWindow, find_failure_window, find_process_usage, find_steps
from rlhfdoctor.i18n.message import say, term
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.trace.growth import theil_sen
from rlhfdoctor.trace.schema import NULL
from rlhfdoctor.types import Incident, Setting
from rlhfdoctor.vocabulary import RECORD_FIELD as R

_LEAST_STEPS = 4
_SPREADS = 3.0
"""Median absolute deviations, scaled to standard ones, by which steps of one run may differ."""
_LEAST_SHARE = 0.01
"""A difference below this share is noise, however still the run was."""


def compare(before: Paths, after: Paths, *, rules: Paths = ()) -> Comparison:
    """What differs between two runs.

    Example:
        >>> found = compare("samples/recorded-leak/run", "samples/recorded-sawtooth-healthy/run")
        >>> found.before.verdict, found.after.verdict
        ('cause', 'healthy')

    Args:
        before, after: each the paths of one run, as `analyze` takes them; figures need what `doctor watch` wrote, as
            its folder or in an archive.
        rules: folders of rules in addition to the bundled ones.

    Raises:
        SourceError: nothing could be read of one of them.
        RuleError: a rule has faults.
    """
    catalogue = load_catalogue(*map(Path, listed(rules)))
    with Session(before) as first, Session(after) as second:
        one, two = (make_incident(session, catalogue) for session in (first, second))
        windows = [_window(session, incident) for session, incident in ((first, one), (second, two))]
        doubts = tuple(find_doubts(look_at(first, one), look_at(second, two)))
    figures, settings = tuple(_figures(*windows)), tuple(_changed(one, two))
    return Comparison(before=one, after=two, figures=figures, settings=settings, doubts=doubts)


def _window(session: Session, incident: Incident) -> FailureWindow | None:
    return (
        find_failure_window(Case(incident.timeline, traces=session.traces), incident.death) if session.traces else None
    )


def _figures(before: FailureWindow | None, after: FailureWindow | None) -> Iterator[Figure]:
    """Figures from traces; a run without a trace has none."""
    windows = (before, after)
    if before is None and after is None:
        return
    uses = [_use(window) for window in windows]
    peaks = [_step_peaks(window, use) for window, use in zip(windows, uses, strict=True)]
    steps = [float(len(row)) if window is not None else None for row, window in zip(peaks, windows, strict=True)]
    yield Figure(name=say("steps begun"), unit="count", before=steps[0], after=steps[1])
    tops = [float(max(size for _, size in use)) if use else None for use in uses]
    yield Figure(
        name=say("all processes, at the peak"), unit="bytes", before=tops[0], after=tops[1], noise=_noise(peaks, tops)
    )
    roles = [_by_role(window, use) for window, use in zip(windows, uses, strict=True)]
    for role in sorted({*roles[0], *roles[1]}, key=lambda role: -max(row.get(role, 0) for row in roles)):
        sizes = [row.get(role) if row else None for row in roles]
        if max(size or 0 for size in sizes) >= _LEAST_SHARE * max(top or 0 for top in tops):
            yield Figure(
                name=say("{role}, then", role=term(role)),
                unit="bytes",
                before=sizes[0],
                after=sizes[1],
                noise=_noise(peaks, sizes),
            )
    slopes = [_slope(row) for row in peaks]
    spread = [abs(high - low) / 2 for slope in slopes if slope is not None for _, low, high in (slope,)]
    rates = [slope[0] if slope is not None else None for slope in slopes]
    yield Figure(
        name=say("growth of the peaks"),
        unit="bytes_per_step",
        before=rates[0],
        after=rates[1],
        noise=max(spread, default=None),
    )
    yield _step_time(before, after)


def _use(window: FailureWindow | None) -> list[tuple[float, int]]:
    """(Unix seconds, anonymous and page-locked memory of all processes of the run) at each sample until the death."""
    table = window.trace.node.tables.get("process") if window is not None else None
    if window is None or table is None:
        return []
    ours = {uid for uid, row in window.trace.known["process"].items() if row.get(R.role) != "doctor"}
    anon, shmem, locked = (table.values[name] for name in ("rss_anon_bytes", "rss_shmem_bytes", "locked_bytes"))
    sums: dict[float, int] = {}
    for place, uid in enumerate(table.keys):
        at = window.trace.seconds(table.times_ns[place])
        if uid in ours and at <= window.until_s and anon[place] != NULL:
            held = min(locked[place], shmem[place])
            sums[at] = sums.get(at, 0) + anon[place] + (held if held != NULL else 0)
    return sorted(sums.items())


def _step_peaks(window: FailureWindow | None, use: Sequence[tuple[float, int]]) -> list[int]:
    """The highest use of each step, the load before the first one left out."""
    if window is None:
        return []
    starts = [at for at in find_steps(window.trace) if at <= window.until_s][1:]
    found = []
    for begin, end in pairwise([*starts, window.until_s]):
        inside = [value for at, value in use if begin <= at <= end]
        if inside:
            found.append(max(inside))
    return found


def _by_role(window: FailureWindow | None, use: Sequence[tuple[float, int]]) -> dict[str, float]:
    """The same by role at the peak."""
    if window is None or not use:
        return {}
    peak_s, _ = max(use, key=lambda point: point[1])
    sizes: dict[str, float] = {}
    for usage in find_process_usage(window, peak_s):
        sizes[usage.role] = sizes.get(usage.role, 0) + usage.anon_bytes + min(usage.locked_bytes, usage.shmem_bytes)
    return sizes


def _noise(peaks: Sequence[Sequence[int]], sizes: Sequence[float | None]) -> float:
    """Deviation of neighbouring steps' peaks from their trend, and at least a hundredth of the size."""
    spreads = [
        _SPREADS * _deviation([b - a for a, b in pairwise(row)]) / 2**0.5 for row in peaks if len(row) > _LEAST_STEPS
    ]
    return max([*spreads, *(_LEAST_SHARE * size for size in sizes if size)], default=0.0)


def _deviation(values: Sequence[float]) -> float:
    """Median absolute deviation, scaled to a standard deviation."""
    middle = statistics.median(values)
    return 1.4826 * statistics.median(abs(value - middle) for value in values)


def _slope(peaks: Sequence[int]) -> tuple[float, float, float] | None:
    warm = peaks[1:]  # the first optimizer step allocates its states in every run
    return theil_sen([(float(i), value) for i, value in enumerate(warm)]) if len(warm) >= _LEAST_STEPS else None


def _step_time(before: FailureWindow | None, after: FailureWindow | None) -> Figure:
    times = [
        [b - a for a, b in pairwise(find_steps(window.trace)[1:])] if window is not None else []
        for window in (before, after)
    ]
    middles = [statistics.median(row) if row else None for row in times]
    spreads = [_SPREADS * _deviation(row) for row in times if len(row) >= _LEAST_STEPS]
    noise = max([*spreads, *(_LEAST_SHARE * middle for middle in middles if middle)]) if spreads else None
    return Figure(name=say("time of a step"), unit="s", before=middles[0], after=middles[1], noise=noise)


def _shows_death(incident: Incident, setting: Setting) -> bool:
    """Whether only the message of the death shows a setting's value: a run that lives has no such line."""
    event = incident.death.event if incident.death is not None else None
    place = (setting.origin.file, setting.origin.line)
    return event is not None and place == (event.origin.file, event.origin.line)


def _changed(
    one: Incident, two: Incident
) -> Iterator[tuple[str, str | int | float | bool | None, str | int | float | bool | None]]:
    rows = [{s.name: s for s in incident.settings if not _shows_death(incident, s)} for incident in (one, two)]
    for name in sorted({*rows[0], *rows[1]}):
        first, second = rows[0].get(name), rows[1].get(name)
        values = [None if setting is None else setting.value for setting in (first, second)]
        if values[0] != values[1]:
            shown = [None if setting is None else setting.written for setting in (first, second)]
            yield next(s.spelled for s in (second, first) if s is not None), shown[0], shown[1]
