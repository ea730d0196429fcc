"""The folders beyond which this process reads no file, for a server whose client names the paths.

Nothing is confined until `confine` is called. Worker processes are confined as the one that starts them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

_folders: tuple[str, ...] | None = None


def confine(folders: Iterable[str | os.PathLike[str]]) -> None:
    """From now on `files.read` refuses what is not below one of these folders, whatever link or file names it."""
    global _folders
    _folders = tuple(os.path.realpath(folder) for folder in folders)


def confined() -> tuple[str, ...] | None:
    """The real paths of these folders; None if every file may be read."""
    return _folders


def is_within(real: str) -> bool:
    """Whether a file with this real path may be read."""
    return _folders is None or any(is_below(real, folder) for folder in _folders)


def is_below(path: str, folder: str) -> bool:
    """Whether a real path is a folder's own, or one in it.

    >>> is_below("/a/b/c", "/a/b"), is_below("/a/bc", "/a/b"), is_below("/x", "/")
    (True, False, True)
    """
    return path == folder or path.startswith(folder.rstrip("/") + "/")
