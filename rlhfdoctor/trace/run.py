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
from rlhfdoctor.files.read import Refused, read_bytes
from rlhfdoctor.files.walk import names_ending, walk
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.skipped import SKIPPED_FOLDERS
from rlhfdoctor.sources.procfs import read_boot_id
from rlhfdoctor.trace.events import Recorded, make_events
from rlhfdoctor.trace.read import find_nodes, is_run, read_node
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Event, Gap

_CONFIG_BYTES, _CONFIGS_BYTES = 8 << 20, 64 << 20
"""Of one file that run.json names, and of all of them."""
_NO_FILES = ("/proc/", "/sys/", "/dev/")
"""What the kernel makes while it is read; of /proc/kmsg what was read is gone."""
_EVERY_S = 10.0
"""Before the last ten minutes one sample in this time is enough for a verdict."""


@dataclass(slots=True)
class Run:
    """What a run's folder offers."""

    traces: list[Recorded] = field(default_factory=list)
    """Of every node, as much as a verdict needs."""
    events: list[Event] = field(default_factory=list)
    files: dict[str, str | None] = field(default_factory=dict)
    """Logs and configuration to be read like any others, each with the real folder that no link may lead out of; None
    for the user's own files, which are read where they are still the same."""
    places: dict[str, tuple[str | None, tzinfo]] = field(default_factory=dict)
    """File -> node and time zone, for its logs."""
    shown_only: set[str] = field(default_factory=set)
    """Those with settings that are not for the user to edit."""
    gaps: list[Gap] = field(default_factory=list)


def find_runs(path: str) -> list[Path]:
    """The path itself, or the runs right below it."""
    folder = Path(path)
    if path == "-" or not os.path.isdir(folder):  # the reason is reported when it is opened
        return []
    if is_run(folder):
        return [folder]
    inner = (Path(name) for name in names_ending(folder, ""))
    return [one for one in inner if names_ending(one, SUFFIX) and not os.path.islink(one)]


def find_unread(path: str, runs: Sequence[Path]) -> Iterator[Gap]:
    """Folders with a trace that are deeper than `find_runs` looks."""
    for name, files in walk(path, enters=lambda name: name not in SKIPPED_FOLDERS and not name.startswith(".")):
        folder = Path(name)
        if folder not in runs and not any(run in runs for run in folder.parents):
            if any(file.name.endswith(SUFFIX) for file in files):
                why = say("a recorded run that was not read: it lies too deep; pass this folder itself")
                yield Gap(what=quoted(name), why=why)


def read_run(path: Path, share: int | None = None) -> Run:
    """All of one run's folder but the text of its logs.

    Args:
        share: how many nodes are read in all, with those of other runs.
    """
    run = Run()
    nodes = find_nodes(path)
    for node in nodes:
        try:
            recorded = Recorded(read_node(node, every_s=_EVERY_S, share=share or len(nodes)))
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
    nodes = [node for path in paths for run in find_runs(path) for node in find_nodes(run)]
    for node in nodes:
        with contextlib.suppress(SourceError):  # reported in the incident's gaps
            found.append(Recorded(read_node(node, every_s=_EVERY_S, share=len(nodes))))
    return found


_OWN_FILE = re.compile(r"(?:run\.json|orders\.json|lock|recorder\.log|versions\.txt|command\.sh)(?:\.|$)|.*\.trace$")
"""What the recorder itself writes at the top of a run's folder."""


def _files_of(node: Path, recorded: Recorded, run: Run) -> None:
    inside = os.path.realpath(node)

    def refused(name: str, why: str) -> None:
        run.gaps.append(Gap(what=quoted(name), why=quoted(why)))

    logs = []
    if os.path.isdir(node / "logs"):
        found = [file.path for _, files in walk(node / "logs", refused=refused) for file in files]
        logs = [name for name in found if os.path.isfile(name)]
    run.files.update(dict.fromkeys(logs, inside))
    zone = timezone(timedelta(seconds=int(recorded.node.run.get("utc_offset_s") or 0)))
    run.places.update(dict.fromkeys(logs, (str(recorded.node.run.get("node") or "") or None, zone)))
    for name in ("versions.txt", "command.sh"):
        if os.path.isfile(node / name):
            run.files[str(node / name)] = inside
            run.shown_only.add(str(node / name))
    # a sender of the folder must not choose what is opened here
    ours = recorded.node.run.get("boot_id") == read_boot_id()
    unchanged = _Unchanged(node / "run.json", run.gaps)
    configs = recorded.node.run.get("configs") or []
    if any("\0" in str(config.get("path")) for config in configs):
        run.gaps.append(Gap(what=quoted(node / "run.json"), why=say("names a path with a NUL in it")))
    for config in configs:
        own, copy = Path(str(config.get("path"))), node / str(config.get("copy"))
        if ours and unchanged.is_so(own, str(config.get("sha256"))):
            run.files[str(own)] = None
        elif os.path.isfile(copy):
            run.files[str(copy)] = inside
            run.shown_only.add(str(copy))
            if ours and os.path.isfile(own):
                run.gaps.append(
                    Gap(
                        what=quoted(own),
                        why=say("has changed since the run; the copy of then was read: {copy}", copy=str(copy)),
                    )
                )
    copies = {str(config.get("copy")) for config in configs}
    added = (*names_ending(node, ""), *names_ending(node / "config", ""))  # by the user: a launch script, dmesg
    for path in sorted(map(Path, added)):
        if os.path.isfile(path) and not _OWN_FILE.match(path.name) and str(path.relative_to(node)) not in copies:
            run.files[str(path)] = inside


class _Unchanged:
    """Which of the user's own files are as run.json says that they were."""

    def __init__(self, run_file: Path, gaps: list[Gap]) -> None:
        self._run_file, self._gaps = run_file, gaps
        self._hashes: dict[Path, str] = {}
        self._left_bytes = _CONFIGS_BYTES
        owner = run_file.stat().st_uid if run_file.exists() else os.geteuid()
        self._owners = () if owner == os.geteuid() else (owner,)

    def is_so(self, path: Path, sha256: str) -> bool:
        """Whether a file has this hash; each is read once, another user's only where the run is that user's, too."""
        if path not in self._hashes:
            self._hashes[path] = self._hash(path)
        return self._hashes[path] == sha256

    def _hash(self, path: Path) -> str:
        try:
            if self._left_bytes <= 0 or os.path.realpath(path).startswith(_NO_FILES):
                return ""
            data = read_bytes(path, _CONFIG_BYTES, owners=self._owners)
        except Refused as error:
            self._gaps.append(Gap(what=quoted(path), why=quoted(error.strerror)))
        except OSError:
            pass  # gone: the copy is read
        except ValueError as error:
            self._gaps.append(Gap(what=quoted(self._run_file), why=quoted(error)))
        else:
            self._left_bytes -= len(data)
            return hashlib.sha256(data).hexdigest()
        return ""
