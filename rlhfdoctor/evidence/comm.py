"""Collectives: who waited for whom, how long, who set the limit, and whether a death came first."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, number, whole
from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.evidence.roles import MARKS
from rlhfdoctor.i18n.message import NOTHING, plural, say
from rlhfdoctor.plugins import folders
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_GENERATING = re.compile(r"generate\b|generate_sequences|_sample\b|\bsample\b|greedy_search|beam_search")
_SMALL_NUMEL = 4096
_GATHERING = re.compile(r"deepspeed/runtime/zero/(?:partitioned_param_coordinator|partition_parameters)\.py")
_REWARDING = re.compile(
    r"(?:_?calculate_rewards?|compute_(?:score|reward)\w*|reward_f(?:n|unc)\w*|reward_score|score|score_\w+|parallel_compute_score\w*"
    r"|request_api_wrapper|_fetch_rewards_via_http|_post_request|remote_rm_fn\w*|call_judge|judge_\w+|check_correctness|call_sandbox_api)$"
)
_REWARD_FILES = re.compile(
    folders.joined("math_verify", (part for spec in folders.load() for part in spec.reward_code))
)
_SCORING = re.compile(r"phase score\b|reward|judg(?:e|ing)|compute_rm_score|\bscore \((?:trainer|log line)\)", re.I)
_WAITING = re.compile(r"distributed_c10d|torch/distributed/")
_CHECKPOINT = re.compile(
    r"^(?:_?save_(?:checkpoint|model|pretrained|ckpt|state_dict|zero_checkpoint)|_?load_(?:checkpoint|ckpt|state_dict)|async_save|torch_save|save_to_hf)$"
)
_CHECKPOINT_MARKS = (
    EVENT.phase.checkpoint,
    EVENT.phase.checkpoint_load,
    EVENT.deepspeed.checkpoint_save,
    EVENT.deepspeed.checkpoint_load,
)
_EXPERT_CODE = re.compile(r"_moe\b|_moe[./]|mixtral|Moe|experts?\b|deepseek_v[23]")
_NEAR_LINES = 200
_BAR_LINES = 40
_MOST_WAITS = 6
"""Work that would take longer than this multiple of the limit is the training itself."""
_STACK_LINES = 40


def find_collectives(case: Case) -> Iterator[Evidence]:
    """Facts of the first timeout, and how the ranks differ in it."""
    waits = case.of(EVENT.nccl.timeout)
    uneven = case.first(EVENT.gloo.size_mismatch)
    if uneven is not None:
        sent, expected = uneven.fields.get(FIELD.sent_bytes), uneven.fields.get(FIELD.expected_bytes)
        yield fact(
            FACT.comm.numel_differs,
            True,
            say("gloo: one rank sent {sent} bytes where another waited for {expected}", sent=sent, expected=expected),
            uneven,
        )
    if not waits:
        gloo = case.first(EVENT.gloo.timeout)
        if gloo is not None:
            limit = float(number(gloo, FIELD.limit_s) or 0)
            yield fact(FACT.comm.timeout_s, limit, say("gloo waited {limit:s}", limit=limit), gloo)
            yield fact(FACT.comm.op, say("a {what} of gloo", what=gloo.fields.get(FIELD.what_text)), NOTHING, gloo)
            gathers = [
                e
                for e in case.of(EVENT.python.frame)
                if _GATHERING.search(str(e.fields.get(FIELD.path_text)))
                and _is_near(e, gloo, limit)
                and not _is_over(case, e, gloo)
            ]
            if gathers:
                yield fact(
                    FACT.comm.parameter_gather,
                    True,
                    say("a rank stood in DeepSpeed's gather of ZeRO-3 parameters"),
                    gathers[-1],
                )
            yield from _meanwhile(case, gloo, limit)
            yield from _reward(case, gloo, limit)
            yield from _checkpoint(case, gloo, limit)
        return
    first = waits[0]
    limit = number(first, FIELD.timeout_s) or 0
    yield fact(
        FACT.comm.timeout_s,
        limit,
        say("a rank waited {limit:s} in {op}", limit=float(limit), op=first.fields.get(FIELD.op)),
        first,
    )
    yield fact(
        FACT.comm.op,
        str(first.fields.get(FIELD.op)),
        say("the collective was {op}", op=first.fields.get(FIELD.op)),
        first,
    )
    yield from _ranks(waits)
    yield from _status(case)
    yield from _sizes(first)
    yield from _meanwhile(case, first, float(limit))
    yield from _reward(case, first, float(limit))
    yield from _checkpoint(case, first, float(limit))


def _ranks(waits: list[Event]) -> Iterator[Evidence]:
    """Same sequence number with another operation or size is a mismatch; other numbers are a lag."""
    by_rank: dict[int, Event] = {}
    for event in waits:
        rank = whole(event, FIELD.rank) if FIELD.rank in event.fields else event.origin.rank
        by_rank.setdefault(rank if rank is not None else -len(by_rank) - 1, event)
    events = list(by_rank.values())
    for one in events:
        for two in events:
            same = one.fields.get(FIELD.seq) is not None and one.fields.get(FIELD.seq) == two.fields.get(FIELD.seq)
            if not same or one is two:
                continue
            if one.fields.get(FIELD.op) != two.fields.get(FIELD.op):
                yield fact(
                    FACT.comm.op_differs,
                    True,
                    say(
                        "at SeqNum={seq} one rank runs {op}, another {op2}",
                        seq=one.fields[FIELD.seq],
                        op=one.fields[FIELD.op],
                        op2=two.fields[FIELD.op],
                    ),
                    two,
                )
                return
            if one.fields.get(FIELD.numel_in) != two.fields.get(FIELD.numel_in):
                yield fact(
                    FACT.comm.numel_differs,
                    True,
                    say(
                        "at SeqNum={seq} one rank sends {numel_in} elements, another {numel_in2}",
                        seq=one.fields[FIELD.seq],
                        numel_in=one.fields.get(FIELD.numel_in),
                        numel_in2=two.fields.get(FIELD.numel_in),
                    ),
                    two,
                )
                return
    numbers = [seq for e in events if (seq := whole(e, FIELD.seq)) is not None]
    if len(numbers) > 1:
        spread = max(numbers) - min(numbers)
        yield fact(
            FACT.comm.seq_spread,
            spread,
            say("the ranks' sequence numbers differ by {spread}", spread=spread),
            events[-1],
        )


def _status(case: Case) -> Iterator[Evidence]:
    enqueued = [value for e in case.of(EVENT.nccl.work_status) if (value := whole(e, FIELD.enqueued)) is not None]
    if len(enqueued) > 1:
        spread = max(enqueued) - min(enqueued)
        yield fact(
            FACT.comm.enqueued_spread,
            spread,
            say("ranks have enqueued up to {spread} collectives more than others", spread=spread),
            case.first(EVENT.nccl.work_status),
        )


def _sizes(first: Event) -> Iterator[Evidence]:
    numel = whole(first, FIELD.numel_in)
    if numel is None:
        return
    gather = "ALLGATHER" in str(first.fields.get(FIELD.op))
    yield fact(
        FACT.comm.barrier_sized,
        numel <= _SMALL_NUMEL,
        say(
            "{numel} elements: {value}",
            numel=numel,
            value=(
                say("a barrier or a small message, so the others were busy elsewhere")
                if numel <= _SMALL_NUMEL
                else say("a bulk transfer")
            ),
        ),
        first,
    )
    yield fact(
        FACT.comm.parameter_gather,
        gather and numel >= 200_000,
        say(
            "{op} of {numel} elements per rank{gather}",
            op=first.fields.get(FIELD.op),
            numel=numel,
            gather=(say(" is the size of sharded parameters") if gather and numel >= 200_000 else NOTHING),
        ),
        first,
    )


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
                "a progress bar had been running for {busy:s}, {busy2:.2f} of the limit",
                busy=busy,
                busy2=busy / max(limit_s, 1),
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


def find_busy(case: Case, first: Event, limit_s: float) -> Event | None:
    """A progress bar of work that one rank did while the others waited: begun about when the wait began, and near the report.

    Ignores the overall training bar: it has hours remaining, or steps end while it runs.
    """
    for bar in reversed(case.of(EVENT.progress.long)):
        elapsed, left = (read_elapsed(str(bar.fields.get(key) or "")) for key in (FIELD.elapsed_text, FIELD.left_text))
        lines = (first.origin.line or 0) - (bar.origin.line or 0)
        near = bar.origin.file != first.origin.file or abs(lines) <= _BAR_LINES
        fits = 0.9 <= elapsed / max(limit_s, 1) <= 1.5 and elapsed + left <= _MOST_WAITS * max(limit_s, 1)
        if near and fits and _is_near(bar, first, limit_s) and not _stepped(case, bar, max(lines, 1)):
            return bar
    return None


def _stepped(case: Case, bar: Event, lines: int) -> bool:
    """Whether steps of the training ended shortly before a bar, on its own line, or within this many lines after it."""
    steps = [
        e
        for e in case.of(EVENT.phase.step, EVENT.phase.episode, EVENT.phase.update)
        if e.origin.file == bar.origin.file
    ]
    return any(-_BAR_LINES <= (e.origin.line or 0) - (bar.origin.line or 0) < lines for e in steps)


def _reward(case: Case, first: Event, limit_s: float) -> Iterator[Evidence]:
    """Whether a rank was in a reward function, judge or sandbox, and for how long one had been running."""
    near = [e for e in case.of(EVENT.python.frame) if _is_near(e, first, limit_s) and not _is_over(case, e, first)]
    waits = [e for e in near if _WAITING.search(str(e.fields.get(FIELD.path_text)))]
    scoring = [e for e in near if _is_rewarding(e)]
    frames = [e for e in scoring if not any(_in_one_stack(e, wait) for wait in waits)]
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
        where = f"{frames[-1].fields.get(FIELD.function_text)}() of {str(frames[-1].fields.get(FIELD.path_text)).rsplit('/', 1)[-1]}"
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
        if _is_near(e, first, limit_s) and (whole(e, FIELD.done_count) or 0) < (whole(e, FIELD.total_count) or 1)
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
    failed = [e for e in case.of(EVENT.reward.call_failed) if _is_near(e, first, limit_s)]
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
    near = [e for e in case.of(EVENT.python.frame) if _is_near(e, first, limit_s) and not _is_over(case, e, first)]
    saving = [e for e in near if _CHECKPOINT.search(str(e.fields.get(FIELD.function_text)))]
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
    fresh = [
        e
        for place, e in enumerate(steps)
        if not any(whole(e, FIELD.step) == whole(o, FIELD.step) for o in steps[:place])
    ]
    marks = [
        e
        for e in before
        if e.kind in MARKS
        or e in fresh
        or e.kind.startswith("deepspeed.checkpoint_")
        or (e.kind == EVENT.trace.mark and FIELD.phase in e.fields)
    ]
    if marks and (marks[-1].kind in _CHECKPOINT_MARKS or marks[-1].fields.get(FIELD.phase) == "checkpoint"):
        yield fact(FACT.comm.checkpoint_phase, True, say("the last thing that was begun is a checkpoint"), marks[-1])


def _in_one_stack(one: Event, two: Event) -> bool:
    """Whether two frames may be of the same stack: a rank that gathers the rewards waits, it does not score."""
    near = abs((one.origin.line or 0) - (two.origin.line or 0)) <= _STACK_LINES
    return (
        one.origin.file == two.origin.file
        and near
        and (one.origin.rank, one.origin.pid) == (two.origin.rank, two.origin.pid)
    )


def _is_rewarding(frame: Event) -> bool:
    name, path = str(frame.fields.get(FIELD.function_text)), str(frame.fields.get(FIELD.path_text))
    return bool(_REWARDING.match(name) or _REWARD_FILES.search(path))


def _is_over(case: Case, frame: Event, timeout: Event) -> bool:
    """Whether the traceback of a frame ended in an error of its own before the timeout."""
    start, end = frame.origin.line or 0, timeout.origin.line or 0
    ends = [e for e in case.of(EVENT.python.error, EVENT.python.bare_error) if e.origin.file == frame.origin.file]
    return frame.origin.file == timeout.origin.file and any(start < (e.origin.line or 0) < end for e in ends)


def _is_near(one: Event, timeout: Event, limit_s: float) -> bool:
    """Whether a line belongs to the time of the timeout: in the wait before it, or in the report after it."""
    if one.time is not None and timeout.time is not None:
        return -limit_s - 300 <= one.time - timeout.time <= 300
    same = one.origin.file == timeout.origin.file
    return not same or abs((one.origin.line or 0) - (timeout.origin.line or 0)) <= _NEAR_LINES


def find_peer(case: Case) -> Iterator[Evidence]:
    """Whether a process was killed before others lost their connection or waited in vain."""
    echoes = case.of(
        EVENT.net.refused,
        EVENT.nccl.remote_error,
        EVENT.nccl.closed_by_peer,
        EVENT.ray.actor_lost,
        EVENT.gloo.closed,
        EVENT.nccl.store_timeout,
        EVENT.nccl.timeout,
        EVENT.vllm.engine_dead,
        EVENT.torch.leaked_objects,
        EVENT.ray.gcs_lost,
    )
    if not echoes:
        return
    followers = (EVENT.python.abort, EVENT.python.fatal, EVENT.vllm.engine_dead, EVENT.torch.closing_signal)
    deaths = [
        e
        for e in case.events
        if (found := classify(e))
        and found[1] in (0, 3)
        and e not in echoes
        and e.kind not in followers
        and _before(e, echoes[0])
    ]
    if deaths:
        yield fact(
            FACT.comm.death_first, True, say("a process was already gone ({kind})", kind=deaths[0].kind), deaths[0]
        )
    lost = [e for e in echoes if e.kind != EVENT.torch.leaked_objects]
    if lost:
        yield fact(FACT.comm.lost_peer, True, say("a process lost its connection to another"), lost[0])


def _before(one: Event, two: Event) -> bool:
    """Whether one event came first, by time stamp or line number; assumed if neither is known."""
    if one.time is not None and two.time is not None:
        return one.time <= two.time
    if one.origin.file == two.origin.file:
        return (one.origin.line or 0) <= (two.origin.line or 0)
    return True


def read_elapsed(text: str) -> float:
    """Seconds of tqdm's elapsed time: `09:11`, `1:02:03`."""
    seconds = 0.0
    for part in text.split(":"):
        seconds = seconds * 60 + (int(part) if part.isdigit() else 0)
    return seconds
