"""/dev/shm: what the file system holds, which objects, how old, who still uses them.

A file that was unlinked but is still mapped has no name here, and the file system still counts it:
`used_bytes` of statvfs less the sum of the named files is what such objects hold. Ray's object store
is of that kind (plasma unlinks its file at once). Owners come from /proc/PID/maps and are known for
the processes that we may read only.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from rlhfdoctor.files.walk import open_below, walk
from rlhfdoctor.sources.procfs import Mappings, read_file

_MOUNTS_BYTES = 1 << 20
_ON_THE_WAY = (b"/", b"/dev", b"/dev/shm")


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """The file system at one moment."""

    size_bytes: int
    used_bytes: int
    """Named and unnamed objects."""
    free_inodes_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedObject:
    """One object in /dev/shm."""

    path: str
    inode: int
    size_bytes: int
    """Pages that it really holds (st_blocks), not its nominal length."""
    modified: float
    """Unix seconds."""
    uid: int
    owners: tuple[int, ...] = ()
    """Pids that have it mapped, of those that were looked at."""
    deleted: bool = False
    """Unlinked, and still mapped by its owners; `size_bytes` is then the mapped size, an upper bound."""


def read_shm(path: str | int = "/dev/shm") -> SharedMemory | None:
    """Size and use of the file system by a path or a descriptor, or None if it does not exist."""
    try:
        info = os.statvfs(path)
    except OSError:
        return None
    return SharedMemory(
        size_bytes=info.f_blocks * info.f_frsize,
        used_bytes=(info.f_blocks - info.f_bfree) * info.f_frsize,
        free_inodes_count=info.f_ffree,
    )


def open_shm(root: str, pid: int | str) -> int | None:
    """A descriptor of the /dev/shm in a process's own mount namespace, to be closed; None if it is no tmpfs.

    The owner of the process can have made that namespace: a link in it would be followed in ours, and a file system
    of his own may never answer. So its type is read first (proc_pid_mountinfo(5)), and no link is followed. A root that
    FUSE serves is left alone by root only: containers of one's own may have one.

    Raises:
        OSError: it cannot be opened, or a link is in its path.
    """
    mounts = read_file(f"{root}/proc/{pid}/mountinfo", _MOUNTS_BYTES) or b""
    if len(mounts) == _MOUNTS_BYTES or not _is_tmpfs(mounts):  # what is cut off may cover the rest
        return None
    return open_below(f"{root}/proc/{pid}/root", "dev", "shm")


def read_shm_of(root: str, pid: int | str) -> SharedMemory | None:
    """Size and use of what a process has as /dev/shm; None where it is not read, as above."""
    try:
        handle = open_shm(root, pid)
    except OSError:
        return None
    if handle is None:
        return None
    try:
        return read_shm(handle)
    finally:
        os.close(handle)


def _is_tmpfs(mountinfo: bytes) -> bool:
    """Whether the /dev/shm that a path finds is a tmpfs that is mounted there, and no file system above asks a user.

    The lines are in no order that says what covers what (a mount can be moved), so the path is walked from the root:
    what covers a folder is mounted on what it covers.
    """
    mounts: dict[tuple[bytes, bytes], tuple[bytes, bytes]] = {}
    """(Mount, folder) -> what is mounted there, its type."""
    for line in mountinfo.splitlines():
        fields = line.split(b" ")
        if len(fields) > 4 and fields[4] in _ON_THE_WAY and fields[0] != fields[1]:
            mounts[fields[1], fields[4]] = fields[0], line.partition(b" - ")[2].split(b" ")[0]
    starts = {parent for parent, _ in mounts} - {mount for mount, _ in mounts.values()}
    if len(starts) != 1:
        return False
    mount, last, kind = starts.pop(), b"", b""
    for folder in _ON_THE_WAY:
        while (mount, folder) in mounts:
            (mount, kind), last = mounts.pop((mount, folder)), folder
        if kind.startswith(b"fuse") and os.geteuid() == 0:
            return False
    return (last, kind) == (_ON_THE_WAY[-1], b"tmpfs")


def list_objects(path: str = "/dev/shm", known_as: str | None = None, most_count: int = 5000) -> list[SharedObject]:
    """The named objects, largest first; folders are walked, what vanishes meanwhile is left out.

    Of a folder no more than `most_count` entries are looked at, and no more folders than that: any user may make
    millions.

    Args:
        known_as: what the folder is called in the namespace of those who use it, if not `path`.
    """
    found: list[SharedObject] = []
    for _, entries in islice(walk(path, most_count=most_count), most_count):
        for entry in entries:
            file = entry.path
            try:
                info = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            found.append(
                SharedObject(
                    path=file if known_as is None else known_as + file[len(path) :],
                    inode=info.st_ino,
                    size_bytes=info.st_blocks * 512,
                    modified=info.st_mtime,
                    uid=info.st_uid,
                )
            )
            if len(found) >= most_count:
                return sorted(found, key=lambda item: -item.size_bytes)
    return sorted(found, key=lambda item: -item.size_bytes)


def find_owners(objects: Iterable[SharedObject], maps: Mapping[int, Mappings]) -> list[SharedObject]:
    """The objects with the pids that map them, and the unlinked ones that only maps still show."""
    users: dict[tuple[int, str], list[int]] = {}
    sizes: dict[tuple[int, str], int] = {}
    for pid, mappings in maps.items():
        for inode, path, size in mappings.objects:
            users.setdefault((inode, path), []).append(pid)
            sizes[inode, path] = max(size, sizes.get((inode, path), 0))
    named = {(item.inode, item.path): item for item in objects}
    result = [
        SharedObject(
            path=item.path,
            inode=item.inode,
            size_bytes=item.size_bytes,
            modified=item.modified,
            uid=item.uid,
            owners=tuple(sorted(users.get(key, ()))),
        )
        for key, item in named.items()
    ]
    result += [
        SharedObject(
            path=key[1],
            inode=key[0],
            size_bytes=size,
            modified=0.0,
            uid=-1,
            owners=tuple(sorted(users[key])),
            deleted=True,
        )
        for key, size in sizes.items()
        if key not in named
    ]
    return sorted(result, key=lambda item: -item.size_bytes)


def find_orphans(objects: Iterable[SharedObject], now: float, least_age_s: float = 60) -> list[SharedObject]:
    """Named objects without a visible mapping and not written to for a while: left behind by SIGKILL."""
    return [
        item
        for item in objects
        if not item.deleted and not item.owners and item.size_bytes > 0 and now - item.modified > least_age_s
    ]
