"""The events of a source by all messages that are known."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from rlhfdoctor.i18n.message import plural, quoted, say
from rlhfdoctor.logs import (
    config,
    data,
    deepspeed,
    exits,
    frameworks,
    job,
    kernel,
    nccl,
    numbers,
    phases,
    python,
    ray,
    ray_exits,
    reward,
    schedulers,
    steps,
    torch,
    trainers,
    vllm,
)
from rlhfdoctor.logs.blocks import Tally
from rlhfdoctor.logs.flood import Floods
from rlhfdoctor.logs.maker import Maker
from rlhfdoctor.logs.open import Source
from rlhfdoctor.logs.pattern import Pattern
from rlhfdoctor.logs.samples import Samples
from rlhfdoctor.logs.scan import Scanner
from rlhfdoctor.types import Event, Gap
from rlhfdoctor.vocabulary import EVENT
from rlhfdoctor.vocabulary.names import Kind

PATTERNS: tuple[Pattern, ...] = tuple(
    pattern
    for speaker in (
        kernel,
        ray,
        ray_exits,
        torch,
        nccl,
        deepspeed,
        vllm,
        schedulers,
        exits,
        job,
        python,
        numbers,
        frameworks,
        phases,
        steps,
        trainers,
        reward,
        data,
        config,
    )
    for pattern in speaker.PATTERNS
)

_EXPECTED_FLOODS = (EVENT.data.sample, EVENT.python.frame, EVENT.kernel.task, EVENT.kernel.task_header)
"""Kinds whose repeats are left out without a gap."""


def make_scanner(engine: str = "auto") -> Scanner:
    """A scanner of all messages for one analysis."""
    return _scanner(engine).anew()


@functools.cache
def _scanner(engine: str) -> Scanner:
    return Scanner(PATTERNS, engine)


def read_events(
    source: Source, scanner: Scanner, gaps: list[Gap], left_out: Counter[Kind] | None = None
) -> Iterator[Event]:
    """Events of one source, in order. Floods of one kind keep their first and last ones.

    Args:
        gaps: what was not read, and of which kinds events were left out.
        left_out: how many, instead of gaps.
    """
    tally = Tally(patience=scanner.patience)
    floods, samples = Floods(Maker(source), tally), Samples()
    found = map(floods.first, scanner.candidates(source.stream(), restore=True, tally=tally, taker=floods))
    yield from samples.without(event for event in found if event is not None)
    yield from samples.without(sorted(floods.last(), key=lambda event: event.kind != EVENT.data.sample))
    if scanner.longest_line_cut:
        gaps.append(Gap(what=quoted(source.name), why=say("holds a line of more than 4 MiB, which was read in pieces")))
    if tally.passed_count:
        why = say(
            "{count} places in long lines were not looked at: the others took {waited:duration}",
            count=tally.passed_count,
            waited=scanner.patience.long_s,
        )
        gaps.append(Gap(what=quoted(source.name), why=why))
    if tally.as_is_count:
        why = plural(
            "{n} block of it looks quoted or translated and was read as it is: the others took {waited:duration}",
            "{n} blocks of it look quoted or translated and were read as they are: the others took {waited:duration}",
            tally.as_is_count,
            waited=scanner.patience.restored_s,
        )
        gaps.append(Gap(what=quoted(source.name), why=why))
    dropped = Counter(dict(floods.dropped()))
    dropped.update(tally.thinned)
    if left_out is None:
        gaps.extend(left_out_gaps(source.name, dropped))
    else:
        left_out.update(dropped)


def left_out_gaps(name: str, left_out: Mapping[Kind, int]) -> Iterator[Gap]:
    """A gap for each kind of which events of a log were left out, unless that is no loss."""
    for kind, count in left_out.items():
        if kind.scope != "phase" and kind not in _EXPECTED_FLOODS:
            why = say("{count} more lines of this kind left out", count=count)
            yield Gap(what=quoted(f"{name}: {kind}"), why=why)


def order_events(events: Iterable[Event]) -> list[Event]:
    """Events in the order of time; lines without a stamp keep their place after the previous line."""
    keyed = []
    clock: dict[str, float] = {}
    for index, event in enumerate(events):
        file = event.origin.file
        if event.time is not None:
            clock[file] = event.time
        keyed.append((clock.get(file, float("-inf")), index, event))
    keyed.sort(key=lambda item: item[:2])
    return [event for _, _, event in keyed]
