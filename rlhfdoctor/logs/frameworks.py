"""What the frameworks' own logs say, as their folders declare it."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.plugins import folders

PATTERNS: tuple[Pattern, ...] = tuple(
    line(row.event, row.regex, row.sample, follow=row.follow, when=row.when)
    for spec in folders.load()
    for row in spec.logs
)
