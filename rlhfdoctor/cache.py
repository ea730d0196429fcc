"""Files in the user's cache folder that spare the next start its work; believed only where no other user can write."""

from __future__ import annotations

import contextlib
import os
import stat
import time
from pathlib import Path

try:  # hashlib's own; with hashlib comes OpenSSL, 3.5 MiB of the recorder's memory
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

_MOST_BYTES = 64 * 1024**2
_KEPT_S = 60 * 86400.0
"""Older files of a kind go when a new one comes: each release has its own."""


def key(content: bytes) -> str:
    """What a content is kept by; a second content with the same key cannot be made."""
    return blake2b(content, digest_size=16).hexdigest()


def load(name: str) -> bytes | None:
    """A file, or None if it is absent or another user could have written it."""
    folder = _folder()
    with contextlib.suppress(OSError):
        if folder is None or not _is_ours(folder.stat()):
            return None
        handle = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            info = os.fstat(handle)
            if stat.S_ISREG(info.st_mode) and _is_ours(info) and info.st_size <= _MOST_BYTES:
                return file.read(_MOST_BYTES)
    return None


def has(kind: str) -> bool:
    """Whether there is any file of a kind."""
    folder = _folder()
    return folder is not None and any(folder.glob(f"{kind}-*"))


def save(name: str, data: bytes) -> None:
    """Keeps a file, whole or not at all; a folder that cannot be written only costs the next start some time.

    Args:
        name: `KIND-HASH.ENDING`; files of the same kind that were not renewed for two months are removed.
    """
    folder = _folder()
    with contextlib.suppress(OSError):
        if folder is None:
            return
        folder.mkdir(0o700, parents=True, exist_ok=True)
        if not _is_ours(folder.stat()):
            return
        fresh = folder / f".{name}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(fresh, flags, 0o600), "wb") as file:
                file.write(data)
            fresh.replace(folder / name)
        except OSError:
            fresh.unlink()
            raise
        _prune(folder, name)


def _prune(folder: Path, name: str) -> None:
    kind = name.partition("-")[0]
    for path in (*folder.glob(f"{kind}-*"), *folder.glob(f".{kind}-*")):
        if path.name != name and path.lstat().st_mtime < time.time() - _KEPT_S:
            path.unlink()


def _folder() -> Path | None:
    """None where the user has no home."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111  (does not raise)
    return None if home.startswith("~") else Path(home, "rlhfdoctor")


def _is_ours(info: os.stat_result) -> bool:
    """Whether only we, or root, can have written it."""
    return info.st_uid in (0, os.geteuid()) and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
