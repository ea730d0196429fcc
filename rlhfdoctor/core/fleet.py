"""Many runs one after the other: each to the row of its verdict, by a worker for each core."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rlhfdoctor import interpreters
from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.ray_fleet import judge_on_nodes
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_catalogue
from rlhfdoctor.errors import DoctorError
from rlhfdoctor.fleet import Fleet, FleetRow, unreadable_row
from rlhfdoctor.i18n.language import load_language
from rlhfdoctor.i18n.message import ENGLISH, Language, Message
from rlhfdoctor.paths import Paths, listed
from rlhfdoctor.report.next_step import next_step
from rlhfdoctor.report.phrasing import headline
from rlhfdoctor.report.sanitize import clean
from rlhfdoctor.types import Incident

_OWN_CLOCK = ("trace", "Ray's logs", "job log")
"""Sources that begin with the run; a kernel log begins with the node."""
_ERRORS = ("exception", "other", "sigsegv", "")
"""Killers that say little: the line that reports the end distinguishes such ends."""
_JUDGE = f"{__name__}:make_judge"
_HOUR_S = 3600.0
_LONGEST_S = 90 * 24 * _HOUR_S
"""No training runs for longer without a new log; such stamps are of two runs, or of a year that a log does not say."""
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{12,}\b|\d+(?:\.\d+)*", re.IGNORECASE)
_FOLDERS = re.compile(r"(?:/[\w.@+-]+)+/")


class ReadOptions(msgspec.Struct, frozen=True):
    """How each run is read."""

    configs: tuple[str, ...] = ()
    framework: str | None = None
    since: float | None = None
    until: float | None = None
    min_confidence: float = 0.0
    lang: str = "en"
    """Of the rows' titles."""
    rules: tuple[str, ...] = ()
    """Folders of further rules."""


def analyze_each(
    paths: Paths,
    *,
    configs: Paths = (),
    framework: str | None = None,
    rules: Paths = (),
    since: float | None = None,
    until: float | None = None,
    min_confidence: float = 0.0,
    before: Fleet | None = None,
    workers: int | None = None,
    ray_address: str | None = None,
    progress: Callable[[FleetRow], None] | None = None,
) -> Fleet:
    """What ended each of many runs.

    Args:
        paths: of one run each, as `analyze` takes them.
        configs, framework, rules, since, until, min_confidence: for each of them, as `analyze` takes them.
        before: an earlier fleet; `same_as` refers to it, too.
        workers: processes; None for one a core, 0 for none.
        ray_address: of a cluster whose nodes read the runs, which all of them must reach, instead of this machine.
        progress: called with each row, in the order of the paths.

    Raises:
        RuleError: a rule has faults.
    """
    reading = ReadOptions(listed(configs), framework, since, until, min_confidence, rules=listed(rules))
    rows = []
    for row in judge_each(listed(paths), reading, workers, ray_address):
        rows.append(row)
        if progress is not None:
            progress(row)
    return Fleet(tuple(rows)).after(before.rows if before is not None else ())


def judge_each(
    paths: Sequence[str],
    reading: ReadOptions,
    workers: int | None = None,
    ray_address: str | None = None,
    tell: Callable[[Message], None] = lambda _: None,
) -> Iterator[FleetRow]:
    """The rows of these runs, in order, each as soon as it and those before it are known.

    Raises:
        RuleError: a rule has faults.
    """
    load_catalogue(*map(Path, reading.rules))
    if ray_address is not None:
        yield from judge_on_nodes(paths, _JUDGE, msgspec.to_builtins(reading), ray_address, tell)
        return
    count = interpreters.count_workers(len(paths)) if workers is None else min(workers, len(paths))
    if not count:
        judge = make_judge(msgspec.to_builtins(reading))
        yield from (judge(path, lambda _: None) for path in paths)
        return
    found = interpreters.answers(_JUDGE, [msgspec.to_builtins(reading)], list(map(str, paths)), count)
    for path, row in zip(paths, found):
        yield row if row is not None else unreadable_row(path, "reading it ended the process that read it")


def make_judge(reading: dict[str, Any]) -> interpreters.Answerer:
    """What a worker does with the path of a run."""
    options = msgspec.convert(reading, ReadOptions)
    added = tuple(map(Path, options.rules))
    catalogue, words = load_catalogue(*added), load_language(options.lang, *added)

    def judge(path: str, _say: Callable[[int], None]) -> FleetRow:
        try:
            with Session(
                [path],
                configs=options.configs,
                framework=options.framework,
                since=options.since,
                until=options.until,
            ) as session:
                incident = make_incident(session, catalogue, options.min_confidence)
        except DoctorError as error:
            return unreadable_row(path, str(error))
        return make_row(path, incident, words)

    return judge


def make_row(path: str, incident: Incident, words: Language = ENGLISH) -> FleetRow:
    """The row of an incident."""
    death, best, framework = incident.death, incident.best, incident.framework
    own = [covered for covered in incident.coverage.read if covered.kind in _OWN_CLOCK]
    begins = [covered.from_s for covered in own if covered.from_s is not None]
    ends = [covered.until_s for covered in own if covered.until_s is not None]
    began_s = min(begins, default=None)
    ended_s = death.time if death is not None and death.time is not None else max(ends, default=None)
    if began_s is not None and ended_s is not None and not 0 <= ended_s - began_s <= _LONGEST_S:
        began_s = ended_s = None
    hosts = len({host for covered in own for host in covered.hosts}) or 1
    known = began_s is not None and ended_s is not None
    return FleetRow(
        path=path,
        verdict=incident.verdict,
        title=words(headline(incident)),
        next_step=words(next_step(incident)),
        cause=best.cause if best is not None else None,
        confidence=best.confidence if best is not None else None,
        killer=(death.killer or None) if death is not None else None,
        framework=framework.name if framework is not None else None,
        version=str(framework.version) if framework is not None and framework.version else None,
        node=death.node if death is not None else None,
        role=death.victim.role if death is not None else None,
        phase=death.phase if death is not None else None,
        step=death.step if death is not None else None,
        began_s=began_s,
        ended_s=ended_s,
        hosts_count=hosts,
        node_hours=(ended_s - began_s) / _HOUR_S * hosts if known else None,  # type: ignore[operator]
        safe_patches_count=sum(patch.safety == "safe" for patch in best.patches) if best is not None else 0,
        fingerprint=find_fingerprint(incident),
    )


def find_fingerprint(incident: Incident) -> str | None:
    """Twelve hexadecimal digits that runs share which ended the same way; None where nothing ended badly.

    Of a decided incident: the framework, the first cause, the limit that was hit, the role that held the memory, the
    phase. Of an error, and where nothing is decided, also the line that reports the end, without numbers and folders.
    """
    if incident.death is None and incident.verdict != "undecided":
        return None
    death, axes = incident.death, incident.axes
    parts = [
        incident.framework.name if incident.framework is not None else "",
        incident.best.cause if incident.verdict == "cause" and incident.best is not None else incident.verdict,
        axes.limit.name if axes.limit is not None else "",
        (axes.consumer.role or "") if axes.consumer is not None else "",
        (axes.moment.phase or "") if axes.moment is not None else "",
    ]
    if incident.verdict != "cause" or (death is not None and death.killer in _ERRORS):
        lines = [death.event] if death is not None and death.event is not None else list(incident.unrecognised[-1:])
        parts += [death.killer if death is not None else "", *(shape_of(line.text) for line in lines if line)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def shape_of(text: str) -> str:
    """A line without what differs from run to run.

    >>> shape_of("(Actor pid=12, ip=10.0.0.2) ValueError: /data/ann/x.jsonl line 17 at 0x7f3a")
    '(Actor pid=0, ip=0) ValueError: x.jsonl line 0 at 0'
    """
    return " ".join(_NUMBERS.sub("0", _FOLDERS.sub("", clean(text, 400))).split())
