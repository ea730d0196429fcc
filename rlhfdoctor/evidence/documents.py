"""Files beside a run's log that quote failures: documents, data, reports of the doctor itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import NamedTuple

from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.steps import STEPS
from rlhfdoctor.types import Event

_DOCUMENT = re.compile(
    r"(?i)(?:^|/)(?:(?:readme|changelog|changes|faq|notes|history|todo|runbook|postmortem|chat|slack)"
    r"(?:\.(?!log|out|err)[^/]*)?|doctor-report[^/]*|(?:doctor|verdict|diagnosis)\.[^/]*"
    r"|[^/]*\.(?:md|markdown|rst|tex|org|adoc|eml|html?|ipynb|csv|tsv|diff|patch))$"
)
_TEXT = re.compile(
    r"(?i)(?:^|/)(?![^/]*(?<![a-z])(?:dmesg|kern|kernel|messages|syslog|journal|console|stderr|stdout|logs?|out|err|sacct)"
    r"(?![a-z]))[^/]*\.(?:txt|jsonl?|ndjson)$"
)
"""Not named after what writes it: a log where a line has a time, or a prefix of Ray, of a rank or of the kernel."""
_BUNDLE = re.compile(r"(?:^|/)doctor-bundle[^/]*\.(?:tar\.gz|tgz|zip)!")
_SESSION = re.compile(r"(?:^|/)(?:raylet|gcs_server|python-core-\w{1,20}|worker)(?:[-_][^/]*)?\.(?:out|err|log)$")
"""Ray's own logs of a session."""
_QUOTED = ("|", ">")
"""How answers of the doctor, and mails, begin the lines of others."""
_REPORT = re.compile(r'\s*\{\s*"(?:schema": "rlhfdoctor\.(?:report|estimate|comparison)/|\$schema": "[^"]{1,200}sarif)')
_UPTIME = re.compile(r"^\s*\[ *\d+\.\d{6}\]")


class Sorted(NamedTuple):
    """What `without_documents` finds."""

    events: list[Event]
    files: Sequence[str]
    """Those left out."""


def is_report(text: str) -> bool:
    """Whether a text is JSON that the doctor wrote of a run, or another program's SARIF.

    >>> is_report('{\\n  "schema": "rlhfdoctor.report/1",'), is_report('{"schema": "rlhfdoctor.run/1"}')
    (True, False)
    """
    return _REPORT.match(text) is not None


def without_documents(events: Sequence[Event], named: Collection[str], *, is_recorded: bool) -> Sorted:
    """Events without those of files that quote a failure, where the run has a log of its own.

    Args:
        named: paths that the user gave; these are read whatever they are.
        is_recorded: whether there is a trace: the recorder keeps the run's logs beside it.
    """
    files: dict[str, list[Event]] = {}
    for event in events:
        files.setdefault(event.origin.file, []).append(event)
    quoting = [name for name, found in files.items() if name not in named and _quotes(name, found)]
    has_log = is_recorded or any(_is_log(name, found) for name, found in files.items())
    left_out = set(quoting) if has_log else set[str]()
    return Sorted([event for event in events if event.origin.file not in left_out], sorted(left_out))


def _is_log(name: str, events: Sequence[Event]) -> bool:
    """Whether a file is a log of the run: it has steps, or is Ray's own and shows a failure."""
    if _is_like(name):
        return False
    is_session = _SESSION.search(name) is not None
    return any(event.kind in STEPS or (is_session and classify(event)) for event in events)


def _is_like(name: str) -> bool:
    return bool(_DOCUMENT.search(name) or _TEXT.search(name) or _BUNDLE.search(name))


def _quotes(name: str, events: Sequence[Event]) -> bool:
    """Whether a file is no log by its name and by what is known of its lines, and holds a failure."""
    if not any(classify(event) for event in events):
        return False
    if _DOCUMENT.search(name) or _BUNDLE.search(name):
        return True
    written = (event for event in events if not event.text.lstrip().startswith(_QUOTED))
    return _TEXT.search(name) is not None and not any(map(_is_logged, written))


def _is_logged(event: Event) -> bool:
    """Whether a program that logs has written a line: it bears a time, a process, a rank or the kernel's uptime."""
    origin = event.origin
    written = event.time is not None or origin.actor is not None or origin.pid is not None or origin.rank is not None
    return written or _UPTIME.match(event.text) is not None
