"""Folders whose project file may bring rules of its own, by the user's consent: `doctor config --trust`.

The sender of a folder of logs can put a project file and rules above them. So rules of a file count at once only where
what is read lies elsewhere.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.own import is_ours, open_own
from rlhfdoctor.files.read import open_descriptor
from rlhfdoctor.files.write import write_all
from rlhfdoctor.i18n.message import say

_NAME, _MOST_BYTES = "trusted", 1 << 20
"""In the user's configuration folder: a real path a line."""


def is_trusted(folder: Path) -> bool:
    """Whether the user trusts this folder; `folder` is a real path."""
    return str(folder) in _trusted()


def trust(folder: Path) -> None:
    """Adds a folder.

    Raises:
        UsageError: there is no place to keep it that only the user can write.
    """
    known = _trusted()
    if str(folder) in known:
        return
    refused = UsageError(
        say("{folder} cannot be kept as trusted: no ~/.config that only you can write", folder=str(folder))
    )
    handle = open_own("config", make=True)
    if handle is None or "\n" in str(folder):
        raise refused
    try:
        fresh = f".{_NAME}.{os.getpid()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(fresh, flags, 0o600, dir_fd=handle)
        try:
            write_all(file, "".join(f"{one}\n" for one in (*known, str(folder))).encode("utf-8", "surrogateescape"))
        finally:
            os.close(file)
        os.replace(fresh, _NAME, src_dir_fd=handle, dst_dir_fd=handle)
    except OSError:
        raise refused from None
    finally:
        os.close(handle)


def _trusted() -> list[str]:
    with contextlib.suppress(OSError):
        handle = open_own("config")
        if handle is not None:
            try:
                file = open_descriptor(_NAME, follow=False, folder=handle)
            finally:
                os.close(handle)
            with os.fdopen(file, "rb") as lines:
                if is_ours(os.fstat(file)):
                    return lines.read(_MOST_BYTES).decode("utf-8", "surrogateescape").split("\n")[:-1]
    return []
