"""Archives that hold recorded runs: unpacked for as long as they are read. `doctor bundle` writes such ones."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath

from rlhfdoctor.files.walk import DEEPEST
from rlhfdoctor.files.write import create
from rlhfdoctor.i18n.message import quoted, say
from rlhfdoctor.logs.archive import READ_ERRORS, Member, is_archive, read_members
from rlhfdoctor.trace.store import SUFFIX
from rlhfdoctor.types import Gap

MANIFEST = "MANIFEST.json"
"""A bundle's own description; not a source of the run."""
_MOST_BYTES = 4 << 30
_MOST_FILES = 20_000
_ANY_BYTES = 1 << 62
_NAME_LETTERS = 200


@contextlib.contextmanager
def unpacked(paths: Sequence[str], gaps: list[Gap]) -> Iterator[dict[str, str]]:
    """Each path to read -> the name to show for it; an archive with a trace in it is read from a temporary folder.

    Links, devices and names that lead out of the archive are not unpacked; what is left out becomes a Gap.
    """
    with contextlib.ExitStack() as stack:
        found: dict[str, str] = {}
        for path in map(os.fspath, paths):
            if not is_archive(path) or not _holds_trace(path):
                found[path] = path
                continue
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="rlhfdoctor-"))
            _unpack(path, folder, gaps)
            top = _top(Path(folder))
            shown = path if top == Path(folder) else f"{path}!{top.relative_to(folder)}"
            parts = sorted(top.iterdir())
            if any(part.suffix == SUFFIX or part.name == "run.json" for part in parts):
                found[str(top)] = shown
                continue
            for part in parts:
                if part.name != MANIFEST:
                    found[str(part)] = f"{path}!{part.relative_to(folder)}"
        yield found


def shown(name: str, names: Mapping[str, str]) -> str:
    """A file's name as the user knows it: by the archive, where it was unpacked."""
    for real, to_show in names.items():
        if real != to_show and name.startswith(real):
            return name.replace(real, to_show, 1)
    return name


def _top(folder: Path) -> Path:
    """The first folder that holds more than one other: `tar czf run.tgz home/me/runs/one` packs those above, too."""
    while len(inside := list(folder.iterdir())) == 1 and inside[0].is_dir() and inside[0].name != "nodes":
        folder = inside[0]
    return folder


def _holds_trace(path: str) -> bool:
    """Whether a segment of a trace is in it; faults of the archive are reported when it is read."""
    named = read_members(path, [], wanted=lambda name: name.endswith(SUFFIX), most_bytes=_ANY_BYTES)
    with contextlib.closing(named):
        return next(named, None) is not None


def _unpack(path: str, folder: str, gaps: list[Gap]) -> None:
    members = read_members(path, gaps, wanted=lambda _: True, most_bytes=_MOST_BYTES)
    with contextlib.closing(members):
        for count, member in enumerate(members):
            if count >= _MOST_FILES:
                gaps.append(
                    Gap(
                        what=quoted(path),
                        why=say("more than {most_files} files; the rest was not read", most_files=_MOST_FILES),
                    )
                )
                return
            _write(member, Path(folder), path, gaps)


def _write(member: Member, folder: Path, path: str, gaps: list[Gap]) -> None:
    """One file below the folder, and never outside of it."""
    name = PurePosixPath(member.name)
    if len(name.parts) > DEEPEST:
        why = say("lies more than {deepest} folders deep; not read", deepest=DEEPEST)
        gaps.append(Gap(what=quoted(f"{path}!{member.name[:_NAME_LETTERS]}"), why=why))
        return
    if ".." in name.parts or name.is_absolute():
        gaps.append(
            Gap(
                what=quoted(f"{path}!{member.name}"),
                why=say("its name leads out of the archive; not read"),
            )
        )
        return
    target = folder / name
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # of two members with one name the later counts
        with os.fdopen(create(target), "wb") as out:
            shutil.copyfileobj(member.handle, out)
        if member.modified is not None:
            os.utime(target, (member.modified, member.modified))
    except READ_ERRORS as error:
        gaps.append(
            Gap(
                what=quoted(f"{path}!{member.name}"),
                why=quoted(error.strerror)
                if isinstance(error, OSError) and error.strerror
                else say("damaged; not unpacked"),
            )
        )
