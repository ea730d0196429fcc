"""Patches written into the user's files, in a way that can be taken back byte for byte.

Each write leaves `.rlhfdoctor/<file>.json` next to the file: the original bytes and the hash of
what was written. A revert refuses to touch a file that has changed since.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.errors import SourceError, UsageError
from rlhfdoctor.i18n.message import say
from rlhfdoctor.types import Finding, Patch

_JOURNAL = ".rlhfdoctor"


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


def write_file(path: Path, text: str) -> None:
    """Replaces a file's text at once and journals the original.

    Raises:
        SourceError: the file or its folder cannot be written.
    """
    try:
        original = path.read_bytes()
        data = text.encode("utf-8", "surrogateescape")
        journal = _journal(path)
        if not journal.exists():
            journal.parent.mkdir(exist_ok=True)
            _replace(
                journal,
                json.dumps(
                    {"file": path.name, "original": base64.b64encode(original).decode(), "written": _hash(data)}
                ).encode(),
            )
        else:
            entry = json.loads(journal.read_text())
            if entry["written"] != _hash(original):
                entry["original"] = base64.b64encode(
                    original
                ).decode()  # edited by hand since: that is the new original
            entry["written"] = _hash(data)
            _replace(journal, json.dumps(entry).encode())
        _replace(path.resolve(), data, path.stat().st_mode)
    except OSError as error:
        raise SourceError(
            say("{file}: cannot be written: {error}. Nothing was changed there.", file=str(path), error=error.strerror)
        ) from None


def find_original(path: Path) -> tuple[str, float] | None:
    """The text before the doctor patched a file, and when it did (Unix seconds).

    None if it has not, or the file was edited since.
    """
    journal = _journal(path)
    try:
        entry = json.loads(journal.read_text())
        if entry["written"] != _hash(path.read_bytes()):
            return None
        return base64.b64decode(entry["original"]).decode("utf-8", "surrogateescape"), journal.stat().st_mtime
    except (OSError, ValueError, KeyError, TypeError):
        return None


def revert_files(folders: Sequence[Path]) -> list[Path]:
    """Restores every patched file below the folders, and returns them.

    Raises:
        UsageError: a file was changed after it was patched.
    """
    restored: list[Path] = []
    for folder in folders:
        start = folder if folder.is_dir() else folder.parent
        for journal in sorted(start.rglob(f"{_JOURNAL}/*.json")):
            entry = json.loads(journal.read_text())
            path = journal.parent.parent / entry["file"]
            if not folder.is_dir() and path != folder:
                continue
            if not path.exists() or _hash(path.read_bytes()) != entry["written"]:
                raise UsageError(
                    say(
                        "{file}: changed since it was patched; the original is kept in {journal}",
                        file=str(path),
                        journal=str(journal),
                    )
                )
            try:
                _replace(path.resolve(), base64.b64decode(entry["original"]), path.stat().st_mode)
                journal.unlink()
                if not any(journal.parent.iterdir()):
                    journal.parent.rmdir()
            except OSError as error:
                raise SourceError(
                    say("{file}: cannot be written: {error}", file=str(path), error=error.strerror)
                ) from None
            restored.append(path)
    return restored


def _journal(path: Path) -> Path:
    return path.parent / _JOURNAL / f"{path.name}.json"


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _replace(path: Path, data: bytes, mode: int | None = None) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        fresh.write_bytes(data)
        if mode is not None:
            fresh.chmod(mode)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)
