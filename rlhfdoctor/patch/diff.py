"""One unified diff of several files, under names by which tools such as `git apply` find them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.patch.merge import Change, is_member
from rlhfdoctor.patch.spans import make_diff


def whole_diff(changes: Sequence[Change], folder: Path) -> tuple[str, Path]:
    """The diff of all changes, and the folder in which it applies.

    That is the folder of the caller where all files are below it, else the one that holds all of them. A link is named
    by the file that it leads to, since neither tool follows one; a member of an archive as it is named there.
    """
    paths = [Path(change.file).resolve() for change in changes if not is_member(change.file)]
    top = folder.resolve()
    if not all(path.is_relative_to(top) for path in paths):
        top = Path(os.path.commonpath([path.parent for path in paths]))
    return "".join(make_diff(change.before, change.after, _name(change.file, top)) for change in changes), top


def _name(file: str, top: Path) -> str:
    return file.rpartition("!")[2] if is_member(file) else str(Path(file).resolve().relative_to(top))
