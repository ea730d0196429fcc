"""Progress of scoring responses. A framework's messages about failed calls are in its folder."""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, line
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    line(
        EVENT.reward.progress,
        r"(?:^|[\s\])])(?P<name>(?:(?:[Cc]omputing )?[Rr]ewards?|[Ss]coring|[Ss]core|[Jj]udg(?:e|ing)"
        r"|[Vv]erifying (?:answers?|responses?|solutions?)|[Gg]rading)\b[\w ()-]{0,60}): +\d+%\|[^|]*\| *"
        r"(?P<done_count>\d+)/(?P<total_count>\d+) "
        r"\[(?P<elapsed_text>[\d:]+)<",
        "[rank0] Scoring responses:  12%|#2        | 61/512 [29:40<3:39:21, 29.18s/it]",
        when="a progress bar of tqdm around a reward function",
    ),
)
