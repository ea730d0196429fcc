"""Flight-recorder dumps of all ranks side by side: the collective at which they part, the rank that never came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.i18n.message import NOTHING, Argument, Message, quoted, say
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

Calls = Mapping[int, Event]
"""Sequence number -> what one rank did there."""


def find_flight(case: Case) -> Iterator[Evidence]:
    """The first process group whose ranks differ; same names as the watchdog's own lines give, and who did not come."""
    jobs = _jobs(case)
    groups: dict[tuple[int, str, str], dict[int, dict[int, Event]]] = {}
    for event in case.of(EVENT.flight.collective):
        rank, sequence = whole(event, FIELD.rank), whole(event, FIELD.seq)
        name, members = str(event.fields[FIELD.group_text]), str(event.fields[FIELD.members_text])
        if rank is None or sequence is None or not (members or name.split(" ")[-1] in ("default_pg", "0")):
            continue  # groups of equal names with other members cannot be distinguished
        groups.setdefault((jobs[_folder(event)], name, members), {}).setdefault(rank, {})[sequence] = event
    for ranks in groups.values():
        if len(ranks) < 2:
            continue
        parted = _parted(ranks)
        if parted is not None:
            yield from parted
            return
    absent = [found for ranks in groups.values() if len(ranks) > 1 and (found := _absent(ranks))]
    yield from absent[0] if absent else ()


def _jobs(case: Case) -> dict[str, int]:
    """Folder -> number of the job, the largest first; folders of several hosts with different ranks belong to one."""
    ranks: dict[str, set[int | None]] = {}
    for event in case.of(EVENT.flight.dump):
        ranks.setdefault(_folder(event), set()).add(whole(event, FIELD.rank))
    members: list[set[int | None]] = []
    jobs: dict[str, int] = {}
    for folder in sorted(ranks, key=lambda name: (-len(ranks[name]), name)):
        place = next((n for n, taken in enumerate(members) if not taken & ranks[folder]), len(members))
        if place == len(members):
            members.append(set())
        members[place] |= ranks[folder]
        jobs[folder] = place
    return jobs


def _folder(event: Event) -> str:
    return event.origin.file.rpartition("/")[0]


def _parted(ranks: Mapping[int, Calls]) -> list[Evidence] | None:
    """The first sequence number at which two ranks differ in operation or size."""
    common = set.intersection(*(set(calls) for calls in ranks.values())) if ranks else set()
    for sequence in sorted(common):
        for key, name in ((FIELD.op, FACT.comm.op_differs), (FIELD.size_text, FACT.comm.numel_differs)):
            kinds: dict[str, list[int]] = {}
            for rank, calls in ranks.items():
                kinds.setdefault(str(calls[sequence].fields[key]), []).append(rank)
            if len(kinds) < 2 or (key == FIELD.size_text and _may_differ(ranks, sequence)):
                continue
            few, many = sorted(kinds.items(), key=lambda item: len(item[1]))[:: len(kinds) - 1][:2]
            event = ranks[few[1][0]][sequence]
            source = event.fields[FIELD.where_text]
            where = say(", from {source}", source=source) if source else NOTHING
            values: dict[str, Argument] = {
                "sequence": sequence,
                "few": _name(few[1]),
                "call": _short(few[0]),
                "where": where,
                "many": _name(many[1]),
                "other_call": _short(many[0]),
            }
            says = (
                say(
                    "at collective {sequence} {few} runs {call}{where}, {many} {other_call} (flight recorder)",
                    **values,
                )
                if len(few[1]) == 1
                else say(
                    "at collective {sequence} {few} run {call}{where}, {many} {other_call} (flight recorder)",
                    **values,
                )
            )
            return [fact(name, True, says, event), fact(FACT.comm.diverged_rank, few[1][0], says, event)]
    return None


def _may_differ(ranks: Mapping[int, Calls], sequence: int) -> bool:
    """Whether the operation takes different sizes from its ranks by design."""
    return any(
        str(calls[sequence].fields[FIELD.op])
        .lower()
        .startswith(
            (
                "all_to_all",
                "alltoall",
                "send",
                "recv",
                "gather",
                "scatter",
                "all_gather_v",
                "broadcast_object",
                "allgather_object",
            )
        )
        for calls in ranks.values()
    )


def _absent(ranks: Mapping[int, Calls]) -> list[Evidence]:
    """The ranks that stopped at a lower sequence number than the others, and where they were last."""
    last = {rank: max(calls) for rank, calls in ranks.items()}
    least = min(last.values())
    behind = sorted(rank for rank, sequence in last.items() if sequence == least)
    ahead = [calls[last[rank]] for rank, calls in ranks.items() if rank not in behind]
    if not ahead:
        return []
    event = ranks[behind[0]][least]
    waited = next((calls[least + 1] for calls in ranks.values() if least + 1 in calls), ahead[0])
    source = event.fields[FIELD.where_text]
    where = say("; it was last seen in {source}", source=source) if source else NOTHING
    says = say(
        "{ranks} never entered collective {least} ({op}){where} (flight recorder)",
        ranks=_name(behind),
        least=least + 1,
        op=waited.fields[FIELD.op],
        where=where,
    )
    found = [fact(FACT.comm.absent_rank, behind[0], says, event)]
    first_open = [
        min((n for n, e in calls.items() if e.fields[FIELD.unfinished]), default=0)
        for rank, calls in ranks.items()
        if rank not in behind
    ]
    if len(ahead) > len(behind) and all(number == least + 1 for number in first_open):
        found.append(fact(FACT.comm.all_wait, True, say("all others wait in the next collective"), event))
    return found


def _name(ranks: list[int]) -> Message:
    if len(ranks) == 1:
        return say("rank {rank}", rank=ranks[0])
    return say("ranks {ranks}", ranks=", ".join(map(str, sorted(ranks)[:8])) + (" ..." if len(ranks) > 8 else ""))


def _short(text: str) -> Message:
    return say("with {sizes}", sizes=text[:40]) if text.startswith("[") else quoted(text)
