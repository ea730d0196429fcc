"""Several patches of one file, applied together by the spans that each replaces."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.patch.journal import FILE_BYTES, Applied
from rlhfdoctor.patch.spans import collide, make_diff, splice
from rlhfdoctor.types import Patch, Replacement


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of one file."""

    file: str
    """As the user named it."""
    before: str
    """The whole text as it is."""
    after: str
    base: str
    """The whole text that the edits are of: as the run had it."""
    edits: tuple[Replacement, ...]
    """All that then differs from it, with what was written before."""
    count: int
    """How many patches it is."""


def apply_all(patches: Sequence[Patch], applied: Mapping[str, Applied] | None = None) -> list[Change]:
    """The change of each file.

    Args:
        applied: File -> what was written into it since the run, where its patches are made for the text before that.

    Raises:
        UsageError: a file is not as it was when it was analysed, or two patches collide.
    """
    changes = []
    for name, (base, replacements) in join(patches).items():
        earlier = (applied or {}).get(name)
        done = earlier.edits if earlier is not None else ()
        present = splice(base, done)
        rest = "" if is_member(name) else _rest(name, present)
        edits = (*done, *(new for new in replacements if new not in done))
        count = sum(patch.file == name and bool(patch.diff) for patch in patches)
        changes.append(Change(name, present + rest, splice(base, edits) + rest, base + rest, edits, count))
    return changes


def is_member(file: str) -> bool:
    """Whether a file is inside an archive, where nothing can be written."""
    return "!" in file and not os.path.lexists(file)


def join(patches: Sequence[Patch]) -> dict[str, tuple[str, list[Replacement]]]:
    """File -> (its text as it was analysed, the replacements of all of its patches); what several require is made once.

    Raises:
        UsageError: two patches replace the same place.
    """
    joined: dict[str, tuple[str, list[Replacement]]] = {}
    for patch in patches:
        if not patch.file or not patch.diff:
            continue
        base, there = joined.setdefault(patch.file, (patch.base, []))
        if patch.base != base or any(collide(new, old) for new in patch.replacements for old in there):
            raise UsageError(
                say(
                    "{file}: the patch of {spelled} touches the same place as another; apply them one by one",
                    file=patch.file,
                    spelled=patch.spelled,
                )
            )
        there.extend(new for new in patch.replacements if new not in there)
    return joined


def unapplied(patches: Iterable[Patch], applied: Mapping[str, Applied]) -> Iterable[Patch]:
    """The patches that are still to be written, with diffs of the files as they are now.

    What the doctor wrote since the run is left out, and what would change the same places again.
    """
    for patch in patches:
        earlier = applied.get(patch.file or "")
        if earlier is None or not patch.diff:
            yield patch
            continue
        done = earlier.edits
        if any(new in done or any(collide(new, old) for old in done) for new in patch.replacements):
            continue
        now, then = splice(patch.base, done), splice(patch.base, (*done, *patch.replacements))
        yield replace(patch, diff=make_diff(now, then, patch.file or ""))


def _rest(name: str, base: str) -> str:
    """What the file holds after the text that was analysed: nothing, unless only the start of a large one was read."""
    try:
        data, known = read_bytes(name, FILE_BYTES), base.encode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(joined(quoted(name), quoted(error.strerror), by=": ")) from None
    if not data.startswith(known):
        raise UsageError(say("{file}: changed since it was analysed; run doctor patch again", file=name))
    return data[len(known) :].decode("utf-8", "surrogateescape")
