"""GPU memory from step to step: whether it rose, by how much."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence

from rlhfdoctor.evidence.case import Case, fact, whole
from rlhfdoctor.evidence.window import find_steps
from rlhfdoctor.i18n.message import plural, say
from rlhfdoctor.types import Event, Evidence
from rlhfdoctor.vocabulary import EVENT, FACT, FIELD

_FIGURE = r"(\d{1,12}(?:\.\d{0,20})?)(?![\d.])"
_LENGTH = re.compile(rf"response_length/mean:{_FIGURE}")
_LONGEST = re.compile(rf"response_length/max:{_FIGURE}")
_LEAST_STEPS = 4


def find_growth(case: Case) -> Iterator[Evidence]:
    """Whether GPU memory rose from step to step, by verl's metrics or the recorder.

    Loading and the first two steps warm up. verl logs torch.cuda.max_memory_allocated() since the start (a peak that
    never falls), so only a rise in nearly every step counts.
    """
    lengths: list[float] = []
    marks = [e for e in case.of(EVENT.gpu.used) if e.fields.get(FIELD.what_text) == "allocated"]
    used = [size for e in marks if (size := whole(e, FIELD.used_bytes)) is not None]
    if used:
        lengths = _lengths(marks)
        if len(lengths) != len(used):  # wrapped: they stand on the line before
            lengths = _lengths(list({(e.origin.file, e.origin.line): e for e in case.of(EVENT.phase.step)}.values()))
    elif case.traces:
        used = _peaks(case)
    warm = used[2:]
    if len(warm) < _LEAST_STEPS:
        return
    rises = [two - one for one, two in itertools.pairwise(warm)]
    up = sum(1 for rise in rises if rise > 0.001 * warm[0]) / len(rises)
    slope = (warm[-1] - warm[0]) // len(rises)
    where = marks[-1] if marks else None
    yield fact(
        FACT.gpu.slope_bytes_per_step,
        slope,
        say(
            "GPU memory rose by {slope:bytes} a step over {steps}: {first:bytes} to {last:bytes}",
            slope=slope,
            steps=plural("{n} step", "{n} steps", len(warm)),
            first=warm[0],
            last=warm[-1],
        ),
        where,
    )
    yield fact(FACT.gpu.rising_steps_ratio, up, say("it rose in {up:share} of the steps", up=up), where)
    if len(lengths) == len(used):
        third = max(len(warm) // 3, 1)
        ratio = sum(lengths[-third:]) / max(sum(lengths[2 : 2 + third]), 1e-9)
        yield fact(
            FACT.gpu.lengths_ratio,
            ratio,
            say("the responses of the last steps were {ratio:.2f} times as long as those of the first", ratio=ratio),
            where,
        )


def _lengths(marks: Sequence[Event]) -> list[float]:
    """The lengths of responses on these lines: the longest, or the mean."""
    return [float(m[1]) for e in marks if (m := _LONGEST.search(e.text) or _LENGTH.search(e.text))]


def _peaks(case: Case) -> list[int]:
    """The largest use of the fullest GPU in each step that the recorder saw."""
    for trace in case.traces:
        starts = find_steps(trace)
        series = [trace.series("gpu", key, "used_bytes") for key in trace.keys("gpu")]
        if not series or len(starts) < _LEAST_STEPS:
            continue
        fullest = max(series, key=lambda points: max((value for _, value in points), default=0))
        spans = zip(starts, [*starts[1:], math.inf])
        return [max(inside) for begin, end in spans if (inside := [v for at, v in fullest if begin <= at < end])]
    return []
