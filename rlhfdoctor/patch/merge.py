"""Several patches of one file, applied together by the spans that each replaces."""

from __future__ import annotations

from collections.abc import Sequence

from rlhfdoctor.errors import UsageError
from rlhfdoctor.files.read import read_bytes
from rlhfdoctor.i18n.message import joined, quoted, say
from rlhfdoctor.patch.journal import FILE_BYTES
from rlhfdoctor.patch.spans import collide, splice
from rlhfdoctor.types import Patch, Replacement


def apply_all(patches: Sequence[Patch]) -> dict[str, tuple[str, int]]:
    """File -> (new text, number of patches).

    Raises:
        UsageError: a file is not as it was when it was analysed, or two patches collide.
    """
    changed: dict[str, tuple[str, int]] = {}
    for name, (base, replacements) in join(patches).items():
        rest = _rest(name, base)
        count = sum(patch.file == name and bool(patch.diff) for patch in patches)
        changed[name] = (splice(base, replacements) + rest, count)
    return changed


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


def _rest(name: str, base: str) -> str:
    """What the file holds after the text that was analysed: nothing, unless only the start of a large one was read."""
    try:
        data, known = read_bytes(name, FILE_BYTES), base.encode("utf-8", "surrogateescape")
    except OSError as error:
        raise UsageError(joined(quoted(name), quoted(error.strerror), by=": ")) from None
    if not data.startswith(known):
        raise UsageError(say("{file}: changed since it was analysed; run doctor patch again", file=name))
    return data[len(known) :].decode("utf-8", "surrogateescape")
