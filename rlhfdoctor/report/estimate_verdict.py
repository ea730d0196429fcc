"""Whether an estimate fits, in one word or in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rlhfdoctor.budget.types import PLACES, Estimate, Limit, Place
from rlhfdoctor.i18n.message import NOTHING, Argument, Message, joined, quoted, say

ERROR = 0.10
"""Nine of ten measured peaks are no further from the estimate (tests/bench/BUDGET.md)."""
_DOUBT = say("the estimate may be off by {error:share}", error=ERROR)
_PHASES: Mapping[str, Message] = {
    "load": say("load"),
    "resume": say("resume"),
    "rollout": say("rollout"),
    "score": say("log-probs"),
    "update": say("update"),
    "weight_sync": say("weight sync"),
    "checkpoint": say("save"),
    "final_save": say("final save"),
}


def phase_name(phase: str) -> Message:
    """A phase as the tables name it."""
    return _PHASES.get(phase, quoted(phase))


def limit_name(limit: Limit) -> Message:
    """A limit's owner as a sentence names it."""
    return {"container": say("the container"), "node": say("the node"), "GPU": say("the GPU")}.get(
        limit.name, quoted(limit.name)
    )


def verdict(found: Estimate) -> str:
    """One word, the worst first.

    `over` (will not fit, or probably not), `trap` (the settings lead to a known failure, regardless of memory), `tight`
    (fits by less than the known error, or only while sequences stay short), `fits`, `unknown` (no limit is known).
    """
    known = [limit for limit in found.limits if limit.bytes]
    if any(found.breaks(limit) for limit in known):
        return "over"
    if found.hazards:
        return "trap"
    return "unknown" if not known else worst(found, found.phases)


def by_phase(found: Estimate) -> dict[str, str]:
    """`over`, `tight`, `fits` or `unknown` for each phase by itself."""
    return {phase: worst(found, (phase,)) for phase in found.phases}


def worst(found: Estimate, phases: Sequence[str], limits: Sequence[Limit] | None = None) -> str:
    """The worst verdict of these phases against the limits."""
    known = [limit for limit in (found.limits if limits is None else limits) if limit.bytes]
    if not known:
        return "unknown"
    if any(found.used(limit, phase, surely=True) > (limit.bytes or 0) for limit in known for phase in phases):
        return "over"
    return "tight" if any(found.share(limit, *phases) > 1 / (1 + ERROR) for limit in known) else "fits"


def is_short(found: Estimate) -> bool:
    """Whether memory is what is wrong: it will not fit, or may not where no trap comes first."""
    if verdict(found) == "over":
        return True
    fullest = _fullest(found)
    return not found.hazards and fullest is not None and found.peak(fullest)[1] > (fullest.bytes or 0)


def sentence(found: Estimate) -> Message:
    """The result in one sentence, as a job script would log it."""
    if not found.hazards:
        return _of_memory(found)
    memory = _of_memory(replace(found, hazards=()))
    traps = joined(*(say("in {phase}, {trap}", phase=phase_name(h.phase), trap=h.says) for h in found.hazards))
    if verdict(found) == "over":
        return say("{memory}; and a known trap: {traps}", memory=memory, traps=traps)
    fullest = _fullest(found)
    if fullest is not None and verdict(replace(found, hazards=())) == "fits":
        memory = _room(found, fullest)  # it does not say that it fits: a trap is no fit
    return say("a known trap: {traps} (memory: {memory})", traps=traps, memory=memory)


def _of_memory(found: Estimate) -> Message:
    known = [limit for limit in found.limits if limit.bytes]
    broken = [(limit, at) for limit in known if (at := found.breaks(limit))]
    if broken:
        return _broken(found, broken)
    fullest = _fullest(found)
    if fullest is None:
        places = (_highest(found, place) for place in PLACES)
        return say(
            "no limit is known (--container-memory, --host-memory, --gpu, --shm); at the peak {places}",
            places=joined(*places),
        )
    phase, peak = found.peak(fullest)
    most = fullest.bytes or 1
    takes: dict[str, Argument] = {"phase": phase_name(phase), "peak": peak, "limit": limit_name(fullest), "most": most}
    if peak > most:
        return say(
            "may not fit: {phase} takes {peak:bytes} of {limit}'s {most:bytes} if all sequences are at their longest, "
            "and {sure:bytes} in any case",
            **takes,
            sure=found.peak(fullest, surely=True)[1],
        )
    if verdict(found) == "tight":
        return say("too close to call: {room}; {doubt}", room=_room(found, fullest), doubt=_DOUBT)
    unknown = [_unknown(found, place) for place in ("host", "gpu") if not any(known.place == place for known in known)]
    if any(unknown):
        return say(
            "fits as far as limits are known: {room}; {unknown}", room=_room(found, fullest), unknown=joined(*unknown)
        )
    return say("fits: {room}", room=_room(found, fullest))


def _room(found: Estimate, limit: Limit) -> Message:
    """The peak of a limit, and what it leaves."""
    phase, peak = found.peak(limit)
    most = limit.bytes or 1
    return say(
        "{phase} takes {peak:bytes} of {limit}'s {most:bytes}, {left:bytes} ({share:share}) left",
        phase=phase_name(phase),
        peak=peak,
        limit=limit_name(limit),
        most=most,
        left=most - peak,
        share=(most - peak) / most,
    )


def _unknown(found: Estimate, place: Place) -> Message:
    """What a place needs whose limit is unknown; nothing if it needs nothing."""
    peak = _highest(found, place)
    if not peak:
        return NOTHING
    if place == "host":
        return say("it takes {peak}, whose limit is unknown (--container-memory, --host-memory)", peak=peak)
    return say("it takes {peak}, whose size is unknown (--gpu)", peak=peak)


def _broken(found: Estimate, broken: Sequence[tuple[Limit, tuple[str, int]]]) -> Message:
    """The limit that is exceeded most, by its worst phase; then what exceeds it first."""
    certain = [pair for pair in broken if _surely_over(found, pair[0])]
    limit, (first, size) = max(certain or broken, key=lambda pair: found.share(pair[0]))
    phase, _ = found.peak(limit)
    if found.used(limit, phase, surely=True) <= (limit.bytes or 0):
        phase, _ = found.peak(limit, surely=True)
    whole = found.used(limit, phase)
    sure = found.used(limit, phase, surely=True)
    takes: dict[str, Argument] = {
        "phase": phase_name(phase),
        "size": whole,
        "limit": limit_name(limit),
        "most": limit.bytes or 0,
        "more": whole - (limit.bytes or 0),
    }
    later = [NOTHING]
    if sure < whole:
        later.append(say("{sure:bytes} of it even if sequences stay short", sure=sure))
    if phase == first == "final_save":
        size, first = max(((found.used(limit, p), p) for p in found.phases if p != phase), key=lambda pair: pair[0])
        later.append(
            say("what comes before it takes {most:bytes} at most, in {phase}", most=size, phase=phase_name(first))
        )
    elif first != phase:
        later.append(
            say("{phase} is the first that is too large, with {size:bytes}", phase=phase_name(first), size=size)
        )
    if certain:
        verdict = say(
            "will not fit: {phase} takes {size:bytes} of {limit}'s {most:bytes}, {more:bytes} too much", **takes
        )
        return joined(verdict, *later)
    verdict = say(
        "will probably not fit: {phase} takes {size:bytes} of {limit}'s {most:bytes}, {more:bytes} too much", **takes
    )
    return joined(verdict, *later, _DOUBT)


def _fullest(found: Estimate) -> Limit | None:
    return max((limit for limit in found.limits if limit.bytes), key=found.share, default=None)


def _highest(found: Estimate, place: Place) -> Message:
    phase, size = peak_of(found, place)
    where: dict[str, Argument] = {"size": size, "phase": phase_name(phase)}
    if not size:
        return NOTHING
    if place == "host":
        return say("{size:bytes} of host memory, in {phase}", **where)
    return (
        say("{size:bytes} of /dev/shm, in {phase}", **where)
        if place == "shm"
        else say("{size:bytes} on the fullest GPU, in {phase}", **where)
    )


def peak_of(found: Estimate, place: Place) -> tuple[str, int]:
    """The phase that needs most of a place, and how much."""
    return max(((phase, found.of(place, phase)) for phase in found.phases), key=lambda pair: pair[1])


def _surely_over(found: Estimate, limit: Limit) -> bool:
    """Whether the limit is exceeded also if what is estimated, and not set, is smaller by the known error."""
    for phase in found.phases:
        exact = found.exact(limit, phase)
        if found.used(limit, phase, surely=True) - exact > (1 + ERROR) * max((limit.bytes or 0) - exact, 0):
            return True
    return False
