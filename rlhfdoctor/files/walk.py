"""Files below a folder that others made: no loops, no depth that ends the walk, no folder beyond a link."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice

from rlhfdoctor.files.mounts import find_silent, is_silent_mount

_STEP = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
DEEPEST = 200
"""Folders in each other; a path of more does not fit the kernel's PATH_MAX anyway, if names have twenty letters."""


def open_below(top: str, *names: str) -> int:
    """A descriptor of a folder in another one, only to look things up in it; a link on the way is refused.

    Raises:
        OSError: it is not there, or a link or no folder is on the way.
    """
    handle = os.open(top, _STEP)
    for name in names:
        try:
            inner = os.open(name, _STEP | os.O_NOFOLLOW, dir_fd=handle)
        finally:
            os.close(handle)
        handle = inner
    return handle


def names_in(folder: str | os.PathLike[str] | int, most_count: int) -> list[str]:
    """At most so many names of what is in a folder, in the file system's own order.

    Raises:
        OSError: it cannot be read.
    """
    with os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most_count)]


def names_ending(folder: str | os.PathLike[str], ending: str) -> list[str]:
    """Paths of what is in a folder by the end of its name, sorted; none where the folder cannot be read.

    A folder may be removed meanwhile, or be a mount whose server is gone; that is reported where it is read.
    """
    if is_silent_mount(folder):
        return []
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.name.endswith(ending))
    except OSError:
        return []


def walk(
    top: str | os.PathLike[str],
    *,
    enters: Callable[[str], bool] = lambda _name: True,
    refused: Callable[[str, str], None] = lambda _path, _why: None,
    most_count: int = 1_000_000,
) -> Iterator[tuple[str, list[os.DirEntry[str]]]]:
    """Each folder with what is in it but folders, in order of names; a link to a folder is not entered.

    Args:
        enters: whether to enter a folder of this name.
        refused: called with a folder that cannot be read or is not entered, and why.
        most_count: of the entries of a folder; the others are refused.
    """
    waiting, silent = [(os.fspath(top), 0)], find_silent(top)
    while waiting:
        folder, depth = waiting.pop()
        if folder in silent:
            refused(folder, "the server of this mount does not answer; what is in it was not read")
            continue
        try:
            with os.scandir(folder) as entries:
                found = list(islice(entries, most_count))
                if next(entries, None) is not None:
                    refused(folder, f"holds more than {most_count} names; the others were not read")
            found.sort(key=lambda entry: entry.name)
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
