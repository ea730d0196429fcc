"""Patches written into the user's files, in a way that can be taken back byte for byte.

A revert refuses to touch a file that has changed since, and believes no journal but the file's own (journal.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.errors import SourceError, UsageError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.files.write import replace
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.patch.journal import (
    FILE_BYTES,
    Applied,
    Damaged,
    drop,
    find_applied,
    find_journals,
    hash_of,
    keep,
    load,
    path_of,
)
from rlhfdoctor.patch.merge import Change
from rlhfdoctor.types import Finding, Gap, Patch


def selected(findings: Sequence[Finding], consent: Sequence[str]) -> list[Patch]:
    """The patches that may be written: of findings that are no secondary failures, safe ones or those with consent."""
    chosen: list[Patch] = []
    for finding in findings:
        if finding.explained_by is not None or (finding.confidence < 0.5 and finding.cause not in consent):
            continue
        for patch in finding.patches:
            agreed = patch.safety == "safe" or (patch.safety == "consent" and finding.cause in consent)
            taken = any(p.setting == patch.setting and p.file == patch.file for p in chosen)
            if patch.file and patch.diff and agreed and not taken:
                chosen.append(patch)
    return chosen


def write_change(change: Change) -> None:
    """Replaces a file's text at once and journals the original; owner, mode and attributes stay.

    Raises:
        SourceError: the file or its folder cannot be written.
        UsageError: it is not as it was when the change was made.
    """
    path = Path(change.file)
    before, base, after = (
        text.encode("utf-8", "surrogateescape") for text in (change.before, change.base, change.after)
    )
    try:
        real = path.resolve()
        if read_bytes(real, FILE_BYTES, follow=False) != before:
            raise UsageError(say("{file}: changed since it was analysed; run doctor patch again", file=change.file))
        is_first = not path_of(real).exists()
        keep(real, before, after, base, change.edits)
        try:
            replace(real, after, keep=True, real=True)
        except OSError:
            if is_first:
                drop(path_of(real))
            raise
    except OSError as error:
        raise SourceError(
            say("{file}: cannot be written: {error}. Nothing was changed there.", file=str(path), error=error.strerror)
        ) from None


def applied_to(path: Path, gaps: list[Gap]) -> Applied | None:
    """What the doctor has written into a file; None if nothing, or if the file was edited since."""
    try:
        real = path.resolve()
        return find_applied(real, read_bytes(real, FILE_BYTES)) if path_of(real).exists() else None
    except (OSError, RuntimeError, Damaged) as error:  # RuntimeError: links in a circle
        why = quoted(error.strerror) if isinstance(error, OSError) else quoted(error)
        gaps.append(Gap(what=quoted(path), why=why))
        return None


def revert_files(paths: Sequence[Path]) -> list[Path]:
    """Restores every patched file below the paths, and returns them. Nothing is changed before all can be.

    Raises:
        SourceError: a file cannot be written.
        UsageError: a file was changed after it was patched, or its journal is damaged.
    """
    kept: dict[Path, Path] = {}
    for path in paths:
        if path.is_dir():
            real = path.resolve()
            kept |= {path / _file_of(journal).relative_to(real): journal for journal in find_journals(real)}
        elif path_of(path.resolve()).exists():
            kept[path] = path_of(path.resolve())
    hashes = {path: hash_of(_bytes_before(journal)) for path, journal in kept.items()}
    for path, journal in kept.items():
        data = _read_again(journal, hashes[path])  # all of them at once may be very large
        try:
            replace(_file_of(journal), data, keep=True, real=True)
            drop(journal)
        except OSError as error:
            raise SourceError(say("{file}: cannot be written: {error}", file=str(path), error=error.strerror)) from None
    return list(kept)


def _bytes_before(journal: Path) -> bytes:
    """What to restore, if the journal can be believed and the file is as the doctor left it."""
    file = _file_of(journal)
    try:
        entry = load(journal)
        data = entry.bytes_before()
    except (OSError, Damaged) as error:
        why = quoted(error.strerror) if isinstance(error, OSError) else quoted(error)
        raise UsageError(
            say("{journal}: is no journal to restore from: {why}. Nothing was changed.", journal=str(journal), why=why)
        ) from None
    try:
        now = hash_of(read_bytes(file, FILE_BYTES, follow=False))
    except OSError:
        now = ""
    if not entry.is_state(now):
        raise UsageError(
            say(
                "{file}: changed since it was patched; the original is kept in {journal}",
                file=str(file),
                journal=str(journal),
            )
        )
    return data


def _read_again(journal: Path, hashed: str) -> bytes:
    """What was looked at before the first file was restored.

    Raises:
        SourceError: it is no more what it was.
    """
    try:
        data = _bytes_before(journal)
    except UsageError:
        data = b""
    if hash_of(data) != hashed:
        raise SourceError(
            say("{file}: changed while files were restored; it is left as it is", file=str(_file_of(journal)))
        )
    return data


def _file_of(journal: Path) -> Path:
    return journal.parent.parent / journal.name.removesuffix(".json")
