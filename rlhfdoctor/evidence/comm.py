"""Collectives: which operation timed out, after how long, how the ranks differ in it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact, number, whole
from rlhfdoctor.evidence.late_rank import find_late_rank
from rlhfdoctor.evidence.wait import is_near, is_over
from rlhfdoctor.i18n.message import NOTHING, say
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_SMALL_NUMEL = 4096
_GROUP = re.compile(r"\bPG (?:ID )?\d+ ?(?:PG GUID )?[^ \]]{0,60}")
_GATHERING = re.compile(r"deepspeed/runtime/zero/(?:partitioned_param_coordinator|partition_parameters)\.py")
_LEAST_S = 600.0
"""Where the message is cut before its limit: torch's shortest default, NCCL's since 2.1 (distributed/constants.py)."""
_GPUS_OF_A_NODE = 8
"""Of most nodes: the first rank of each is a multiple of it."""


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
        yield from _gloo(case)
        yield from _store(case)
        return
    first = waits[0]
    limit, op = number(first, FIELD.timeout_s), first.fields.get(FIELD.op)
    waited = say("a rank waited {limit:s} in {op}", limit=float(limit or 0), op=op)
    if limit is not None:
        yield fact(
            FACT.comm.timeout_s, limit, waited if op else say("a rank waited {limit:s}", limit=float(limit)), first
        )
    if op is not None:
        yield fact(FACT.comm.op, str(op), say("the collective was {op}", op=op), first)
    yield from _ranks(waits)
    yield from _status(case)
    yield from _first_of_all(case, waits)
    yield from _sizes(first)
    yield from find_late_rank(case, first, float(limit or _LEAST_S))


def _gloo(case: Case) -> Iterator[Evidence]:
    """Facts of the first timeout of gloo."""
    gloo = case.first(EVENT.gloo.timeout)
    if gloo is None:
        return
    limit = float(number(gloo, FIELD.limit_s) or 0)
    yield fact(FACT.comm.timeout_s, limit, say("gloo waited {limit:s}", limit=limit), gloo)
    yield fact(FACT.comm.op, say("a {what} of gloo", what=gloo.fields.get(FIELD.what_text)), NOTHING, gloo)
    gathers = [
        e
        for e in case.of(EVENT.python.frame)
        if _GATHERING.search(str(e.fields.get(FIELD.path_text)))
        and is_near(e, gloo, limit)
        and not is_over(case, e, gloo)
    ]
    if gathers:
        yield fact(
            FACT.comm.parameter_gather,
            True,
            say("a rank stood in DeepSpeed's gather of ZeRO-3 parameters"),
            gathers[-1],
        )
    yield from find_late_rank(case, gloo, limit)


def _store(case: Case) -> Iterator[Evidence]:
    """Facts of a rank that gave up at the store, where others were to set a key."""
    waited = next((e for e in case.of(EVENT.nccl.store_timeout) if FIELD.wait_s in e.fields), None)
    if waited is None or case.first(EVENT.gloo.timeout) is not None:
        return
    limit = float(number(waited, FIELD.wait_s) or 0)
    says = say("a rank waited {limit:s} at the store of the process group", limit=limit)
    yield fact(FACT.comm.timeout_s, limit, says, waited)
    yield from find_late_rank(case, waited, limit)


def _ranks(waits: list[Event]) -> Iterator[Evidence]:
    """Same sequence number with another operation or size is a mismatch; other numbers are a lag."""
    by_rank: dict[int, list[Event]] = {}
    for event in waits:
        rank = whole(event, FIELD.rank) if FIELD.rank in event.fields else event.origin.rank
        by_rank.setdefault(rank if rank is not None else -len(by_rank) - 1, []).append(event)
    events = [each[0] for each in by_rank.values()]
    if all(len({event.fields.get(FIELD.op) for event in each}) == 1 for each in by_rank.values()):
        yield from _apart(events)  # else a rank waits in two groups, and which one the other is in is unknown
    by_number: dict[object, list[Event]] = {}
    for event in events:
        if event.fields.get(FIELD.seq) is not None:
            by_number.setdefault(event.fields[FIELD.seq], []).append(event)
    for one, *others in by_number.values():
        for two in others:
            if one.fields.get(FIELD.op) != two.fields.get(FIELD.op):
                yield fact(
                    FACT.comm.op_differs,
                    True,
                    say(
                        "at SeqNum={seq} one rank runs {op}, another {other_op}",
                        seq=one.fields[FIELD.seq],
                        op=one.fields[FIELD.op],
                        other_op=two.fields[FIELD.op],
                    ),
                    two,
                )
                return
            if one.fields.get(FIELD.numel_in) != two.fields.get(FIELD.numel_in):
                yield fact(
                    FACT.comm.numel_differs,
                    True,
                    say(
                        "at SeqNum={seq} one rank sends {numel} elements, another {other_numel}",
                        seq=one.fields[FIELD.seq],
                        numel=one.fields.get(FIELD.numel_in),
                        other_numel=two.fields.get(FIELD.numel_in),
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


def _apart(events: list[Event]) -> Iterator[Evidence]:
    """Ranks of one group that wait in different operations at different numbers: both counted what the other has not.

    A late rank alone leaves the others in one and the same operation.
    """
    by_group: dict[tuple[str, ...], dict[tuple[int, str], Event]] = {}
    for event in events:
        if (seq := whole(event, FIELD.seq)) is not None:
            waits = by_group.setdefault(tuple(_GROUP.findall(event.text)), {})
            waits.setdefault((seq, str(event.fields.get(FIELD.op))), event)
    for waits in by_group.values():
        if any(len(set(values)) == 1 for values in zip(*waits)):
            continue  # else there are two that differ in both, and the first or the second is one of them
        one, two = next((a, b) for a, b in itertools.combinations(waits, 2) if a[0] != b[0] and a[1] != b[1])
        yield fact(
            FACT.comm.op_differs,
            True,
            say(
                "one rank waits in {op} (SeqNum={seq}), another in {other_op} (SeqNum={other_seq})",
                op=one[1],
                seq=one[0],
                other_op=two[1],
                other_seq=two[0],
            ),
            waits[two],
        )
        return


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


def _first_of_all(case: Case, waits: list[Event]) -> Iterator[Evidence]:
    """Whether all ranks wait in the first collective of their group, so that no rank is the one that did not come.

    Of ranks numbered without a hole from the first of a node on; one behind the last that is named is not seen.
    """
    ranks = {rank for event in waits if (rank := whole(event, FIELD.rank)) is not None}
    done = [number for e in case.of(EVENT.nccl.work_status) if (number := whole(e, FIELD.completed)) is not None]
    first = all(whole(event, FIELD.seq) == 1 for event in waits) and len({e.fields.get(FIELD.op) for e in waits}) == 1
    least = min(ranks, default=0)
    no_hole = least % _GPUS_OF_A_NODE == 0 and ranks == set(range(least, least + len(ranks)))
    if first and len(ranks) > 1 and no_hole and done and max(done) < 1:
        says = say(
            "ranks {first} to {last} wait in the first collective, and none has ended before",
            first=least,
            last=max(ranks),
        )
        yield fact(FACT.comm.none_completed, True, says, waits[0])


def _sizes(first: Event) -> Iterator[Evidence]:
    numel = whole(first, FIELD.numel_in)
    if numel is None:
        return
    gather = "ALLGATHER" in str(first.fields.get(FIELD.op))
    yield fact(
        FACT.comm.barrier_sized,
        numel <= _SMALL_NUMEL,
        say(
            "{numel} elements: {meaning}",
            numel=numel,
            meaning=(
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
            "{op} of {numel} elements per rank{remark}",
            op=first.fields.get(FIELD.op),
            numel=numel,
            remark=(say(" is the size of sharded parameters") if gather and numel >= 200_000 else NOTHING),
        ),
        first,
    )
