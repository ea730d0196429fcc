"""The folder of a recorded run as `doctor analyze` reads it: traces, logs, the configuration in force."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta, timezone, tzinfo
from pathlib import Path

from rlhfdoctor.errors import SourceError
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.open import SKIPPED_FOLDERS
from rlhfdoctor.trace.events import Recorded, make_events
from rlhfdoctor.trace.read import find_nodes, is_run, read_node
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Event, Gap

_EVERY_S = 10.0
"""Before the last ten minutes one sample in this time is enough for a verdict."""


@dataclass(slots=True)
class Run:
    """What a run's folder offers."""

    traces: list[Recorded] = field(default_factory=list)
    """Of every node, as much as a verdict needs."""
    events: list[Event] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Logs and configuration to be read like any others; the user's own files where they are still the same."""
    places: dict[str, tuple[str | None, tzinfo]] = field(default_factory=dict)
    """File -> node and time zone, for its logs."""
    shown_only: set[str] = field(default_factory=set)
    """Those with settings that are not for the user to edit."""
    gaps: list[Gap] = field(default_factory=list)


def find_runs(path: str) -> list[Path]:
    """The path itself, or the runs right below it."""
    folder = Path(path)
    try:
        if path == "-" or not folder.is_dir():
            return []
    except OSError:
        return []  # the reason is reported when it is opened
    if is_run(folder):
        return [folder]
    return sorted({trace.parent for trace in folder.glob("*/*.trace")})


def find_unread(path: str, runs: Sequence[Path]) -> Iterator[Gap]:
    """Folders with a trace that are deeper than `find_runs` looks."""
    for name, folders, files in os.walk(path):
        folder = Path(name)
        if folder in runs:
            folders.clear()
            continue
        folders[:] = [inner for inner in folders if inner not in SKIPPED_FOLDERS and not inner.startswith(".")]
        if any(file.endswith(SUFFIX) for file in files):
            yield Gap(
                what=quoted(name),
                why=say("a recorded run that was not read: it lies too deep; pass this folder itself"),
            )


def read_run(path: Path) -> Run:
    """All of one run's folder but the text of its logs."""
    run = Run()
    for node in find_nodes(path):
        try:
            recorded = Recorded(read_node(node, every_s=_EVERY_S))
        except SourceError as error:
            run.gaps.append(Gap(what=quoted(node), why=error.says))
            continue
        run.gaps.extend(recorded.node.gaps)
        run.traces.append(recorded)
        run.events.extend(make_events(recorded))
        _files_of(node, recorded, run)
    if len(run.traces) == 0 and not run.gaps:
        run.gaps.append(Gap(what=quoted(path), why=say("no trace in it: the recorder wrote nothing")))
    return run


def read_traces(paths: Iterable[str]) -> list[Recorded]:
    """The traces of the runs that the paths hold, as much as a verdict needs; what cannot be read is left out."""
    found = []
    for node in (node for path in paths for run in find_runs(path) for node in find_nodes(run)):
        with contextlib.suppress(SourceError):  # reported in the incident's gaps
            found.append(Recorded(read_node(node, every_s=_EVERY_S)))
    return found


_OWN_FILE = re.compile(r"(?:run\.json|orders\.json|lock|recorder\.log|versions\.txt|command\.sh)(?:\.|$)|.*\.trace$")
"""What the recorder itself writes at the top of a run's folder."""


def _files_of(node: Path, recorded: Recorded, run: Run) -> None:
    logs = [str(p) for p in sorted((node / "logs").rglob("*")) if p.is_file()]
    run.files.extend(logs)
    zone = timezone(timedelta(seconds=int(recorded.node.run.get("utc_offset_s") or 0)))
    run.places.update(dict.fromkeys(logs, (str(recorded.node.run.get("node") or "") or None, zone)))
    for name in ("versions.txt", "command.sh"):
        if (node / name).is_file():
            run.files.append(str(node / name))
            run.shown_only.add(str(node / name))
    for config in recorded.node.run.get("configs") or []:
        own, copy = Path(str(config.get("path"))), node / str(config.get("copy"))
        if _same(own, str(config.get("sha256"))):
            run.files.append(str(own))
        elif copy.is_file():
            run.files.append(str(copy))
            run.shown_only.add(str(copy))
            if own.is_file():
                run.gaps.append(
                    Gap(
                        what=quoted(own),
                        why=say("has changed since the run; the copy of then was read: {copy}", copy=str(copy)),
                    )
                )
    copies = {str(config.get("copy")) for config in recorded.node.run.get("configs") or []}
    for path in sorted([*node.glob("*"), *node.glob("config/*")]):  # added by the user: a launch script, dmesg
        if path.is_file() and not _OWN_FILE.match(path.name) and str(path.relative_to(node)) not in copies:
            run.files.append(str(path))


def _same(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False
