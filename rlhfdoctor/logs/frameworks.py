"""What the frameworks' own logs say, as their folders declare it."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.plugins import folders

PATTERNS: tuple[Pattern, ...] = tuple(
    Pattern(kind=row.event, regex=row.regex, sample=row.sample, follow=row.follow, when=row.when)
    for spec in folders.load()
    for row in spec.logs
)
