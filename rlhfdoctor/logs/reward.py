"""What reward functions, judges and sandboxes say: calls that failed or timed out, and how far the scoring is.

Wording of OpenRLHF (openrlhf/utils/remote_rm_utils.py, later agent.py) and verl (verl/workers/reward_manager/prime.py: other
words in 0.3 than from 0.4; verl/utils/reward_score/sandbox_fusion/utils.py). None of these lines ends a run by itself.
"""

from __future__ import annotations

from rlhfdoctor.logs.pattern import Pattern, say
from rlhfdoctor.vocabulary import EVENT

PATTERNS: tuple[Pattern, ...] = (
    say(
        EVENT.reward.call_failed,
        r"Request error, please check: (?P<what_text>.{1,200})|Request error for (?P<try_count>\d+) times, returning None",
        "Request error, please check: HTTPConnectionPool(host='10.0.0.9', port=5000): Read timed out. (read timeout=180)",
        when="OpenRLHF with a remote reward model",
    ),
    say(
        EVENT.reward.call_failed,
        r"Global timeout in reward computing|Unexpected error in batched reward computing|\[Timeout\] Task timeout"
        r"|Global reward scoring timed out|Unexpected error during scoring"
        r"|API Request Error: Gateway Timeout \(504\) on attempt (?P<try_count>\d+)",
        "(TaskRunner pid=4711) Global timeout in reward computing! Setting all as 0.",
        when="verl: the prime reward manager, sandbox_fusion",
    ),
    say(
        EVENT.reward.progress,
        r"(?:^|[\s\])])(?P<name>(?:(?:[Cc]omputing )?[Rr]ewards?|[Ss]coring|[Ss]core|[Jj]udg(?:e|ing)|[Vv]erifying (?:answers?|responses?|solutions?)|[Gg]rading)\b[\w ()-]{0,60}): +\d+%\|[^|]*\| *(?P<done_count>\d+)/(?P<total_count>\d+) "
        r"\[(?P<elapsed_text>[\d:]+)<",
        "[rank0] Scoring responses:  12%|#2        | 61/512 [29:40<3:39:21, 29.18s/it]",
        when="a progress bar of tqdm around a reward function",
    ),
)
