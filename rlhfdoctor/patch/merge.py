"""Several patches of one file, applied together: hunks moved to where the text now is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from rlhfdoctor.errors import UsageError
from rlhfdoctor.patch.plan import split_lines
from rlhfdoctor.types import Patch


def apply_all(patches: Sequence[Patch]) -> dict[str, tuple[str, int]]:
    """File -> (new text, number of patches).

    Each patch is a change of the file as it was analysed. Their changed ranges are merged by a
    three-way merge of characters against that text; two patches of the same place are refused.

    Raises:
        UsageError: a file is not as it was when it was analysed, or two patches collide.
    """
    changed: dict[str, tuple[str, int]] = {}
    for name in dict.fromkeys(p.file for p in patches if p.file and p.diff):
        base = _read(name)
        edits: list[tuple[int, int, str]] = []
        own = [p for p in patches if p.file == name and p.diff]
        for patch in own:
            new = apply_diff(base, patch.diff, name)
            found = _ranges(base, new)
            for start, end, text in found:
                if any(not (end <= s or start >= e) and (start, end, text) != (s, e, t) and (start != end or s != e) for s, e, t in edits):  # fmt: skip
                    raise UsageError(f"{name}: the patch of {patch.spelled} touches the same place as another; apply them one by one")  # fmt: skip
            edits.extend(edit for edit in found if edit not in edits)
        text = base
        for start, end, new in sorted(edits, key=lambda e: (-e[0], -e[1])):
            text = text[:start] + new + text[end:]
        changed[name] = (text, len(own))
    return changed


def apply_diff(base: str, diff: str, name: str) -> str:
    """The text after a unified diff, whose context must match exactly.

    Raises:
        UsageError: the file changed since.
    """
    lines = split_lines(base)
    out: list[str] = []
    position = 0
    body = split_lines(diff)[2:]
    for index, line in enumerate(body):
        if line.startswith("@@"):
            start = int(line.split("-")[1].split(" ")[0].split(",")[0])
            count = line.split("-")[1].split(" ")[0].partition(",")[2]
            target = start - 1 if count != "0" else start
            out += lines[position:target]
            position = target
            continue
        if line.startswith("\\"):
            continue
        bare = index + 1 < len(body) and body[index + 1].startswith("\\")
        content = line[1:-1] if bare else line[1:]
        if line[0] in " -":
            if position >= len(lines) or lines[position] != content:
                raise UsageError(f"{name}: changed since it was analysed; run doctor patch again")
            position += 1
        if line[0] in " +":
            out.append(content)
    return "".join(out + lines[position:])


def _ranges(base: str, new: str) -> list[tuple[int, int, str]]:
    """(start, end, replacement) of the changed lines, in characters of the base."""
    one, two = split_lines(base), split_lines(new)
    offsets = [0]
    for line in one:
        offsets.append(offsets[-1] + len(line))
    matcher = difflib.SequenceMatcher(None, one, two, autojunk=False)
    found = []
    for op, i1, i2, j1, j2 in matcher.get_opcodes():
        if op == "equal":
            continue
        old, fresh = "".join(one[i1:i2]), "".join(two[j1:j2])
        prefix = len(_common(old, fresh))
        suffix = len(_common(old[prefix:][::-1], fresh[prefix:][::-1]))
        found.append((offsets[i1] + prefix, offsets[i2] - suffix, fresh[prefix : len(fresh) - suffix]))
    return found


def _common(one: str, two: str) -> str:
    length = 0
    for a, b in zip(one, two, strict=False):
        if a != b:
            break
        length += 1
    return one[:length]


def _read(name: str) -> str:
    try:
        with Path(name).open(encoding="utf-8", errors="surrogateescape", newline="") as handle:
            return handle.read()
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
