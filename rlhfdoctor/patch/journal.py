"""What a file was before the doctor changed it: `.rlhfdoctor/<file>.json` beside the file.

A journal is believed for that very file only: a received folder may hold one that names another file, or is a link.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rlhfdoctor.files import write
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.walk import walk
from rlhfdoctor.patch.spans import splice
from rlhfdoctor.types import Replacement

FOLDER = ".rlhfdoctor"
_IGNORED = ".gitignore"
"""That git does not list the folder."""
_SCHEMA = "rlhfdoctor.patched/1"
_MOST_BYTES = 64 << 20
FILE_BYTES = 32 << 20
"""A larger file is no configuration."""
_MOST_EDITS, _MOST_BASE_BYTES = 200, 4 << 20
"""What is more or larger is no patch of a configuration: it is written, and not remembered."""
_MOST_EDITS_BYTES = 1 << 20
"""Of the edits as JSON. A journal has room for seven million of them, which are a gigabyte of objects."""


class Damaged(ValueError):
    """A journal that is invalid."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What the doctor has written into a file, and still stands there."""

    base: bytes
    """The file as the run had it for which the patches were made."""
    edits: tuple[Replacement, ...]
    """By the places of that text."""
    at_s: float
    """When they were written, in Unix seconds."""

    def after(self) -> bytes:
        """The file as it is."""
        return with_edits(self.base, self.edits)


class Journal(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One file's: its bytes before, and the hashes of its states."""

    schema: str = _SCHEMA
    file: str
    original: str
    """In base64."""
    before: str
    written: str
    former: str = ""
    """What the change was made in, which is the original but for a second patch: as long as the file is that, the
    change was noted and not made."""
    base: str = ""
    """What the edits are of, in base64; empty: the original. Another one once the patched file was patched again."""
    edits: msgspec.Raw = msgspec.Raw(b"[]")
    """A list of [from, to, text]: which characters were replaced, and by what."""

    def is_state(self, hashed: str) -> bool:
        """Whether a file is as the doctor left it, or found it."""
        return hashed in (self.written, self.former, self.before)

    def replacements(self) -> tuple[Replacement, ...]:
        """The edits.

        Raises:
            Damaged: they are none, or more than the doctor writes.
        """
        if len(memoryview(self.edits)) > _MOST_EDITS_BYTES:
            raise Damaged("it keeps more changes than the doctor makes")
        try:
            edits = msgspec.json.decode(self.edits, type=list[tuple[int, int, str]])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Damaged(str(error)) from None
        return tuple(Replacement(*edit) for edit in edits)

    def bytes_before(self) -> bytes:
        """The file as it was.

        Raises:
            Damaged: the bytes are not those that were kept.
        """
        data = _decoded(self.original)
        if hash_of(data) != self.before:
            raise Damaged("what it keeps is not what it says that it keeps")
        return data


def path_of(file: Path) -> Path:
    """Where the journal of a file is, or would be."""
    return file.parent / FOLDER / f"{file.name}.json"


def keep(file: Path, original: bytes, written: bytes, base: bytes = b"", edits: Sequence[Replacement] = ()) -> None:
    """Notes a change before it is made. What was changed by hand since the last one is the new original.

    Args:
        file: its path, which is no link.
        original, written: the file before and after.
        base, edits: what was replaced in which text; `written` is the text with them.

    Raises:
        OSError: it cannot be written.
    """
    path = path_of(file)
    text = base64.b64encode(original).decode()
    now = hash_of(original)
    entry = Journal(file=file.name, original=text, before=now, written=hash_of(written), former=now)
    with contextlib.suppress(FileNotFoundError, Damaged):
        last = load(path)
        if last.is_state(now):
            entry.original, entry.before = last.original, last.before
    if _is_modest(base, edits):
        entry.base = "" if hash_of(base) == entry.before else base64.b64encode(base).decode()
        entry.edits = msgspec.Raw(msgspec.json.encode([(edit.start, edit.end, edit.text) for edit in edits]))
    write.make_folder(path.parent)
    if not (path.parent / _IGNORED).exists():
        write.replace(path.parent / _IGNORED, b"*\n", real=True)
    write.replace(path, msgspec.json.encode(entry), real=True)


def drop(path: Path) -> None:
    """Removes a journal, and the folder with the last one.

    Raises:
        OSError: it cannot be removed, or a link has come into its path.
    """
    write.remove(path, with_last=(_IGNORED,))


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


def find_applied(file: Path, data: bytes) -> Applied | None:
    """What the doctor has written into a file with these bytes; None if nothing, or if it was edited since.

    Raises:
        Damaged: the journal says something that cannot be true.
        OSError: it cannot be read.
    """
    journal = path_of(file)
    try:
        entry = load(journal)
    except FileNotFoundError:
        return None
    edits = entry.replacements() if entry.written == hash_of(data) else ()
    if not edits:
        return None
    base = _decoded(entry.base) if entry.base else entry.bytes_before()
    if not _is_modest(base, edits) or with_edits(base, edits) != data:
        raise Damaged("the changes that it keeps do not make the file")
    return Applied(base, edits, journal.stat().st_mtime)


def _is_modest(base: bytes, edits: Sequence[Replacement]) -> bool:
    """Whether the edits are as patches of a configuration are, so that to make them again takes no time."""
    size = sum(len(edit.text) for edit in edits)
    return (
        len(edits) <= _MOST_EDITS
        and size <= _MOST_EDITS_BYTES // 8  # a letter is up to six in JSON
        and len(base) + size <= _MOST_BASE_BYTES
        and all(edit.text.isascii() for edit in edits)
    )


def with_edits(base: bytes, edits: Sequence[Replacement]) -> bytes:
    """A file's bytes after edits of its text."""
    text = splice(base.decode("utf-8", "surrogateescape"), edits)
    return text.encode("utf-8", "surrogateescape")


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError as error:  # also binascii.Error
        raise Damaged(str(error)) from None


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
