"""Files in the user's cache folder that spare the next start its work; believed only where no other user can write."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterator

try:  # hashlib's own; with hashlib comes OpenSSL, 3.5 MiB of the recorder's memory
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

from rlhfdoctor.files.own import is_ours, open_own

_MOST_BYTES = 64 * 1024**2
_KEPT_S = 60 * 86400.0
"""Older files of a kind go when a new one comes: each release has its own."""


def key(content: bytes) -> str:
    """What a content is kept by; a second content with the same key cannot be made."""
    return blake2b(content, digest_size=16).hexdigest()


def load(name: str) -> bytes | None:
    """A file, or None if it is absent or another user could have written it."""
    with contextlib.suppress(OSError), _folder() as folder:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        handle = os.open(name, flags, dir_fd=folder)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(handle)
            if stat.S_ISREG(info.st_mode) and is_ours(info) and info.st_size <= _MOST_BYTES:
                return file.read(_MOST_BYTES)
    return None


def has(kind: str) -> bool:
    """Whether there is any file of a kind."""
    with contextlib.suppress(OSError), _folder() as folder:
        return any(name.startswith(f"{kind}-") for name in os.listdir(folder))  # noqa: PTH208  (a descriptor)
    return False


def save(name: str, data: bytes) -> None:
    """Keeps a file, whole or not at all; a folder that cannot be written only costs the next start some time.

    Args:
        name: `KIND-HASH.ENDING`; files of the same kind that were not renewed for two months are removed.
    """
    with contextlib.suppress(OSError), _folder(make=True) as folder:
        fresh = f".{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(fresh, flags, 0o600, dir_fd=folder), "wb") as file:
                file.write(data)
            os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            os.unlink(fresh, dir_fd=folder)
            raise
        _prune(folder, name)


def _prune(folder: int, name: str) -> None:
    kind = name.partition("-")[0]
    for other in os.listdir(folder):
        if other != name and other.startswith((f"{kind}-", f".{kind}-")):
            if os.stat(other, dir_fd=folder, follow_symlinks=False).st_mtime < time.time() - _KEPT_S:
                os.unlink(other, dir_fd=folder)


@contextlib.contextmanager
def _folder(*, make: bool = False) -> Iterator[int]:
    """
    Raises:
        OSError: there is none to be trusted.
    """
    handle = open_own("cache", make=make)
    if handle is None:
        raise FileNotFoundError("no cache folder")
    try:
        yield handle
    finally:
        os.close(handle)
