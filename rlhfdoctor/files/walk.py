"""Files below a folder that others made: no loops, no depth that ends the walk, no folder beyond a link."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

DEEPEST = 200
"""Folders in each other; a path of more does not fit the kernel's PATH_MAX anyway, if names have twenty letters."""


def walk(
    top: str | os.PathLike[str],
    *,
    enters: Callable[[str], bool] = lambda _name: True,
    refused: Callable[[str, str], None] = lambda _path, _why: None,
) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Each folder with what is in it but folders, in order of names; a link to a folder is not entered.

    Args:
        enters: whether to enter a folder of this name.
        refused: called with a folder that cannot be read or is not entered, and why.
    """
    waiting = [(os.fspath(top), 0)]
    while waiting:
        folder, depth = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                found = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            refused(folder, error.strerror or str(error))
            continue
        inner = []
        files = []
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                if enters(entry.name):
                    inner.append((entry.path, depth + 1))
            else:
                files.append(entry)
        yield folder, files
        if inner and depth >= DEEPEST:
            refused(folder, f"lies {DEEPEST} folders deep; what is in it was not read")
            continue
        waiting += reversed(inner)
