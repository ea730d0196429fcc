"""Exceptions that somebody caught, as the log says: a warning, a retry, a fallback, an error of a tested program."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rlhfdoctor.evidence.case import Case
from rlhfdoctor.types import Event
from rlhfdoctor.vocabulary import EVENT, FIELD
from rlhfdoctor.vocabulary.run import Failure

_LEVEL = re.compile(
    r"^(?:\([^)\n]{0,80}\) ?)?[\[(]?(?:[\d:.,/TZ+ \]|-]{8,60})?[\s\[(|-]{0,4}(?:WARNING|WARN|warning)\b[\]:| -]"
)
"""A line that its logger calls a warning: behind Ray's prefix and a time."""
_SAYS = re.compile(r"(?i)\b(?:retrying|will retry|retry \(?\d|falling back|fall back|fallback|skipping)\b")
_TESTED = re.compile(r"^(?:<string>|<code>|<stdin>|/tmp/tmp\w{4,12}(?:/\w{1,40})?\.py)$")
"""Files of a program that a reward function runs: passed as text, or written by `tempfile`."""
_TRACEBACK_LINES = 40
_HEAD_LINES = 3
"""Between a word that an exception is swallowed and its traceback."""


def is_handled(case: Case, event: Event) -> bool:
    """Whether an exception is one that was caught, by its own line or by what stands around it."""
    if event.kind not in (EVENT.python.error, EVENT.python.bare_error):
        return False
    first = event.text.partition("\n")[0]
    if _LEVEL.match(first) or _SAYS.search(first):
        return True
    line = event.origin.line or 0
    before = [e for e in case.around(event, _TRACEBACK_LINES) if 0 <= line - (e.origin.line or 0) <= _TRACEBACK_LINES]
    begins = [e.origin.line or 0 for e in before if e.kind == EVENT.python.traceback]
    begin = max(begins, default=line)
    if any(e.kind == EVENT.python.swallowed and 0 <= begin - (e.origin.line or 0) <= _HEAD_LINES for e in before):
        return True
    frames = [e for e in before if e.kind == EVENT.python.frame and (e.origin.line or 0) >= begin]
    return bool(frames) and all(_TESTED.match(str(e.fields.get(FIELD.path_text))) for e in frames)


def without_handled(case: Case, shown: Sequence[tuple[Event, Failure]]) -> list[tuple[Event, Failure]]:
    """The failures of which the log does not say that they were caught."""
    return [(event, found) for event, found in shown if not is_handled(case, event)]
