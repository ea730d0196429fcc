"""A redacted archive of what a run left behind, for an issue tracker: `doctor analyze` gives it the same verdict."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import json
import os
import tarfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from rlhfdoctor.core.diagnose import make_incident
from rlhfdoctor.core.session import Session
from rlhfdoctor.engine.catalogue import load_catalogue
from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.write import create
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.logs.flight import MOST_BYTES, plain_dump, rank_of_dump
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.plugins import folders
from rlhfdoctor.privacy.controls import numbered
from rlhfdoctor.privacy.redact import Redactor
from rlhfdoctor.trace.archive import MANIFEST
from rlhfdoctor.trace.frames import EVENT, HEADER, Frame, json_payload, pack
from rlhfdoctor.trace.read import find_nodes
from rlhfdoctor.trace.run import find_runs
from rlhfdoctor.trace.segment import SegmentReader
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Gap, Incident
from rlhfdoctor.units import show_bytes

_LONGEST_LINE = 64 << 10
_LONGEST_KEY = 64 << 10
_HEAD_BYTES, _TAIL_BYTES = 16 << 20, 48 << 20
"""Of a log that is longer, its middle is left out."""


@dataclass(slots=True)
class Bundle:
    """What was written."""

    path: Path
    files: list[dict[str, Any]] = field(default_factory=list)
    """name, bytes, sha256 of each member."""
    cut: list[str] = field(default_factory=list)
    """What was left out, in sentences."""
    tokens: dict[str, int] = field(default_factory=dict)
    """Kind -> how many different names have a token."""
    changes: dict[str, int] = field(default_factory=dict)
    """Kind -> how many places were changed."""
    before: Incident | None = None
    after: Incident | None = None

    @property
    def same(self) -> bool:
        """Whether the archive gives the verdict of its source."""
        one, two = self.before, self.after
        return one is not None and two is not None and _gist(one) == _gist(two)


def make_bundle(
    paths: Sequence[str],
    target: Path,
    *,
    hide: Iterable[str] = (),
    framework: str | None = None,
    rules: Sequence[Path] = (),
    progress: Callable[[str, int], None] | None = None,
) -> Bundle:
    """Writes the archive and reads it back.

    Args:
        paths: as `analyze` takes them.
        target: a `.tar.gz` that does not exist yet.
        hide: further words to replace, such as the project's name.
        framework, rules: as for `analyze`.
        progress: called with a file's name and the bytes done so far.

    Raises:
        SourceError: nothing could be read.
        UsageError: the archive cannot be written.
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise UsageError(say("{file}: the archive is a .tar.gz; name it so", file=str(target)))
    if "-" in paths:
        raise UsageError(say("-: a bundle is made of files; write standard input to one first"))
    if target.exists():
        raise UsageError(say("{file}: File exists; an archive is not written over", file=str(target)))
    bundle, redactor = Bundle(path=target), Redactor(hide, folders.words())
    catalogue = load_catalogue(*rules)
    with Session(paths, framework=framework) as session:
        bundle.before = make_incident(session, catalogue)
        _learn(session, redactor, progress)
        _write(session, bundle, redactor)
    with Session([str(target)], framework=framework) as session:
        bundle.after = make_incident(session, catalogue)
    return bundle


def _learn(session: Session, redactor: Redactor, progress: Callable[[str, int], None] | None) -> None:
    """Names of machines as recorders noted them, then what all texts name."""
    for trace in session.traces:
        for facts in (trace.node.run, trace.node.header):
            for key in ("host", "node"):
                redactor.learn_host(str(facts.get(key) or ""), surely=True)
    for text in _texts(session, progress):
        redactor.learn(text)


def _write(session: Session, bundle: Bundle, redactor: Redactor) -> None:
    target = bundle.path
    try:
        with (
            os.fdopen(create(target), "wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            writer = _Writer(archive, bundle, redactor)
            for number, path in enumerate(session.names):
                writer.add(path, session.shown(path), f"{number}-{'run' if find_runs(path) else 'input'}")
            bundle.tokens, bundle.changes = redactor.kinds, dict(redactor.counts)
            writer.add_bytes(MANIFEST, json.dumps(_manifest(bundle), indent=1).encode(), time.time())
    except OSError as error:
        target.unlink(missing_ok=True)
        raise UsageError(joined(quoted(target), quoted(error.strerror or error), by=": ")) from None
    except BaseException:
        target.unlink(missing_ok=True)  # no partly redacted file remains
        raise


def _gist(incident: Incident) -> tuple[object, ...]:
    death = incident.death
    return incident.verdict, death.killer if death else None, [f.cause for f in incident.findings[:1]]


def _manifest(bundle: Bundle) -> dict[str, Any]:
    from rlhfdoctor.version import VERSION

    return {
        "schema": "rlhfdoctor.bundle/1",
        "doctor": VERSION,
        "taken": bundle.files,
        "cut": bundle.cut,
        "tokens": bundle.tokens,
        "changes": bundle.changes,
    }


def _texts(session: Session, progress: Callable[[str, int], None] | None) -> Iterator[str]:
    """All text once, in pieces of whole lines, to learn names from; and names from the traces."""
    done = 0
    for source in find_sources(list(session.names), []):
        if rank_of_dump(source.name) is not None:
            continue
        yield session.shown(source.name)
        for lines in _pieces(source, Counter()):
            done += len(lines)
            if progress is not None:
                progress(session.shown(source.name), done)
            yield lines
    for path in session.names:
        for run in find_runs(path):
            for segment in (file for node in find_nodes(run) for file in sorted(node.glob(f"*{SUFFIX}"))):
                for frame in _frames(segment):
                    if frame.kind in (EVENT, HEADER):
                        yield frame.payload.decode("utf-8", "replace")


def _frames(segment: Path) -> Iterator[Frame]:
    """The whole frames of a segment; what cannot be read is a gap of the verdict."""
    with contextlib.suppress(OSError):
        for item, _ in SegmentReader(str(segment)).frames(final=True):
            if isinstance(item, Frame):
                yield item


def _pieces(source: Source, cut: Counter[str]) -> Iterator[str]:
    """Text of a source, a megabyte of whole lines at a time; overlong lines are cut."""
    rest = b""
    for block in source.stream():
        data = rest + block
        end = data.rfind(b"\n") + 1
        rest = data[end:]
        opened = data.rfind(b"-----BEGIN ", 0, end)
        if opened >= 0 and b"-----END " not in data[opened:end] and end - opened < _LONGEST_KEY:
            end, rest = opened, data[opened:]  # a key is never cut in two
        if end:
            yield _short(data[:end], cut)
        if len(rest) > 16 * _LONGEST_LINE:
            cut["bytes of overlong lines"] += len(rest) - _LONGEST_LINE
            rest = rest[:_LONGEST_LINE]
    if rest:
        yield _short(rest, cut)


def _short(data: bytes, cut: Counter[str]) -> str:
    lines = data.split(b"\n")
    for place, line in enumerate(lines):
        if len(line) > _LONGEST_LINE:
            cut["bytes of overlong lines"] += len(line) - _LONGEST_LINE
            lines[place] = line[: _LONGEST_LINE - 512].rpartition(b" ")[0] or line[: _LONGEST_LINE - 512]
    return b"\n".join(lines).decode("utf-8", "surrogateescape")


def _inside(name: str) -> str:
    """A member's name that leads nowhere else, and that every tar can print.

    >>> _inside("0-input/../../a.log"), _inside("0-input//etc/x\\x1b.log")
    ('0-input/_/_/a.log', '0-input/etc/x\\\\u001b.log')
    """
    return numbered("/".join("_" if part in (".", "..") else part for part in name.split("/") if part))


class _Writer:
    """Puts redacted files into the archive."""

    def __init__(self, archive: tarfile.TarFile, bundle: Bundle, redactor: Redactor) -> None:
        self._archive, self._bundle, self._redactor = archive, bundle, redactor
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}
        """Name -> the number that its last copy got: of thousands, none is tried again."""

    def add(self, path: str, shown: str, name: str) -> None:
        """A path, as one folder of the archive; `shown` is its name as the user gave it."""
        gaps: list[Gap] = []
        folder = Path(path).is_dir()
        for source in find_sources([path], gaps):
            if folder:
                inside = str(PurePosixPath(Path(source.name.partition("!")[0]).relative_to(path)))
                member = source.name.partition("!")[2]
                inside += f"/{member}" if member else ""
            else:
                inside = source.name.partition("!")[2] or Path(source.name).name
            if inside.lower().endswith((".gz", ".zst", ".xz", ".bz2")):
                inside = inside.rpartition(".")[0]  # it is plain text here
            self._add_source(source, f"{name}/{inside}")
        for run in find_runs(path):
            for segment in (file for node in find_nodes(run) for file in sorted(node.glob(f"*{SUFFIX}"))):
                inside = str(PurePosixPath(segment.relative_to(path)))
                self.add_bytes(f"{name}/{inside}", self._segment(segment), segment.stat().st_mtime)
        self._bundle.cut += [self._redactor.text(f"{gap.what}: {gap.why}".replace(path, shown)) for gap in gaps]

    def _add_source(self, source: Source, name: str) -> None:
        if rank_of_dump(source.name) is not None:
            dump = plain_dump(source.read(MOST_BYTES))
            if dump is not None:
                self.add_bytes(name, json.dumps(self._redactor.value(dump)).encode(), source.modified or time.time())
            else:
                self._bundle.cut.append(self._redactor.text(f"{name}: no readable dump of a flight recorder"))
            return
        cut: Counter[str] = Counter()
        head, tail = io.BytesIO(), deque[bytes]()
        kept = left_out = 0
        for lines in _pieces(source, cut):
            data = self._redactor.text(lines).encode("utf-8", "surrogateescape")
            if head.tell() < _HEAD_BYTES:
                head.write(data)
                continue
            tail.append(data)
            kept += len(data)
            while kept - len(tail[0]) > _TAIL_BYTES:
                gone = tail.popleft()
                kept, left_out = kept - len(gone), left_out + len(gone)
        if left_out:
            head.write(f"[doctor bundle: {left_out} bytes left out here]\n".encode())
            cut["bytes in the middle"] += left_out
        self.add_bytes(name, head.getvalue() + b"".join(tail), source.modified or time.time())
        self._bundle.cut += [self._redactor.text(f"{name}: {show_bytes(size)} ({what})") for what, size in cut.items()]

    def add_bytes(self, name: str, data: bytes, modified: float) -> None:
        """A member, under a redacted name."""
        *folders, last = name.split("/")
        file = last if rank_of_dump(last) is not None else self._redactor.text(last)
        ending = PurePosixPath(last).suffix
        file += "" if file.endswith(ending) else ending
        clean = self._free(_inside("/".join([*map(self._redactor.text, folders), file])))
        info = tarfile.TarInfo(clean)
        info.size, info.mtime, info.mode = len(data), int(modified), 0o644
        self._archive.addfile(info, io.BytesIO(data))
        self._bundle.files.append({"name": clean, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()})

    def _segment(self, path: Path) -> bytes:
        """A segment of a trace with redacted events; samples are figures and stay. Damaged bytes are left out."""
        out = bytearray()
        for frame in _frames(path):
            payload = frame.payload
            if frame.kind in (EVENT, HEADER):
                try:
                    payload = json_payload(self._redactor.value(json.loads(payload)))
                except (ValueError, RecursionError):
                    continue
            out += pack(frame.kind, payload)
        return bytes(out)

    def _free(self, name: str) -> str:
        """A name that no member has yet: a log and its packed copy may be in one folder."""
        free = name
        while free in self._taken:
            self._numbers[name] = number = self._numbers.get(name, 1) + 1
            free = f"{name}.{number}"
        self._taken.add(free)
        return free
