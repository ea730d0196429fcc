"""What a file was before the doctor changed it: `.rlhfdoctor/<file>.json` beside the file.

A journal is believed for that very file only: a received folder may hold one that names another file, or is a link.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from pathlib import Path

import msgspec

from rlhfdoctor.files import write
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.walk import walk

FOLDER = ".rlhfdoctor"
_SCHEMA = "rlhfdoctor.patched/1"
_MOST_BYTES = 64 << 20
FILE_BYTES = 32 << 20
"""A larger file is no configuration."""


class Damaged(ValueError):
    """A journal that is invalid."""


class Journal(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One file's: its bytes before, and the hashes of both states."""

    schema: str = _SCHEMA
    file: str
    original: str
    """In base64."""
    before: str
    written: str

    def bytes_before(self) -> bytes:
        """The file as it was.

        Raises:
            Damaged: the bytes are not those that were kept.
        """
        try:
            data = base64.b64decode(self.original, validate=True)
        except ValueError as error:  # also binascii.Error
            raise Damaged(str(error)) from None
        if hash_of(data) != self.before:
            raise Damaged("what it keeps is not what it says that it keeps")
        return data


def path_of(file: Path) -> Path:
    """Where the journal of a file is, or would be."""
    return file.parent / FOLDER / f"{file.name}.json"


def keep(file: Path, original: bytes, written: bytes) -> None:
    """Notes a change of a file (its real path) before it is made; what was changed by hand since is the new original.

    Raises:
        OSError: it cannot be written.
    """
    path = path_of(file)
    text = base64.b64encode(original).decode()
    entry = Journal(file=file.name, original=text, before=hash_of(original), written=hash_of(written))
    with contextlib.suppress(FileNotFoundError, Damaged):
        last = load(path)
        if last.written == entry.before:
            entry.original, entry.before = last.original, last.before
    write.make_folder(path.parent)
    write.replace(path, msgspec.json.encode(entry), real=True)


def load(path: Path) -> Journal:
    """The journal of the file beside it.

    Raises:
        Damaged: it is not this file's, or not complete.
        OSError: it cannot be read, or is a link or another user's.
    """
    data = read_bytes(path, _MOST_BYTES, follow=False, owners=(os.geteuid(),))
    try:
        entry = msgspec.json.decode(data, type=Journal)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Damaged(str(error)) from None
    if entry.schema != _SCHEMA or f"{entry.file}.json" != path.name or "/" in entry.file or "\0" in entry.file:
        raise Damaged("it is of another file")
    return entry


def find_journals(folder: Path) -> list[Path]:
    """Those below a folder; no link is followed."""
    return [
        Path(file.path)
        for name, files in walk(folder)
        if Path(name).name == FOLDER
        for file in files
        if file.name.endswith(".json")
    ]


def hash_of(data: bytes) -> str:
    """Of a state of a file."""
    return hashlib.sha256(data).hexdigest()
