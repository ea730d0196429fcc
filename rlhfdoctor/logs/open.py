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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timezone, tzinfo
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

from rlhfdoctor.errors import SourceError
from rlhfdoctor.files.bounds import is_below
from rlhfdoctor.files.read import open_binary, open_sized, passed_bytes
from rlhfdoctor.files.walk import walk
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.logs.archive import READ_ERRORS, is_archive, read_members, reason
from rlhfdoctor.logs.flight import rank_of_dump
from rlhfdoctor.logs.remote import RemoteFile, find_remote, is_remote
from rlhfdoctor.logs.skipped import SKIPPED_ENDINGS, SKIPPED_FOLDERS
from rlhfdoctor.logs.streams import Binary, decoded, decompressed, pieces, sniffed
from rlhfdoctor.logs.window import ALWAYS, Window
from rlhfdoctor.types import Gap

_MOST_BYTES = 64 * 1024**3
_MOST_FILES = 200_000
_SMALL_BYTES = 4096
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
    below: str | None = None
    """Real path of the named folder that it was found in: a link may not lead out of it."""
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


def find_sources(
    paths: Sequence[str],
    gaps: list[Gap],
    *,
    whole_archives: bool = False,
    below: Mapping[str, str] | None = None,
) -> Iterator[Source]:
    """All readable sources below the paths, in a stable order; what is skipped is added to `gaps`.

    Args:
        whole_archives: an archive is one source instead of its files.
        below: path that was found rather than named -> real path of its folder, which no link may lead out of.

    Raises:
        SourceError: a named path does not exist, or its storage cannot be reached.
    """
    count = 0
    missing = tuple(name for name in paths if name != "-" and not is_remote(name) and not _exists(Path(name)))
    if missing:
        raise SourceError(
            say(
                "{names:, }: no such file or folder.\n"
                "Give the folder that Ray wrote (for example /tmp/ray/session_latest/logs), a log file, or - for "
                "standard input.",
                names=missing,
            )
        )
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
        if not path.is_dir():
            yield from _open_named(path, gaps, whole_archives, (below or {}).get(name))
            continue
        inside = os.path.realpath(path)
        for file in _walk(path, gaps):
            count += 1
            if count > _MOST_FILES:
                gaps.append(_too_many(name))
                return
            yield from _open_file(file, gaps, whole_archives, inside)


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
        if file.size_bytes == 0 or file.name.endswith((*SKIPPED_ENDINGS, _TRACE)) or SKIPPED_FOLDERS & set(inner):
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


def _fingerprint(path: Path, size: int, below: str | None) -> bytes:
    try:
        with open_binary(path, below=below) as handle:
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
    """The files below a folder that may be read; `_open_file` opens none that a link finds outside of it."""

    def refused(name: str, why: str) -> None:
        gaps.append(Gap(what=quoted(name), why=quoted(why)))

    def enters(name: str) -> bool:
        return name not in SKIPPED_FOLDERS and not name.startswith(".")

    for _, files in walk(path, enters=enters, refused=refused):
        for file in files:
            if file.name.startswith(".") or file.name.endswith((*SKIPPED_ENDINGS, _TRACE)):
                continue
            try:
                mode = file.stat().st_mode
            except OSError as error:
                refused(file.path, error.strerror or str(error))
                continue
            if stat.S_ISREG(mode):
                yield Path(file.path)
            elif stat.S_ISDIR(mode) and not is_below(os.path.realpath(file.path), os.path.realpath(path)):
                why = say("a link that leads out of the folder; name it itself to read it")
                gaps.append(Gap(what=quoted(file.path), why=why))


def _archive(name: str, size: int | None, modified: float | None) -> Source:
    return Source(name, lambda: iter(()), size, modified, is_archive=True)


def _open_named(path: Path, gaps: list[Gap], whole_archives: bool, below: str | None) -> Iterator[Source]:
    if path.is_fifo() and _is_strangers(path):
        gaps.append(Gap(what=quoted(path), why=say("is a pipe of another user, which may never end")))
    elif path.is_fifo():
        yield Source(str(path), lambda: guarded(str(path), lambda: _pipe_blocks(path), gaps))
    elif path.is_file():
        yield from _open_file(path, gaps, whole_archives, below)
    else:
        gaps.append(Gap(what=quoted(path), why=say("is neither file, pipe nor folder")))


def _open_file(path: Path, gaps: list[Gap], whole_archives: bool, below: str | None) -> Iterator[Source]:
    name = str(path)
    try:
        info = path.stat()
        if info.st_size == 0 and not name.startswith(("/proc/", "/sys/")):
            return
        with open_binary(path, below=below) as handle:
            handle.read(1)
        lower = name.lower()
        if is_archive(name) and whole_archives:
            yield replace(_archive(name, info.st_size, info.st_mtime), below=below)
        elif is_archive(name):
            yield from _members(name, gaps, partial(open_binary, path, below=below))
        else:
            yield Source(
                name,
                lambda: guarded(name, lambda: _file_blocks(path, lower, below, gaps), gaps),
                info.st_size,
                info.st_mtime,
                is_file=True,
                below=below,
                fingerprint=(lambda: _fingerprint(path, info.st_size, below)) if info.st_size >= _SMALL_BYTES else None,
            )
    except READ_ERRORS as error:
        gaps.append(Gap(what=quoted(name), why=quoted(reason(error))))


def _is_strangers(path: Path) -> bool:
    """Whether a pipe has a name in a folder and belongs to another user: a shell's pattern names it unawares."""
    return not os.path.realpath(path).startswith("/proc/") and path.stat().st_uid != os.geteuid()


def _pipe_blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as raw:  # waits for the other end, as for `doctor analyze <(dmesg)`
        yield from sniffed(raw)


def _file_blocks(path: Path, lower: str, below: str | None, gaps: list[Gap]) -> Iterator[bytes]:
    with open_sized(path, below=below) as raw:
        yield from _text(raw, lower)
        if holes := passed_bytes(raw):
            why = say("{count:bytes} in it were never written, or were given back on a full disk", count=holes)
            gaps.append(Gap(what=quoted(path), why=why))


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
        return not name.endswith((*SKIPPED_ENDINGS, _TRACE))

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
