"""Follows log files: copies their tails to the run's folder, finds the lines that mark a step or phase.

A Ray session lives on /tmp and dies with the pod, so the tails are copied while the run is alive. A
copy holds at most twice `_KEEP_BYTES` of each file; what a burst skips is noted in the copy.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from rlhfdoctor.files.read import open_binary
from rlhfdoctor.files.walk import names_in
from rlhfdoctor.files.write import append, make_folder
from rlhfdoctor.logs import frameworks, phases, steps
from rlhfdoctor.logs.finders import required_literals
from rlhfdoctor.logs.pattern import Pattern, compiled
from rlhfdoctor.sources.ray import MOST_LOGS
from rlhfdoctor.types import Value
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Field

_KEEP_BYTES = 1 << 20
_MOST_PER_READ = 256 << 10
_MOST_AT_ONCE = 4 << 20
"""Of all files in a read; the next one begins with those that waited."""
_MOST_TRIES, _MOST_TRIES_OF_FILE = 100_000, 25_000
"""Of a pattern with a line, in a read; of more lines the last ones are looked at, as of a burst."""
_LINE_BYTES = 8192
_MOST_FILES = 400
_MARKS = tuple(
    p
    for p in (*frameworks.PATTERNS, *phases.PATTERNS, *steps.PATTERNS)
    if p.kind.scope == "phase" or p.kind == EVENT.progress.bar
)
_SESSION_LOG = re.compile(
    r"^(?:worker-.*|raylet|gcs_server|python-core-.*|job-driver-.*|runtime_env_agent|monitor)\.(?:out|err|log)$"
)
_LINE = re.compile(rb"[^\r\n]+")


@dataclass(slots=True)
class Tail:
    """One followed file."""

    path: str
    copy: str | None
    """Where its tail goes; None: it is already in the run's folder."""
    inode: int = 0
    offset: int = 0
    copied: int = 0
    rest: bytes = b""
    owners: Collection[int] = ()
    """Whose file it may be."""


class LogTailer:
    """All followed files."""

    def __init__(self, folder: str, *, from_end: bool = False) -> None:
        """Follows nothing yet.

        Args:
            folder: of the copies; they are made below it.
            from_end: files that are there already are followed from their end: another recorder had them.
        """
        self._folder, self._from_end = folder, from_end
        self._followed: dict[str, Tail] = {}
        self._literals = [(pattern, required_literals(pattern.regex)) for pattern in _MARKS]
        self._sessions: dict[str, Collection[int]] = {}
        """Folder of logs -> whose files in it are followed."""
        self.failed: set[str] = set()
        self._left_bytes = self._left_tries = self._first = 0

    def add(self, path: str, copy: str | None = None, owners: Collection[int] = (), inode: int | None = None) -> None:
        """Follows a file from its beginning; `copy` is its name below the folder of the copies.

        Args:
            inode: of the file; one that is copied there already has got another name, and is followed on under that.
        """
        target = None if copy is None else f"{self._folder}/{copy}"
        known = (tail for tail in self._followed.values() if (tail.copy, tail.inode) == (target, inode))
        before = next(known, None)
        if before is not None and path not in self._followed:
            del self._followed[before.path]
            before.path = path
            self._followed[path] = before
        if path not in self._followed and len(self._followed) < _MOST_FILES:
            tail = self._followed[path] = Tail(path, target, owners=owners)
            if self._from_end:
                with contextlib.suppress(OSError):
                    info = os.stat(path)
                    tail.inode, tail.offset = info.st_ino, info.st_size

    def add_session(self, logs: str, owners: Collection[int] = ()) -> None:
        """Follows the logs of a Ray session that belong to these users; new files are found on every `look`."""
        self._sessions.setdefault(logs, owners)

    def look(self) -> None:
        """Finds the files of the sessions that are new."""
        for number, (logs, owners) in enumerate(list(self._sessions.items())):
            if len(self._followed) >= _MOST_FILES:
                break
            prefix = "ray" if number == 0 else f"ray-{number + 1}"
            with contextlib.suppress(OSError):
                for name in names_in(logs, MOST_LOGS):
                    if _SESSION_LOG.match(name):
                        self.add(f"{logs}/{name}", f"{prefix}/{name}", owners)
        if self._sessions:
            self._from_end = False  # what appears later is new

    def read(self, most_bytes: int = _MOST_AT_ONCE) -> Iterator[tuple[Pattern, Mapping[Field, Value], str]]:
        """Marks in what the files gained since the last call: pattern, fields, file."""
        self._left_bytes, self._left_tries = most_bytes, _MOST_TRIES
        tails, first = list(self._followed.values()), self._first
        self._first = 0
        for place in (*range(first, len(tails)), *range(first)):
            if self._left_bytes <= 0:
                self._first = place
                return
            yield from self._marks(self._fresh_lines(tails[place]), tails[place].path)

    def _marks(self, lines: list[bytes], path: str) -> Iterator[tuple[Pattern, Mapping[Field, Value], str]]:
        """Of each line the first pattern that fits; only those are tried of which all lines together hold a literal."""
        block = b"\n".join(lines)
        tried = [row for row in self._literals if not row[1] or any(literal in block for literal in row[1])]
        if not tried:
            return
        most = min(self._left_tries, _MOST_TRIES_OF_FILE) // len(tried)
        for line in lines[max(0, len(lines) - most) :]:
            self._left_tries -= len(tried)
            line = line[:_LINE_BYTES]
            for pattern, literals in tried:
                if literals and not any(literal in line for literal in literals):
                    continue
                match = compiled(pattern.regex).search(line.decode("utf-8", "replace"))
                if match is not None:
                    yield pattern, pattern.fields(match), path
                    break

    def _fresh_lines(self, tail: Tail) -> list[bytes]:
        try:
            info = os.stat(tail.path)
            if info.st_ino != tail.inode or info.st_size < tail.offset:
                tail.inode, tail.offset, tail.rest = info.st_ino, 0, b""  # rotated or cut
            if info.st_size == tail.offset:
                return []
            skipped = max(0, info.st_size - tail.offset - _MOST_PER_READ)
            with open_binary(tail.path, follow=False, owners=tail.owners) as file:
                file.seek(tail.offset + skipped)
                data = file.read(_MOST_PER_READ)
            tail.offset += skipped + len(data)
            self._left_bytes -= len(data)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.failed.add(f"{tail.path}: {error.strerror}")
            return []
        if tail.copy is not None:
            note = b"\nrlhfdoctor: %d bytes of a burst were not copied\n" % skipped if skipped else b""
            self._copy(tail, note + data)
        text = (b"" if skipped else tail.rest) + data
        cut = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        tail.rest = text[cut:][-4096:]
        return _LINE.findall(text[:cut])

    def _copy(self, tail: Tail, data: bytes) -> None:
        """Appends to the copy; a full one becomes `.1`, so that at least `_KEEP_BYTES` are always there."""
        assert tail.copy is not None
        try:
            make_folder(os.path.dirname(tail.copy))
            if tail.copied and tail.copied + len(data) > _KEEP_BYTES:
                stem, ending = os.path.splitext(tail.copy)
                os.replace(tail.copy, f"{stem}.1{ending}")
                tail.copied = 0
            with os.fdopen(append(tail.copy, real=True), "ab", 0) as file:
                file.write(data)
            tail.copied += len(data)
        except OSError as error:
            self.failed.add(f"{tail.copy}: {error.strerror}")
