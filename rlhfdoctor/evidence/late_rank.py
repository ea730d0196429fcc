"""What the late rank did while the others waited: generation, rewards, a checkpoint."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.evidence.wait import find_busy, is_near, is_over, read_elapsed, without_stacks_of
from rlhfdoctor.i18n.message import plural, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_GENERATING = re.compile(r"generate\b|generate_sequences|_sample\b|\bsample\b|greedy_search|beam_search")
_REWARDING = re.compile(
    r"(?:_?calculate_rewards?|compute_(?:score|reward)\w*|reward_f(?:n|unc)\w*|reward_score|score|score_\w+"
    r"|parallel_compute_score\w*"
    r"|request_api_wrapper|_fetch_rewards_via_http|_post_request|remote_rm_fn\w*|call_judge|judge_\w+"
    r"|check_correctness|call_sandbox_api)$"
)
_REWARD_FILES = re.compile(
    folders.joined("math_verify", (part for spec in folders.load() for part in spec.reward_code))
)
_SCORING = re.compile(r"phase score\b|reward|judg(?:e|ing)|compute_rm_score|\bscore \((?:trainer|log line)\)", re.I)
_WAITING = re.compile(r"distributed_c10d|torch/distributed/")
_CHECKPOINT = re.compile(
    r"^(?:_?save_(?:checkpoint|model|pretrained|ckpt|state_dict|zero_checkpoint)|_?load_(?:checkpoint|ckpt|state_dict)"
    r"|async_save|torch_save|save_to_hf)$"
)
_CHECKPOINT_FILES = re.compile(r"/(?:dist_checkpointing|distributed/checkpoint)/")
"""Megatron-Core's and torch's packages for checkpoints."""
_CHECKPOINT_MARKS = (
    EVENT.phase.checkpoint,
    EVENT.phase.checkpoint_load,
    EVENT.deepspeed.checkpoint_save,
    EVENT.deepspeed.checkpoint_load,
)
_EXPERT_CODE = re.compile(r"_moe\b|_moe[./]|mixtral|Moe|experts?\b|deepseek_v[23]")


def find_late_rank(case: Case, timeout: Event, limit_s: float) -> Iterator[Evidence]:
    """What the rank that the others waited for was doing at the time of a timeout."""
    yield from _meanwhile(case, timeout, limit_s)
    yield from _reward(case, timeout, limit_s)
    yield from _checkpoint(case, timeout, limit_s)


def _meanwhile(case: Case, first: Event, limit_s: float) -> Iterator[Evidence]:
    """What other ranks were doing while one waited: generation in progress, frames inside generate."""
    longest = 0.0
    shown: Event | None = None
    for event in case.of(EVENT.phase.rollout):
        elapsed = read_elapsed(str(event.fields.get(FIELD.elapsed_text, "")))
        if elapsed > longest:
            longest, shown = elapsed, event
    if shown is not None:
        yield fact(
            FACT.comm.rollout_s, longest, say("a generation had been running for {longest:s}", longest=longest), shown
        )
        yield fact(
            FACT.comm.rollout_to_timeout,
            longest / max(limit_s, 1),
            say(
                "that is {longest:.2f} of the limit of {limit_s:s}", longest=longest / max(limit_s, 1), limit_s=limit_s
            ),
            shown,
        )
    bar = find_busy(case, first, limit_s)
    if bar is not None:
        busy = read_elapsed(str(bar.fields[FIELD.elapsed_text]))
        yield fact(
            FACT.comm.busy_to_timeout,
            busy / max(limit_s, 1),
            say(
                "a progress bar had been running for {busy:s}, {part:.2f} of the limit",
                busy=busy,
                part=busy / max(limit_s, 1),
            ),
            bar,
        )
    frames = [
        e
        for e in case.of(EVENT.python.frame)
        if _GENERATING.search(str(e.fields.get(FIELD.function_text))) or "generation/utils.py" in e.text
    ]
    if frames:
        ranks = {e.origin.rank if e.origin.rank is not None else e.origin.pid for e in frames}
        yield fact(
            FACT.comm.in_generate,
            True,
            say("{processes} inside generate()", processes=plural("{n} process", "{n} processes", len(ranks))),
            frames[-1],
        )
    elsewhere = [
        e
        for e in case.of(EVENT.python.frame)
        if re.search(r"log_probs?\b|compute_values|score", str(e.fields.get(FIELD.function_text)))
    ]
    if frames and elsewhere:
        yield fact(
            FACT.comm.ranks_in_different_phases,
            True,
            say("while one rank generates, another already computes log-probabilities"),
            elsewhere[-1],
        )


def _reward(case: Case, first: Event, limit_s: float) -> Iterator[Evidence]:
    """Whether a rank was in a reward function, judge or sandbox, and for how long one had been running."""
    near = [e for e in case.of(EVENT.python.frame) if is_near(e, first, limit_s) and not is_over(case, e, first)]
    waits = [e for e in near if _WAITING.search(str(e.fields.get(FIELD.path_text)))]
    scoring = [e for e in near if _is_rewarding(e)]
    frames = without_stacks_of(scoring, waits)
    if scoring and not frames:
        yield fact(
            FACT.comm.behind_reward,
            True,
            say("a rank had scored its responses and waited in the collective behind that"),
            scoring[-1],
        )
    elif waits and not frames:
        yield fact(
            FACT.comm.in_reward, False, say("the stack of a rank that waited shows no reward function"), near[-1]
        )
    if frames:
        ranks = {e.origin.rank if e.origin.rank is not None else e.origin.pid for e in frames}
        file = str(frames[-1].fields.get(FIELD.path_text)).rsplit("/", 1)[-1]
        where = f"{frames[-1].fields.get(FIELD.function_text)}() of {file}"
        yield fact(
            FACT.comm.in_reward,
            True,
            say(
                "{processes} inside {where}", processes=plural("{n} process", "{n} processes", len(ranks)), where=where
            ),
            frames[-1],
        )
    bars = [
        (read_elapsed(str(e.fields.get(FIELD.elapsed_text, ""))), e)
        for e in case.of(EVENT.reward.progress)
        if is_near(e, first, limit_s) and (whole(e, FIELD.done_count) or 0) < (whole(e, FIELD.total_count) or 1)
    ]
    if bars:
        longest, shown = max(bars, key=lambda bar: bar[0])
        ratio = longest / max(limit_s, 1)
        yield fact(
            FACT.comm.reward_to_timeout,
            ratio,
            say(
                "scoring had been running for {longest:s}, {ratio:.2f} of the limit of {limit_s:s}",
                longest=longest,
                ratio=ratio,
                limit_s=limit_s,
            ),
            shown,
        )
    failed = [e for e in case.of(EVENT.reward.call_failed) if is_near(e, first, limit_s)]
    if failed:
        yield fact(
            FACT.comm.reward_calls_failed_count,
            len(failed),
            say(
                "{calls} failed or timed out before it",
                calls=plural("{n} reward call", "{n} reward calls", len(failed)),
            ),
            failed[-1],
        )
    before = itertools.takewhile(lambda e: e is not first, case.events)
    marks = [e for e in before if e.kind in MARKS or (e.kind == EVENT.trace.mark and FIELD.phase in e.fields)]
    if marks and marks[-1].kind in (EVENT.phase.score, EVENT.trace.mark) and _SCORING.search(marks[-1].text):
        yield fact(
            FACT.comm.reward_phase, True, say("the last thing that was begun is the scoring of responses"), marks[-1]
        )


def _checkpoint(case: Case, first: Event, limit_s: float) -> Iterator[Evidence]:
    """Whether a checkpoint was being written or read when the ranks waited, or an expert's weights were gathered."""
    near = [e for e in case.of(EVENT.python.frame) if is_near(e, first, limit_s) and not is_over(case, e, first)]
    saving = [
        e
        for e in near
        if _CHECKPOINT.search(str(e.fields.get(FIELD.function_text)))
        or _CHECKPOINT_FILES.search(str(e.fields.get(FIELD.path_text)))
    ]
    if saving:
        yield fact(
            FACT.comm.in_checkpoint,
            True,
            say("a rank stood in {function_text}()", function_text=saving[-1].fields.get(FIELD.function_text)),
            saving[-1],
        )
    experts = [
        e for e in near if _EXPERT_CODE.search(f"{e.fields.get(FIELD.path_text)} {e.fields.get(FIELD.function_text)}")
    ]
    if experts:
        yield fact(FACT.comm.in_experts, True, say("a rank stood in the code of a mixture of experts"), experts[-1])
    before = list(itertools.takewhile(lambda e: e is not first, case.events))
    before = [e for e in before if e.repeats_count == 1 and "100%" not in e.text]  # Ray flushes those seconds later
    steps = [e for e in before if e.kind in (EVENT.phase.step, EVENT.phase.episode)]
    numbers: dict[int | None, Event] = {}
    for e in steps:
        numbers.setdefault(whole(e, FIELD.step), e)
    fresh = {id(e) for e in numbers.values()}
    marks = [
        e
        for e in before
        if e.kind in MARKS
        or id(e) in fresh
        or e.kind.startswith("deepspeed.checkpoint_")
        or (e.kind == EVENT.trace.mark and FIELD.phase in e.fields)
    ]
    if marks and (marks[-1].kind in _CHECKPOINT_MARKS or marks[-1].fields.get(FIELD.phase) == "checkpoint"):
        yield fact(FACT.comm.checkpoint_phase, True, say("the last thing that was begun is a checkpoint"), marks[-1])


def _is_rewarding(frame: Event) -> bool:
    name, path = str(frame.fields.get(FIELD.function_text)), str(frame.fields.get(FIELD.path_text))
    return bool(_REWARDING.match(name) or _REWARD_FILES.search(path))
