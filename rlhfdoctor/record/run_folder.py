"""The folder of a new run, which only its owner writes."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files import write
from rlhfdoctor.files.read import Refused
from rlhfdoctor.i18n.message import say


def make_folder(out: str | None, name: str) -> Path:
    """The folder of a new run.

    Raises:
        UsageError: it cannot be written.
    """
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:40] or "run"
    folder = Path(out) if out else Path("doctor-runs", f"{stamp}-{plain}")
    with written_to(folder):
        try:
            folder = folder if out else _fresh(folder)
            folder = folder.parent.resolve() / folder.name
            write.make_folder(folder)
            _fill(folder)
        except FileExistsError:
            if not folder.is_dir():
                raise UsageError(
                    say("{folder}: is no folder. Give a folder that can be written with --out DIR", folder=str(folder))
                ) from None
            raise UsageError(
                say("{folder}: holds another run. Look at it with --attach, or give another folder", folder=str(folder))
                if (folder / "lock").exists()
                else say("{folder}: is not empty. Give a folder of its own to the recording", folder=str(folder))
            ) from None
    return folder


@contextlib.contextmanager
def written_to(folder: Path) -> Iterator[None]:
    """An OSError within says that the folder cannot be written."""
    try:
        yield
    except OSError as error:
        raise UsageError(
            say(
                "{folder}: {error}. Give a folder that can be written with --out DIR",
                folder=str(folder),
                error=error.strerror,
            )
        ) from None


def _fill(folder: Path) -> None:
    """Makes an empty folder ours, whatever is put in its place meanwhile.

    Raises:
        FileExistsError: it is not empty.
        OSError: it is another user's, or cannot be written.
    """
    handle = write.open_folder(folder, real=True)
    try:
        if os.listdir(handle):
            raise FileExistsError
        if os.fstat(handle).st_uid != os.geteuid():
            raise Refused("belongs to another user", folder)
        os.fchmod(handle, write.PRIVATE_FOLDER)
        os.close(write.create(folder / "lock", real=True))  # ours from here on
        for name in ("logs", "marks"):
            os.mkdir(name, write.PRIVATE_FOLDER, dir_fd=handle)
    finally:
        os.close(handle)


def _fresh(folder: Path) -> Path:
    """An unused folder of this name: several ranks may start in the same second."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    info = folder.parent.lstat()
    if stat.S_ISLNK(info.st_mode) and info.st_uid != os.geteuid():
        raise Refused("is a link of another user", folder.parent)
    for number in range(1, 1000):
        candidate = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            candidate.mkdir(write.PRIVATE_FOLDER)
        except FileExistsError:
            continue
        return candidate
    return folder
