"""Folders of the user's own, for what is kept between commands: used only where no other user can write.

Root may run with another user's HOME (`sudo` keeps it on some systems), and a home may be a link. So the path is
resolved and then walked from the root: every folder on it belongs to us or root and cannot be changed by others, and
what is done there is done by the folder's descriptor.
"""

from __future__ import annotations

import contextlib
import functools
import os
import stat
from collections.abc import Iterator

from rlhfdoctor.files.read import read_bytes

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS = stat.S_IWGRP | stat.S_IWOTH


def open_own(kind: str, *, make: bool = False) -> int | None:
    """A descriptor of the doctor's folder of a kind, to be closed; None where there is none to be trusted.

    As root, a home that is another user's is passed over for root's own.

    Args:
        kind: `cache` or `config` (the XDG Base Directory Specification's names).
        make: the folder is made if it is not there.
    """
    for home in _homes(kind):
        handle = _walk(f"{os.path.realpath(home)}/rlhfdoctor", make)
        if handle is not None:
            return handle
    return None


def is_ours(info: os.stat_result) -> bool:
    """Whether only we, or root, can have written it."""
    return info.st_uid in (0, os.geteuid()) and not info.st_mode & _OTHERS


def _homes(kind: str) -> Iterator[str]:
    named = os.environ.get(f"XDG_{kind.upper()}_HOME", "")
    if named.startswith("/"):
        yield named
        return
    home = os.path.expanduser("~")  # noqa: PTH111  (does not raise)
    if home.startswith("/"):
        yield f"{home}/.{kind}"
    if os.geteuid() == 0:
        import pwd

        yield f"{pwd.getpwuid(0).pw_dir}/.{kind}"


def _walk(path: str, make: bool) -> int | None:
    handle = os.open("/", _FOLDER)
    for part in path.split("/")[1:]:
        try:
            inner = _enter(handle, part, make)
        except OSError:
            return None
        finally:
            os.close(handle)
        handle = inner
    if is_ours(os.fstat(handle)):
        return handle
    os.close(handle)
    return None


def _enter(folder: int, name: str, make: bool) -> int:
    """
    Raises:
        OSError: it is not there, is no folder, or another user can change it.
    """
    try:
        handle = os.open(name, _FOLDER, dir_fd=folder)
    except FileNotFoundError:
        if not make:
            raise
        os.mkdir(name, 0o700, dir_fd=folder)
        handle = os.open(name, _FOLDER, dir_fd=folder)
    info = os.fstat(handle)
    # who may write a sticky folder can remove nothing of ours from it
    if info.st_uid not in _owners() or (_is_open(info) and not info.st_mode & stat.S_ISVTX):
        os.close(handle)
        raise PermissionError(name)
    return handle


@functools.cache
def _owners() -> frozenset[int]:
    """Who may own a folder on the way; in a user namespace (Apptainer, rootless Podman) the host's root is `nobody`."""
    ours = {0, os.geteuid()}
    with contextlib.suppress(OSError):
        if read_bytes("/proc/self/uid_map", 4096).split() != [b"0", b"0", b"4294967295"]:
            ours.add(int(read_bytes("/proc/sys/kernel/overflowuid", 64)))
    return frozenset(ours)


def _is_open(info: os.stat_result) -> bool:
    """Whether others can write; a user's private group has no other member."""
    if info.st_mode & stat.S_IWOTH or not info.st_mode & stat.S_IWGRP:
        return bool(info.st_mode & stat.S_IWOTH)
    import grp
    import pwd

    try:
        user = pwd.getpwuid(info.st_uid)
        return info.st_gid != user.pw_gid or any(name != user.pw_name for name in grp.getgrgid(info.st_gid).gr_mem)
    except KeyError:
        return True
