"""Writes files beside what others may change: whole or not at all, through no link, readable by their owner only.

A name that can be foreseen can be a link that another user put there; so new files are created exclusively, temporary
ones under a name that cannot be foreseen, and a file is put in place by renaming it within its folder.

Who may write a folder above can put a link in the place of one of its folders at any moment. A `real` path is one
without links (`Path.resolve`): it is walked folder by folder, and a link that has come into it since is refused.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

from rlhfdoctor.files.read import Refused
from rlhfdoctor.files.walk import names_in

PRIVATE, PRIVATE_FOLDER = 0o600, 0o700
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_folder(path: str | os.PathLike[str]) -> None:
    """A folder with those above it, for its owner only; one that is there stays as it is.

    Raises:
        OSError: it cannot be made, or is a link or no folder.
    """
    folder = Path(path)
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        with contextlib.suppress(FileExistsError):
            missing.mkdir(PRIVATE_FOLDER)
    if not stat.S_ISDIR(os.lstat(path).st_mode):
        raise Refused("is no folder", path)


def open_folder(path: str | os.PathLike[str], *, real: bool = False) -> int:
    """A descriptor of a folder; `real`: of the one that was there when its path was resolved.

    Raises:
        OSError: it cannot be opened, or is refused.
    """
    if not real:
        return os.open(os.fspath(path) or ".", _FOLDER)
    top, *parts = Path(path).absolute().parts
    handle = os.open(top, _STEP)
    try:
        for part in parts:
            inner = os.open(part, _STEP, dir_fd=handle)
            os.close(handle)
            handle = inner
        return os.open(".", _FOLDER, dir_fd=handle)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise Refused("a link has come into its path", path) from None
        raise
    finally:
        os.close(handle)


def create(path: str | os.PathLike[str], mode: int = PRIVATE, *, real: bool = False) -> int:
    """A descriptor of a new file; `real`: in the folder of ours that was there when its path was resolved.

    Raises:
        OSError: it cannot be made; FileExistsError also for a link that leads nowhere.
    """
    return _open(path, _NEW, mode, real)


def append(path: str | os.PathLike[str], mode: int = PRIVATE, *, real: bool = False) -> int:
    """A descriptor at the end of a file of ours, made if it is not there; `real` as above.

    Raises:
        OSError: it cannot be written, or is refused: a link, a pipe, another user's.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
    handle = _open(path, flags, mode, real)
    info = os.fstat(handle)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
        return handle
    os.close(handle)
    raise Refused("is no regular file of ours", path)


def _open(path: str | os.PathLike[str], flags: int, mode: int, real: bool) -> int:
    if not real:
        return os.open(path, flags, mode)
    head, name = os.path.split(os.fspath(path))
    folder = open_folder(head, real=True)
    try:
        if os.fstat(folder).st_uid != os.geteuid():  # who owns it can have put any file there, by a hard link
            raise Refused("is in a folder of another user", path)
        return os.open(name, flags, mode, dir_fd=folder)
    finally:
        os.close(folder)


def replace(
    path: str | os.PathLike[str], data: bytes, *, mode: int = PRIVATE, keep: bool = False, real: bool = False
) -> None:
    """Puts a file in place, whole or not at all, on the disk when this returns.

    Args:
        path: a link there is replaced, not followed.
        mode: of the new file.
        keep: the file that is there hands on its owner, mode and extended attributes; one with several names (hard
            links) is written over in place.

    Raises:
        OSError: it cannot be written; the file is as it was, and nothing else is left there.
    """
    head, name = os.path.split(os.fspath(path))
    folder = open_folder(head, real=real)
    fresh = f".{name[:100]}.{os.urandom(8).hex()}"
    try:
        if keep and os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink > 1:
            _write_over(name, folder, data)
            return
        handle = os.open(fresh, _NEW, PRIVATE, dir_fd=folder)
        try:
            try:
                write_all(handle, data)
                if keep:
                    _hand_on(name, folder, handle)
                else:
                    os.fchmod(handle, mode)
                os.fsync(handle)
            finally:
                os.close(handle)
            os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:  # Ctrl-C, too: no temporary file remains
            os.unlink(fresh, dir_fd=folder)
            raise
        with contextlib.suppress(OSError):  # not every file system has it
            os.fsync(folder)
    finally:
        os.close(folder)


def remove(path: str | os.PathLike[str], *, with_last: Collection[str] = ()) -> None:
    """Removes a file, and its folder with the last one.

    Args:
        path: a real one: a link that has come into it is refused.
        with_last: names of files that go, too, where no others are left.

    Raises:
        OSError: the folder or the file cannot be reached.
    """
    head, name = os.path.split(os.fspath(path))
    above, folder_name = os.path.split(head)
    upper = open_folder(above, real=True)
    try:
        folder = os.open(folder_name, _FOLDER | os.O_NOFOLLOW, dir_fd=upper)
        try:
            os.unlink(name, dir_fd=folder)
            with contextlib.suppress(OSError):
                rest = names_in(folder, len(with_last) + 1)
                if set(rest) <= set(with_last):
                    for other in rest:
                        os.unlink(other, dir_fd=folder)
                    os.rmdir(folder_name, dir_fd=upper)
        finally:
            os.close(folder)
    finally:
        os.close(upper)


def write_all(handle: int, data: bytes) -> None:
    """All of it, or an OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _write_over(name: str, folder: int, data: bytes) -> None:
    """In place: on an error, such as of a full disk, what was there is put back."""
    handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        before = os.pread(handle, os.fstat(handle).st_size, 0)
        try:
            os.posix_fallocate(handle, 0, len(data))
            write_all(handle, data)
        except OSError:
            os.lseek(handle, 0, os.SEEK_SET)
            write_all(handle, before)
            os.ftruncate(handle, len(before))
            raise
        os.ftruncate(handle, len(data))
        os.fsync(handle)
    finally:
        os.close(handle)


def _hand_on(name: str, folder: int, handle: int) -> None:
    """Owner, mode, attributes (access lists among them) of the file to its successor.

    Raises:
        OSError: the owner cannot be kept; only root may give a file to another user.
    """
    before = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        info = os.fstat(before)
        if (info.st_uid, info.st_gid) != (os.geteuid(), os.getegid()):
            os.fchown(handle, info.st_uid, info.st_gid)
        os.fchmod(handle, stat.S_IMODE(info.st_mode))
        if hasattr(os, "listxattr"):
            with contextlib.suppress(OSError):  # a file system without them, or an attribute that only root may set
                for attribute in os.listxattr(before):
                    os.setxattr(handle, attribute, os.getxattr(before, attribute))
    finally:
        os.close(before)
