"""The incident as SARIF 2.1.0: findings at the lines of the configuration that their patches change.

Code hosts and editors show such results beside the line. A finding whose cure is on no line of a file is a
notification of the invocation: results without a place are refused by most readers.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from rlhfdoctor.i18n.message import ENGLISH, Language
from rlhfdoctor.report.json_text import to_text
from rlhfdoctor.report.phrasing import NOT_SET, SAFETIES
from rlhfdoctor.report.sanitize import clean, without_secrets
from rlhfdoctor.report.shown import LEAST_CONFIDENCE, roots
from rlhfdoctor.types import Finding, Incident, Patch, Replacement
from rlhfdoctor.version import VERSION

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT = "SRCROOT"
_LONGEST = 2000
"""Letters of a message."""


def to_dict(incident: Incident, words: Language = ENGLISH) -> dict[str, Any]:
    """One log with one run; files are named relative to the working folder where they are below it."""
    found = [finding for finding in roots(incident) if finding.confidence >= LEAST_CONFIDENCE]
    placed = [(finding, patch) for finding in found for patch in _placed(finding)]
    rules = [finding for finding in found if any(one is finding for one, _ in placed)]
    number = {finding.cause: place for place, finding in enumerate(rules)}
    run = {
        "tool": {
            "driver": {"name": "rlhfdoctor", "semanticVersion": VERSION, "rules": [_rule(f, words) for f in rules]}
        },
        "originalUriBaseIds": {_ROOT: {"uri": f"{Path.cwd().as_uri().rstrip('/')}/"}},
        "columnKind": "unicodeCodePoints",
        "invocations": [
            {
                "executionSuccessful": True,
                "toolExecutionNotifications": [_note(f, words) for f in found if f.cause not in number],
            }
        ],
        "results": [_result(finding, patch, number[finding.cause], words) for finding, patch in placed],
    }
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def render(incident: Incident, words: Language = ENGLISH) -> str:
    """The log as indented JSON text."""
    text = to_text(to_dict(incident, words))
    return text.encode("utf-8", "replace").decode() + "\n"


def _placed(finding: Finding) -> Iterator[Patch]:
    """The patches of lines in files that lie there as such: no member of an archive, no advice that does not hold."""
    for patch in finding.patches:
        if patch.file and patch.line and patch.diff and "!" not in patch.file and not patch.published:
            yield patch


def _rule(finding: Finding, words: Language) -> dict[str, Any]:
    return {
        "id": finding.cause,
        "shortDescription": {"text": clean(words(finding.title), _LONGEST)},
        "help": {"text": f"doctor rules explain {finding.cause}"},
        "defaultConfiguration": {"level": _level(finding)},
    }


def _level(finding: Finding) -> str:
    return "error" if finding.confidence >= 0.5 else "warning"


def _note(finding: Finding, words: Language) -> dict[str, Any]:
    return {
        "descriptor": {"id": finding.cause},
        "level": _level(finding),
        "message": {"text": clean(words(finding.summary), _LONGEST)},
    }


def _result(finding: Finding, patch: Patch, rule: int, words: Language) -> dict[str, Any]:
    before = words(NOT_SET) if patch.before is None else patch.before
    change = words(patch.named) if patch.after in (None, "null") else f"{words(patch.named)}: {before} -> {patch.after}"
    parts = [words(finding.summary), f"{change} ({words(SAFETIES[patch.safety])}).", words(patch.effect)]
    result = {
        "ruleId": finding.cause,
        "ruleIndex": rule,
        "level": _level(finding),
        "rank": round(100 * finding.confidence, 1),
        "message": {"text": clean(" ".join(part for part in parts if part), _LONGEST)},
        "locations": [
            {"physicalLocation": {"artifactLocation": _artifact(patch), "region": {"startLine": patch.line}}}
        ],
        "partialFingerprints": {"finding/v1": _fingerprint(finding, patch)},
    }
    inserted = [new.text for new in patch.replacements]
    if patch.safety != "show" and patch.replacements and list(map(without_secrets, inserted)) == inserted:
        changes = {
            "artifactLocation": _artifact(patch),
            "replacements": [_replacement(patch.base, new) for new in patch.replacements],
        }
        result["fixes"] = [{"description": {"text": clean(change)}, "artifactChanges": [changes]}]
    return result


def _artifact(patch: Patch) -> dict[str, Any]:
    path = os.path.abspath(str(patch.file))  # noqa: PTH100 - a link stays as the user wrote it
    here = Path.cwd()
    if Path(path).is_relative_to(here):
        return {"uri": quote(Path(path).relative_to(here).as_posix()), "uriBaseId": _ROOT}
    return {"uri": Path(path).as_uri()}


def _replacement(base: str, new: Replacement) -> dict[str, Any]:
    (line, column), (last_line, last_column) = _place(base, new.start), _place(base, new.end)
    region = {"startLine": line, "startColumn": column, "endLine": last_line, "endColumn": last_column}
    return {"deletedRegion": region, "insertedContent": {"text": new.text.encode("utf-8", "replace").decode()}}


def _place(text: str, offset: int) -> tuple[int, int]:
    """Line and column from 1.

    >>> _place("a b\\nc d", 6)
    (2, 3)
    """
    start = text.rfind("\n", 0, offset) + 1
    return text.count("\n", 0, offset) + 1, offset - start + 1


def _fingerprint(finding: Finding, patch: Patch) -> str:
    """The same for as long as the cause, the file, the setting and its value are: lines may move."""
    parts = (finding.cause, Path(str(patch.file)).name, patch.setting, str(patch.before))
    return hashlib.sha256("\0".join(parts).encode("utf-8", "replace")).hexdigest()
