"""The incident in one sentence over its axes: which limit was full, what filled it, when, by which course."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any, TypeAlias

from rlhfdoctor.axes import Axes, Consumer, Course, Limit, LimitHit, Moment, Shape
from rlhfdoctor.explanation import COMPONENT_SAYS
from rlhfdoctor.i18n.message import NOTHING, Argument, Message, joined, quoted, say, term
from rlhfdoctor.report.said import said
from rlhfdoctor.types import Incident
from rlhfdoctor.vocabulary.run import OTHER, SPOKEN, Phase

_Known: TypeAlias = Limit | Consumer | Moment | Course
_FULL: Mapping[LimitHit, Message] = {
    "cgroup": say("the job's memory limit was full"),
    "node": say("the node's memory was full"),
    "numa node": say("the memory of the NUMA nodes that the job is bound to was full"),
    "ray": say("Ray's threshold was passed"),
    "gpu": say("the GPU's memory was full"),
    "object store": say("Ray's object store was full"),
    "shm": say("/dev/shm was full"),
}
_SIZED: Mapping[LimitHit, Callable[[int], Message]] = {
    "cgroup": lambda size: say("the job's memory limit of {size:bytes} was full", size=size),
    "node": lambda size: say("the node's {size:bytes} of memory were full", size=size),
    "ray": lambda size: say("Ray's threshold was passed on a node with {size:bytes}", size=size),
    "gpu": lambda size: say("the GPU's {size:bytes} were full", size=size),
    "object store": lambda size: say("Ray's object store of {size:bytes} was full", size=size),
    "shm": lambda size: say("/dev/shm of {size:bytes} was full", size=size),
}
_WHILE: Mapping[Phase, Message] = {
    "load": say("while loading"),
    "rollout": say("during the rollout"),
    "score": say("while scoring"),
    "update": say("in the update"),
    "weight_sync": say("while weights were copied to the engine"),
    "checkpoint": say("while saving"),
    "eval": say("during the evaluation"),
}
_SHAPES: Mapping[Shape, Message] = {
    "level": say("it had stood at one level"),
    "slope": say("it had risen steadily"),
    "staircase": say("it had risen in stairs"),
    "sawtooth": say("it had risen and fallen"),
    "spike": say("most of the rise came in the last phase"),
}


def composed(incident: Incident) -> Message:
    """What is known of each axis, as one sentence; empty where no limit was hit."""
    axes = incident.axes
    if axes.limit is None:
        return NOTHING
    filled = joined(_consumer(axes.consumer), by=", ") if axes.consumer is not None else NOTHING
    rest = joined(*_moment(axes.moment), *_course(axes.course), by="; ")
    return joined(joined(_limit(axes.limit), filled, by=": "), rest, by="; ")


_LARGE_RATIO = 0.25
"""Judgement: so large a request fails on a GPU that is not full, too."""


def _limit(limit: Limit) -> Message:
    if limit.name == "ray" and limit.threshold_ratio and limit.bytes:
        return say(
            "Ray's threshold of {threshold:share} was passed on a node with {size:bytes}",
            threshold=limit.threshold_ratio,
            size=limit.bytes,
        )
    if limit.request_bytes and limit.bytes and limit.request_bytes > _LARGE_RATIO * limit.bytes:
        one, size = limit.request_bytes, limit.bytes
        return say("{request:bytes} in one piece did not fit on a GPU with {size:bytes}", request=one, size=size)
    full = _SIZED[limit.name](limit.bytes) if limit.bytes and limit.name in _SIZED else _FULL[limit.name]
    if not limit.bytes:
        return full
    if limit.name == "cgroup" and limit.node_bytes and limit.node_bytes > 1.1 * limit.bytes:
        return say("{full}, on a node with {node:bytes}", full=full, node=limit.node_bytes)
    return full


def _consumer(consumer: Consumer) -> Message:
    known = consumer.role if consumer.role not in (None, OTHER) else None
    who = _word(known) if known is not None else quoted(consumer.name or OTHER)
    held = say("{held:bytes} in {who}", held=consumer.bytes, who=who)
    if consumer.count > 1:
        held = say("{held:bytes} in {count} processes ({who})", held=consumer.bytes, count=consumer.count, who=who)
    if consumer.locked_bytes and consumer.bytes and consumer.locked_bytes > 0.1 * consumer.bytes:
        held = say("{held}, of which {locked:bytes} page-locked or shared", held=held, locked=consumer.locked_bytes)
    if consumer.component not in (None, "process", "something else"):
        held = say("{held}, mostly {component}", held=held, component=COMPONENT_SAYS[consumer.component])
    return held


def _word(text: str) -> Argument:
    return term(text) if text in SPOKEN else text


def _moment(moment: Moment | None) -> Iterator[Message]:
    if moment is None:
        return
    peaked = next((says for phase, says in _WHILE.items() if phase == moment.peak_phase), None)
    if peaked is not None:
        yield say("it peaked {when}", when=peaked)
    elif moment.phase is not None:
        yield say("it happened {when}", when=_WHILE[moment.phase])


def _course(course: Course | None) -> Iterator[Message]:
    if course is None:
        return
    grows = course.bytes_per_step is not None and course.bytes_per_step > 0
    if course.shape in ("slope", "staircase") and grows:
        yield say("{course}, by {slope:bytes} a step", course=_SHAPES[course.shape], slope=course.bytes_per_step)
    elif course.shape is not None:
        yield _SHAPES[course.shape]
    elif grows and (course.rising_ratio or 0) >= 0.5:
        yield say("it had risen by {slope:bytes} a step", slope=course.bytes_per_step)


def axes_dict(axes: Axes) -> dict[str, Any]:
    """`limit`, `consumer`, `moment`, `course` of the JSON report: null where nothing is known."""
    rows = {
        "limit": (axes.limit, _limit(axes.limit) if axes.limit else NOTHING),
        "consumer": (axes.consumer, _consumer(axes.consumer) if axes.consumer else NOTHING),
        "moment": (axes.moment, joined(*_moment(axes.moment))),
        "course": (axes.course, joined(*_course(axes.course))),
    }
    return {name: _axis(axes, name, value, says) for name, (value, says) in rows.items()}


def _axis(axes: Axes, name: str, value: _Known | None, says: Message) -> dict[str, Any] | None:
    """One axis, with the causes that compete on it."""
    causes = axes.candidates.get(name, ())
    if value is None and not causes:
        return None
    return {
        **({} if value is None else asdict(value)),
        **said(says=says),
        "causes": [asdict(cause) for cause in causes],
        "something_else": round(1 - sum(cause.share for cause in causes), 2),
    }
