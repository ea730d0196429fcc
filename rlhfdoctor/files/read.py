"""Opens files that others made: regular ones only, never waiting, never beyond the folder that they came in.

A folder that was received, or that another user's process names, may hold links to anything, pipes that never answer,
devices that never end, files that grow as they are read. What is refused is an OSError with the reason.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import IO, Any

from rlhfdoctor.files.bounds import confined, is_below, is_within

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_AT_ONCE_BYTES = 1 << 20
_OUTSIDE = "is outside the folders that may be read"


class Refused(OSError):
    """A file that is not opened, whatever its permissions."""

    def __init__(self, why: str, path: str | os.PathLike[str]) -> None:
        super().__init__(errno.EPERM, why, os.fspath(path))


def open_descriptor(
    path: str | os.PathLike[str],
    *,
    below: str | None = None,
    owners: Collection[int] = (),
    follow: bool = True,
    folder: int | None = None,
) -> int:
    """Opens a regular file for reading.

    Args:
        below: the real path of a folder; a link to what lies outside of it is refused.
        owners: user ids; another user's file is refused. Empty: anyone's.
        follow: False refuses a path that is itself a link.
        folder: descriptor of the folder that a relative path is in.

    Raises:
        OSError: it cannot be opened, or is refused.
    """
    if confined() is not None and folder is None and not is_within(os.path.realpath(path)):
        # whether it exists is not reported either
        raise Refused(_OUTSIDE, path)
    info = os.stat(path, dir_fd=folder, follow_symlinks=follow)
    _check(info, path, owners)  # before it is opened: opening a device can have effects
    handle = os.open(path, _FLAGS | (0 if follow else os.O_NOFOLLOW), dir_fd=folder)
    try:
        _check(os.fstat(handle), path, owners)
        if below is not None and not is_below(_real(handle, path), below):
            raise Refused("a link that leads out of the folder; name it itself to read it", path)
        if confined() is not None and not is_within(_real(handle, path)):
            raise Refused(_OUTSIDE, path)
    except BaseException:  # of whatever kind: the descriptor is not left open
        os.close(handle)
        raise
    return handle


def open_binary(path: str | os.PathLike[str], **checks: Any) -> IO[bytes]:
    """The same as a buffered file; `checks` as above."""
    return os.fdopen(open_descriptor(path, **checks), "rb")


def open_sized(path: str | os.PathLike[str], **checks: Any) -> IO[bytes]:
    """The same, up to the size that it has now: one that grows as fast as it is read has an end, too.

    Files of /proc and /sys, whose size is 0, are read to their end. Of a sparse file the holes are passed over.
    """
    handle = open_descriptor(path, **checks)
    info = os.fstat(handle)
    raw = os.fdopen(handle, "rb", buffering=0)
    sized = _Sized(raw, info.st_size, is_sparse=is_sparse(handle, info.st_size)) if info.st_size else raw
    return io.BufferedReader(sized, _AT_ONCE_BYTES // 2)


def read_bytes(path: str | os.PathLike[str], most_bytes: int, **checks: Any) -> bytes:
    """At most so many bytes from the start of a file."""
    with open_sized(path, **checks) as file:
        return file.read(most_bytes) or b""  # None where the kernel would have to wait, as for /proc/kmsg


def passed_bytes(file: IO[bytes]) -> int:
    """Bytes of holes that the reader of an open file (`open_sized`) passed over so far."""
    return getattr(getattr(file, "raw", None), "passed_bytes", 0)


def is_sparse(handle: int, size: int) -> bool:
    """Whether an open file has holes, which a reader sees as zeros; of a small one it makes no difference."""
    if size <= _AT_ONCE_BYTES or not hasattr(os, "SEEK_HOLE"):
        return False
    try:
        return os.lseek(handle, 0, os.SEEK_HOLE) < size
    except OSError:
        return False
    finally:
        os.lseek(handle, 0, os.SEEK_SET)


def _check(info: os.stat_result, path: str | os.PathLike[str], owners: Collection[int]) -> None:
    if stat.S_ISDIR(info.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), os.fspath(path))
    if stat.S_ISLNK(info.st_mode):
        raise Refused("is a link; name the file itself", path)
    if not stat.S_ISREG(info.st_mode):
        raise Refused("is no regular file", path)
    if owners and info.st_uid not in owners:
        raise Refused("belongs to another user", path)


def _real(handle: int, path: str | os.PathLike[str]) -> str:
    """Where an open file really is; a link that was changed since cannot deceive."""
    with contextlib.suppress(OSError):
        return str(Path(f"/proc/self/fd/{handle}").readlink()).removesuffix(" (deleted)")
    return os.path.realpath(path)


class _Sized(io.RawIOBase):
    """The first bytes of a file."""

    def __init__(self, raw: io.FileIO | Any, size: int, is_sparse: bool) -> None:
        self._raw, self._size, self._is_sparse = raw, size, is_sparse
        self.passed_bytes = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return int(self._raw.seek(self._size + offset if whence == os.SEEK_END else offset, whence % 2))

    def tell(self) -> int:
        return int(self._raw.tell())

    def readinto(self, buffer: Any) -> int:
        if self._is_sparse:
            place = self._raw.tell()
            try:
                self.passed_bytes += os.lseek(self._raw.fileno(), place, os.SEEK_DATA) - place
            except OSError:  # there is nothing but a hole
                self.passed_bytes += max(self._size - place, 0)
                self._size = place
                return 0
        left = max(self._size - self._raw.tell(), 0)
        return self._raw.readinto(memoryview(buffer)[:left]) or 0

    def close(self) -> None:
        self._raw.close()
        super().close()
