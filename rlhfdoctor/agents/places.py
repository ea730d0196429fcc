"""The folders that an agent may have read: a path that it names -> the real file or folder below one of them."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.bounds import is_below
from rlhfdoctor.i18n.message import say

_LONGEST_PATH = 4096
"""Bytes, as PATH_MAX."""


class Places:
    """The folders that were given on the command line."""

    def __init__(self, folders: Sequence[str]) -> None:
        """
        Raises:
            UsageError: one of them is no folder.
        """
        for folder in folders:
            if not Path(folder).is_dir():
                raise UsageError(say("{folder}: no such folder", folder=folder))
        self.folders = tuple(dict.fromkeys(os.path.realpath(folder) for folder in folders))

    def find(self, path: str) -> str:
        """The real path of what a client names: relative to one of the folders, or absolute.

        Links are followed first, so that what counts is where they lead. Whether anything exists outside of the
        folders is not disclosed.

        Raises:
            UsageError: it is not below the folders, does not exist, or is neither a file nor a folder.
        """
        if not path or "\0" in path or len(os.fsencode(path)) > _LONGEST_PATH:
            raise UsageError(say("a path has 1 to {most} bytes and no NUL", most=_LONGEST_PATH))
        inside = [real for folder in self.folders if self.is_within(real := _real(folder, path))]
        if not inside:
            raise UsageError(
                say(
                    "{path}: is outside the folders that doctor mcp was given ({folders:, })",
                    path=path[:200],
                    folders=self.folders,
                )
            )
        for real in inside:
            try:
                mode = Path(real).stat().st_mode
            except OSError:
                continue
            if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
                return real
            raise UsageError(say("{path}: is neither a file nor a folder", path=path[:200]))
        raise UsageError(say("{path}: no such file or folder in {folders:, }", path=path[:200], folders=self.folders))

    def is_within(self, real: str) -> bool:
        """Whether a real path is one of the folders, or below one."""
        return any(is_below(real, folder) for folder in self.folders)


def _real(folder: str, path: str) -> str:
    try:
        return os.path.realpath(Path(folder) / path)
    except (OSError, ValueError):  # a loop of links
        return ""
