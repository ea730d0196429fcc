"""Archives that hold recorded runs: unpacked for as long as they are read. `doctor bundle` writes such ones."""

from __future__ import annotations

import contextlib
import lzma
import os
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Gap

MANIFEST = "MANIFEST.json"
"""What a bundle says of itself; no source of the run."""
_ENDINGS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
_DAMAGE = (OSError, EOFError, ValueError, OverflowError, tarfile.TarError, zlib.error, lzma.LZMAError)
_MOST_BYTES = 4 << 30
_MOST_FILES = 20_000


@contextlib.contextmanager
def unpacked(paths: Sequence[str], gaps: list[Gap]) -> Iterator[dict[str, str]]:
    """Each path to read -> the name to show for it; an archive with a trace in it is read from a temporary folder.

    Links, devices and names that lead out of the archive are not unpacked; what is left out becomes a Gap.
    """
    with contextlib.ExitStack() as stack:
        found: dict[str, str] = {}
        for path in map(os.fspath, paths):
            if not path.lower().endswith(_ENDINGS) or not _holds_trace(path):
                found[path] = path
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlhfdoctor-"))
            _unpack(path, folder, gaps)
            parts = sorted(Path(folder).iterdir())
            if any(part.suffix == SUFFIX or part.name == "run.json" for part in parts):
                found[folder] = path  # the run's folder itself was packed
                continue
            for part in parts:
                if part.name != MANIFEST:
                    found[str(part)] = f"{path}!{part.name}"
        yield found


def _holds_trace(path: str) -> bool:
    try:
        with tarfile.open(path) as archive:
            return any(member.isfile() and member.name.endswith(SUFFIX) for member in archive)
    except _DAMAGE:
        return False  # whoever reads it as an archive of logs says what is wrong


def _unpack(path: str, folder: str, gaps: list[Gap]) -> None:
    count = size = 0
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                count, size = count + 1, size + member.size
                if count > _MOST_FILES or size > _MOST_BYTES:
                    gaps.append(
                        Gap(
                            what=path,
                            why=f"more than {_MOST_FILES} files or {_MOST_BYTES >> 30} GiB; the rest was not read",
                        )
                    )
                    return
                if member.isfile():
                    _write(archive, member, Path(folder), path, gaps)
    except _DAMAGE as error:
        gaps.append(Gap(what=path, why=f"damaged or truncated archive ({error})"))


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, path: str, gaps: list[Gap]) -> None:
    parts = Path(member.name).parts
    target = folder.joinpath(*parts)
    source = archive.extractfile(member)
    if ".." in parts or Path(member.name).is_absolute() or source is None:
        gaps.append(Gap(what=f"{path}!{member.name}", why="its name leads out of the archive; not read"))
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with source, target.open("wb") as out:
            shutil.copyfileobj(source, out)
        os.utime(target, (member.mtime, member.mtime))
    except _DAMAGE as error:
        gaps.append(Gap(what=f"{path}!{member.name}", why=getattr(error, "strerror", None) or "damaged; not unpacked"))
