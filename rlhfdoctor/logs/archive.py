"""The members of an archive, one after the other: tar in every compression that is read, or zip."""

from __future__ import annotations

import lzma
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import IO, Any

from rlhfdoctor.files.read import open_sized
from rlhfdoctor.i18n.message import plural, quoted, say
from rlhfdoctor.logs.streams import READ_BYTES, decompressed
from rlhfdoctor.types import Gap

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ENDINGS = (*_TARS, ".zip")
_MOST_MEMBERS = 50_000
"""A session of a thousand workers has some six thousand files."""
_MOST_PADDING_BYTES = 16 << 20
"""Behind the end of a tar: it is filled to whole records, of 10 KiB by default."""
_MOST_HEADER_BYTES = 1 << 20
"""Of a tar's long name or PAX header."""
_BARE_TYPES = (tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE)
"""Which have no bytes, whatever size they name."""
_CHAINED_TYPES = (
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
    tarfile.XHDTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.XGLTYPE,
)
"""Which describe what follows; each is read within the one before."""
_MOST_CHAINED = 16
_LATEST_S = 1e11
"""The year 5138: what is later is no date."""
_PAX_RECORD = re.compile(rb"(\d{1,7}) [^=\n]{1,200}=")
_DIGITS = re.compile(rb"\d{64}")
_MOST_DIRECTORY_BYTES = 64 << 20
_ZIP_HEADER_BYTES = 30
"""Of a member, at the least (APPNOTE.TXT 4.3.7)."""
_ZIP_MEMBERS, _ZIP_BYTES = 4, 5
"""Places in what `zipfile._EndRecData` gives (Lib/zipfile, _ECD_ENTRIES_TOTAL, _ECD_SIZE)."""
READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    NotImplementedError,
    struct.error,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
)
"""What reading a damaged or forbidden file may raise (zstd's error becomes a ValueError, see `streams`)."""


@dataclass(frozen=True, slots=True)
class Member:
    """One regular file of an archive; it can be read until the next one is requested."""

    name: str
    handle: IO[bytes]
    size: int
    modified: float | None
    """Unix seconds; None if the archive holds no valid date."""


def is_archive(name: str) -> bool:
    """Whether a file is an archive, by its name."""
    return name.lower().endswith(ENDINGS)


def read_members(
    path: str | os.PathLike[str],
    gaps: list[Gap],
    *,
    wanted: Callable[[str], bool],
    most_bytes: int,
    opened: Callable[[], IO[bytes]] | None = None,
) -> Generator[Member, None, None]:
    """The members whose names are wanted, in the archive's order. Damage and what exceeds the limit become a Gap.

    Args:
        opened: opens an archive that is no file of this machine.
    """
    name = os.fspath(path)
    members = _zip_members if name.lower().endswith(".zip") else _tar_members
    read = count = 0
    try:
        for member in members(name, opened or partial(open_sized, name), gaps, wanted):
            read += member.size
            if read > most_bytes:
                gaps.append(
                    Gap(
                        what=quoted(name),
                        why=say(
                            "unpacks to more than {most_bytes} GiB; the rest was not read", most_bytes=most_bytes >> 30
                        ),
                    )
                )
                return
            count += 1
            yield member
    except READ_ERRORS as error:
        why = quoted(reason(error))
        if count:
            why = plural(
                "not readable to its end ({error}); {n} file before that was read",
                "not readable to its end ({error}); {n} files before that were read",
                count,
                error=str(error) or type(error).__name__,
            )
        gaps.append(Gap(what=quoted(name), why=why))


def reason(error: BaseException) -> str:
    """One of READ_ERRORS in words."""
    if isinstance(error, EOFError | zlib.error):
        return f"damaged or truncated archive ({error})"
    if isinstance(error, tarfile.TarError | zipfile.BadZipFile | NotImplementedError | struct.error):
        return f"no readable archive ({error})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _tar_members(
    name: str, opened: Callable[[], IO[bytes]], gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    with opened() as raw:
        stream = decompressed(raw, name.lower())
        yield from _tar_files(name, stream, gaps, wanted)
        for _ in range(_MOST_PADDING_BYTES // READ_BYTES):  # checksums of the compressed stream are behind it
            if not stream.read(READ_BYTES):
                break


def _tar_files(
    name: str, stream: IO[bytes], gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_TarInfo) as archive:
        for count, member in enumerate(archive):
            if count >= _MOST_MEMBERS:
                gaps.append(
                    Gap(
                        what=quoted(name),
                        why=say("more than {count} members; the rest was not read", count=f"{_MOST_MEMBERS:,}"),
                    )
                )
                return
            archive.members = []  # type: ignore[attr-defined]  # it keeps those of a stream, too
            if member.issparse():
                gaps.append(Gap(what=quoted(f"{name}!{member.name}"), why=say("a sparse file of a tar, not read")))
                continue
            handle = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if handle is not None:
                modified = member.mtime if 0 <= member.mtime < _LATEST_S else None  # a PAX header can hold inf or nan
                yield Member(member.name, handle, member.size, modified)


def _count(archive: tarfile.TarFile, name: str, more: int, most: int) -> None:
    """Adds to a figure of an archive; raises tarfile.ReadError beyond the most."""
    total = getattr(archive, name, 0) + more
    setattr(archive, name, total)
    if total > most:
        raise tarfile.ReadError(f"headers of more than {most:,} bytes for all members, or {_MOST_CHAINED} for one")


def _is_pax(data: bytes) -> bool:
    """Whether each record is `LENGTH KEYWORD=VALUE` and a line's end (POSIX.1-2008, pax), without endless digits.

    >>> _is_pax(b"12 path=a/b\\n"), _is_pax(b"2 2 2 2 a=\\n"), _is_pax(b"1" * 99)
    (True, False, False)
    """
    place = 0
    while place < len(data):
        head = _PAX_RECORD.match(data, place)
        end = place + int(head[1]) if head is not None else place
        if head is None or end < head.end() or data[end - 1 : end] != b"\n":
            return False
        place = end
    return _DIGITS.search(data) is None


class _PutBack:
    """A stream with bytes that were read of it in front again."""

    def __init__(self, data: bytes, stream: Any) -> None:
        self._data, self._stream = data, stream

    def read(self, size: int) -> bytes:
        found, self._data = self._data[:size], self._data[size:]
        return found if len(found) == size else found + bytes(self._stream.read(size - len(found)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _TarInfo(tarfile.TarInfo):
    """A member with a bounded description: tarfile reads long names, PAX headers, maps of sparse files whole."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> _TarInfo:
        """tarfile ends without a word at a damaged header, and where the end of an archive is missing."""
        try:
            return super().fromtarfile(archive)
        except tarfile.EmptyHeaderError:  # type: ignore[attr-defined]
            fault = "it has no end"
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            fault = str(error)
        if archive.offset == 0:
            fault = "not a tar, or an empty one"
        raise tarfile.ReadError(fault)

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in (*tarfile.REGULAR_TYPES, *_BARE_TYPES) and self.size > _MOST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {self.size:,} bytes")
        if self.type == tarfile.XGLTYPE:  # kept for all that follows
            _count(archive, "global_bytes", self.size, _MOST_HEADER_BYTES)
        if self.type in _CHAINED_TYPES:  # each is read within the one before
            _count(archive, "chained", 1, _MOST_CHAINED)
        else:
            archive.chained = 0  # type: ignore[attr-defined]
        found: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return found

    def _proc_pax(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """tarfile's own reader takes quadratic time and memory for records of another form (CVE-2024-6232)."""
        stream = archive.fileobj
        data = stream.read(self._block(self.size))  # type: ignore[attr-defined]
        if not _is_pax(data[: self.size]):
            raise tarfile.ReadError("a damaged PAX header")
        archive.fileobj = _PutBack(data, stream)
        try:
            found: tarfile.TarInfo = super()._proc_pax(archive)  # type: ignore[misc]
        finally:
            archive.fileobj = stream
        return found

    def _proc_sparse(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self._sparse_structs[1]:  # type: ignore[attr-defined]
            raise tarfile.ReadError("a sparse file in many pieces")
        found: tarfile.TarInfo = super()._proc_sparse(archive)  # type: ignore[misc]
        return found

    def _proc_gnusparse_10(self, *_: object) -> None:
        """The map stays in front of the text."""


def _zip_members(
    name: str, opened: Callable[[], IO[bytes]], gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    with opened() as raw:
        _check_directory(raw)
        with zipfile.ZipFile(raw) as archive:
            yield from _zip_files(name, archive, gaps, wanted)


def _check_directory(raw: IO[bytes]) -> None:
    """A zip's directory is read whole when it is opened, whatever size its end says that it has."""
    end = zipfile._EndRecData(raw)  # type: ignore[attr-defined]
    if end is not None and (end[_ZIP_MEMBERS] > _MOST_MEMBERS or end[_ZIP_BYTES] > _MOST_DIRECTORY_BYTES):
        raise zipfile.BadZipFile(f"{end[_ZIP_MEMBERS]:,} members in a directory of {end[_ZIP_BYTES]:,} bytes")


def _check_places(members: Iterable[zipfile.ZipInfo]) -> None:
    """Each member has bytes of its own: a few of them named thousands of times would unpack for minutes."""
    end = 0
    for info in sorted(members, key=lambda info: info.header_offset):
        if info.header_offset < end:
            raise zipfile.BadZipFile(f"members that overlap: {info.filename[:80]}")
        end = info.header_offset + _ZIP_HEADER_BYTES + info.compress_size


def _zip_files(
    name: str, archive: zipfile.ZipFile, gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    _check_places(archive.infolist())
    for info in archive.infolist():
        if info.filename.endswith("/") or not wanted(info.filename):
            continue
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            why = say("packed by a method that unpacks without bound; unpack the archive, and name the folder")
            gaps.append(Gap(what=quoted(f"{name}!{info.filename}"), why=why))
            continue
        try:
            handle = archive.open(info)
        except (RuntimeError, zipfile.BadZipFile) as error:
            # a password, or a method that zipfile lacks (a kind of RuntimeError)
            gaps.append(Gap(what=quoted(f"{name}!{info.filename}"), why=quoted(error)))
            continue
        with handle:
            yield Member(info.filename, handle, info.file_size, _time_of(info))


def _time_of(info: zipfile.ZipInfo) -> float | None:
    """A zip holds local time without its zone; read as UTC it is right to the day."""
    try:
        return datetime(*info.date_time, tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None
