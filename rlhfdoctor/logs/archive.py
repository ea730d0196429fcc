"""The members of an archive, one after the other: tar in every compression that is read, or zip."""

from __future__ import annotations

import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Generator
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from typing import IO

from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.streams import decompressed
from rlhfdoctor.types import Gap

_TARS = (".tar", ".tar.gz", ".tgz", ".tar.zst", ".tzst", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
ENDINGS = (*_TARS, ".zip")
READ_ERRORS = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
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
    read = 0
    try:
        for member in members(name, opened or partial(_open, name), gaps, wanted):
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
            yield member
    except READ_ERRORS as error:
        gaps.append(Gap(what=quoted(name), why=quoted(reason(error))))


def reason(error: BaseException) -> str:
    """One of READ_ERRORS in words."""
    if isinstance(error, EOFError | zlib.error):
        return f"damaged or truncated archive ({error})"
    if isinstance(error, tarfile.TarError | zipfile.BadZipFile):
        return f"no readable archive ({error})"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _open(name: str) -> IO[bytes]:
    return open(name, "rb")


def _tar_members(
    name: str, opened: Callable[[], IO[bytes]], _gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    with opened() as raw, tarfile.open(fileobj=decompressed(raw, name.lower()), mode="r|") as archive:
        for member in archive:
            handle = archive.extractfile(member) if member.isfile() and wanted(member.name) else None
            if handle is not None:
                yield Member(member.name, handle, member.size, member.mtime)


def _zip_members(
    name: str, opened: Callable[[], IO[bytes]], gaps: list[Gap], wanted: Callable[[str], bool]
) -> Generator[Member, None, None]:
    with opened() as raw, zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            if info.is_dir() or not wanted(info.filename):
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
