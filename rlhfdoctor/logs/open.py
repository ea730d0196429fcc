"""Opens what a user passes: folders, archives, compressed files, addresses of a storage, standard input.

Every file becomes a `Source`, a name and a stream of bytes in UTF-8. What cannot be read
becomes a `Gap` with the reason. Archives are read as streams and not unpacked here;
`../` in member names is harmless, and a zip bomb ends at `_MOST_BYTES`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timezone, tzinfo
from pathlib import Path
from typing import IO, NamedTuple

from rlhfdoctor.errors import SourceError
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.logs.archive import READ_ERRORS, is_archive, read_members, reason
from rlhfdoctor.logs.flight import rank_of_dump
from rlhfdoctor.logs.remote import RemoteFile, find_remote, is_remote
from rlhfdoctor.logs.streams import Binary, decoded, decompressed, pieces, sniffed
from rlhfdoctor.logs.window import ALWAYS, Window
from rlhfdoctor.types import Gap

_MOST_BYTES = 64 * 1024**3
_MOST_FILES = 200_000
_SMALL_BYTES = 4096
SKIPPED_FOLDERS = frozenset({".git", "__pycache__", ".venv", "node_modules", "runtime_resources"})
_SKIPPED_ENDINGS = [
    ".pyc",
    ".so",
    ".o",
    ".a",
    ".whl",
    ".pt",
    ".pth",
    ".bin",
    ".safetensors",
    ".npy",
    ".npz",
    ".pkl",
    ".pickle",
    ".parquet",
    ".arrow",
    ".png",
    ".jpg",
    ".jpeg",
    ".pdf",
    ".mp4",
    ".ckpt",
    ".onnx",
    ".gguf",
    ".db",
    ".sqlite",
    ".sock",
    ".pid",
    ".distcp",
]
_TRACE = ".trace"
"""Segments of recorded runs, which rlhfdoctor.trace reads."""


class Part(NamedTuple):
    """Bytes of a file, from the line that begins at or behind the one place to the line at or behind the other."""

    begin: int
    end: int | None
    """None for the end of the file."""


@dataclass(frozen=True, slots=True)
class Source:
    """One file or stream, ready to be read once."""

    name: str
    stream: Callable[[], Iterator[bytes]]
    size_bytes: int | None = None
    modified: float | None = None
    """Unix seconds, where known; gives the year to stamps that lack it."""
    host: str | None = None
    """Node whose log it is, if recorded."""
    zone: tzinfo = timezone.utc
    """Time zone of stamps without one."""
    window: Window = ALWAYS
    """What happened outside of it does not count."""
    is_file: bool = False
    """Whether its name opens it, at any time, in any process: no member of an archive, no pipe."""
    is_archive: bool = False
    """Whether its files are sources of their own, and this one has no text."""
    part: Part | None = None
    """None for all of it."""
    fingerprint: Callable[[], bytes] | None = None
    """Detects copies of one file: a hash of its size, start and end. None for small files."""

    def read(self, limit_bytes: int = 8 * 1024**2) -> bytes:
        """The first bytes of the source at once, for configuration files."""
        data = bytearray()
        for block in self.stream():
            data += block
            if len(data) >= limit_bytes:
                break
        return bytes(data[:limit_bytes])


def find_sources(paths: Sequence[str], gaps: list[Gap], *, whole_archives: bool = False) -> Iterator[Source]:
    """All readable sources below the paths, in a stable order; what is skipped is added to `gaps`.

    Args:
        whole_archives: an archive is one source instead of its files.

    Raises:
        SourceError: a named path does not exist, or its storage cannot be reached.
    """
    count = 0
    for name in paths:
        if name == "-":
            if sys.stdin is None or sys.stdin.closed:
                raise SourceError(say("-: standard input is closed"))
            yield Source("-", lambda: guarded("-", lambda: sniffed(sys.stdin.buffer), gaps))
            continue
        if is_remote(name):
            yield from _remote_sources(name, gaps, whole_archives)
            continue
        path = Path(name)
        if not _exists(path):
            raise SourceError(
                say(
                    "{name}: no such file or folder.\n"
                    "Give the folder that Ray wrote (for example /tmp/ray/session_latest/logs), a log file, or - for "
                    "standard input.",
                    name=name,
                )
            )
        for file in _walk(path, gaps):
            count += 1
            if count > _MOST_FILES:
                gaps.append(_too_many(name))
                return
            yield from _open_file(file, gaps, whole_archives)


def _too_many(name: str) -> Gap:
    why = say("more than {most_files} files; the rest was not read", most_files=_MOST_FILES)
    return Gap(what=quoted(name), why=why)


def _remote_sources(url: str, gaps: list[Gap], whole_archives: bool) -> Iterator[Source]:
    """The files below an address; a recorded run is read from a disk only."""
    traces = 0
    for count, file in enumerate(find_remote(url)):
        if count >= _MOST_FILES:
            gaps.append(_too_many(url))
            return
        traces += file.name.endswith(_TRACE)
        inner = file.name[len(url) :].split("/")[:-1]
        if file.size_bytes == 0 or file.name.endswith((*_SKIPPED_ENDINGS, _TRACE)) or SKIPPED_FOLDERS & set(inner):
            continue
        if is_archive(file.name) and whole_archives:
            yield _archive(file.name, file.size_bytes, file.modified)
        elif is_archive(file.name):
            yield from _members(file.name, gaps, file.open)
        else:
            yield _remote_source(file, gaps)
    if traces:
        why = say("the recorded run in it was not read: copy it to a disk of this machine, and name that folder")
        gaps.append(Gap(what=quoted(url), why=why))


def _remote_source(file: RemoteFile, gaps: list[Gap]) -> Source:
    lower = file.name.lower()

    def blocks() -> Iterator[bytes]:
        with file.open() as raw:
            yield from _text(raw, lower)

    name = file.name
    return Source(name, lambda: guarded(name, blocks, gaps), file.size_bytes, file.modified, is_file=True)


def _fingerprint(path: Path, size: int) -> bytes:
    try:
        with path.open("rb") as handle:
            start = handle.read(_SMALL_BYTES * 16)
            handle.seek(max(size - _SMALL_BYTES * 16, 0))
            return hashlib.sha256(b"%d|%b|%b" % (size, start, handle.read(_SMALL_BYTES * 16))).digest()
    except OSError:
        return b""  # reading it will say why


def _exists(path: Path) -> bool:
    """Whether a named path exists, as far as this user may see."""
    try:
        return path.exists()
    except OSError as error:
        raise SourceError(joined(quoted(str(path)[:200]), quoted(error.strerror or error), by=": ")) from None


def _walk(path: Path, gaps: list[Gap]) -> Iterator[Path]:
    if path.is_file() or path.is_fifo():
        yield path
        return
    if not path.is_dir():
        gaps.append(Gap(what=quoted(path), why=say("is neither file, pipe nor folder")))
        return
    visited: set[tuple[int, int]] = set()

    def on_error(error: OSError) -> None:
        gaps.append(
            Gap(what=quoted(error.filename), why=quoted(error.strerror) if error.strerror else say("not readable"))
        )

    for folder, folders, files in os.walk(path, onerror=on_error, followlinks=True):
        info = Path(folder).stat()
        if (info.st_dev, info.st_ino) in visited:
            folders.clear()  # a link that leads back
            continue
        visited.add((info.st_dev, info.st_ino))
        folders[:] = sorted(name for name in folders if name not in SKIPPED_FOLDERS and not name.startswith("."))
        for name in sorted(files):
            file = Path(folder, name)
            if name.startswith(".") or name.endswith((*_SKIPPED_ENDINGS, _TRACE)):
                continue
            try:
                regular = stat.S_ISREG(file.stat().st_mode)
            except OSError as error:
                gaps.append(
                    Gap(what=quoted(file), why=quoted(error.strerror) if error.strerror else say("not readable"))
                )
                continue
            if regular:
                yield file


def _archive(name: str, size: int | None, modified: float | None) -> Source:
    return Source(name, lambda: iter(()), size, modified, is_archive=True)


def _open_file(path: Path, gaps: list[Gap], whole_archives: bool) -> Iterator[Source]:
    name = str(path)
    try:
        info = path.stat()
        if stat.S_ISFIFO(info.st_mode):
            yield Source(name, lambda: guarded(name, lambda: _file_blocks(path, None), gaps))
            return
        if info.st_size == 0 and not name.startswith(("/proc/", "/sys/")):
            return
        lower = name.lower()
        if is_archive(name) and whole_archives:
            yield _archive(name, info.st_size, info.st_mtime)
        elif is_archive(name):
            yield from _members(name, gaps)
        else:
            with path.open("rb") as handle:
                handle.read(1)
            yield Source(
                name,
                lambda: guarded(name, lambda: _file_blocks(path, lower), gaps),
                info.st_size,
                info.st_mtime,
                is_file=True,
                fingerprint=(lambda: _fingerprint(path, info.st_size)) if info.st_size >= _SMALL_BYTES else None,
            )
    except READ_ERRORS as error:
        gaps.append(Gap(what=quoted(name), why=quoted(reason(error))))


def _file_blocks(path: Path, lower: str | None) -> Iterator[bytes]:
    with path.open("rb") as raw:
        yield from sniffed(raw) if lower is None else _text(raw, lower)


def _text(raw: IO[bytes], lower: str) -> Iterator[bytes]:
    """The text of a file, or the bytes of a flight recorder's dump; `lower` is its name in lower case."""
    plain = pieces(decompressed(raw, lower))
    return plain if rank_of_dump(lower) is not None else decoded(plain)


def guarded(name: str, blocks: Callable[[], Iterator[bytes]], gaps: list[Gap]) -> Iterator[bytes]:
    """The blocks until the first error, which becomes a Gap: a truncated file is read to its end."""
    read = 0
    try:
        for block in blocks():
            read += len(block)
            if read > _MOST_BYTES:
                gaps.append(
                    Gap(
                        what=quoted(name),
                        why=say("larger than {most_bytes} GiB; cut there", most_bytes=_MOST_BYTES >> 30),
                    )
                )
                return
            yield block
    except Binary:
        gaps.append(Gap(what=quoted(name), why=say("binary file, not read")))
    except READ_ERRORS as error:
        gaps.append(
            Gap(
                what=quoted(name),
                why=say("{reason}; the first {read} bytes were read", reason=reason(error), read=read),
            )
            if read
            else Gap(what=quoted(name), why=quoted(reason(error)))
        )


def _members(path: str, gaps: list[Gap], opened: Callable[[], IO[bytes]] | None = None) -> Iterator[Source]:
    """The files of an archive; a recorded run is read where the archive itself is named (trace/archive.py)."""
    traces = 0

    def wanted(name: str) -> bool:
        nonlocal traces
        traces += name.endswith(_TRACE)
        return not name.endswith((*_SKIPPED_ENDINGS, _TRACE))

    for member in read_members(path, gaps, wanted=wanted, most_bytes=_MOST_BYTES, opened=opened):
        if member.size:
            yield _member(path, member.name, member.handle, member.size, member.modified, gaps)
    if traces:
        gaps.append(
            Gap(
                what=quoted(path),
                why=say("the recorded run in it was not read: an archive is unpacked only where it is named itself"),
            )
        )


def _member(archive: str, member: str, handle: IO[bytes], size: int, modified: float | None, gaps: list[Gap]) -> Source:
    name = f"{archive}!{member}"

    return Source(name, lambda: guarded(name, lambda: _text(handle, member.lower()), gaps), size, modified)
