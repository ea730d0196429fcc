"""Whether a process was gone before others lost their connection to it."""

from __future__ import annotations

from collections.abc import Iterator

from rlhfdoctor.evidence.case import Case, fact
from rlhfdoctor.evidence.classify import classify
from rlhfdoctor.i18n.message import say
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT

_ECHOES = (
    EVENT.net.refused,
    EVENT.nccl.remote_error,
    EVENT.nccl.closed_by_peer,
    EVENT.ray.actor_lost,
    EVENT.gloo.closed,
    EVENT.nccl.store_timeout,
    EVENT.nccl.hccl_timeout,
    EVENT.nccl.timeout,
    EVENT.vllm.engine_dead,
    EVENT.torch.leaked_objects,
    EVENT.ray.gcs_lost,
)
_FOLLOWERS = (EVENT.python.abort, EVENT.python.fatal, EVENT.torch.closing_signal)


def find_peer(case: Case) -> Iterator[Evidence]:
    """Whether a process was killed before others lost their connection or waited in vain."""
    echoes = case.of(*_ECHOES)
    if not echoes:
        return
    deaths = [
        event
        for event in case.events
        if (found := classify(event))
        and found[1] in (0, 3)
        and event.kind not in (*_ECHOES, *_FOLLOWERS)
        and _before(event, echoes[0])
    ]
    if deaths:
        yield fact(FACT.comm.death_first, True, say("a process was already gone"), deaths[0])
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
