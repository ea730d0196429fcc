"""How well the bytes are explained: simulated tables of processes, and measured runs whose configuration is hidden.

    python -m tests.exam.explained [--write]    some 3 minutes; writes EXPLAINED.md

Simulated: configurations drawn at random, wider than what the explanation tries (numbers of nodes in between, critics of
another size, releases, buckets); their budget with noise of its measured error (median 3 %, ninth decile 8.5 %, common to
a role) and of ranks (2 %); killed at a moment of a phase or on the way to it, one in six with something that leaks; shown
as the kernel's task table (with or without page-locked bytes) or Ray's ten largest. Then the configuration is given, or
only the model's name, or nothing. Measured: the budget's recorded runs (tests/bench/budget*.jsonl) in each of their phases.

What is counted: whether the component that held most of the largest row is the one named first, and how often what was
said with a probability was right.
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rlhfdoctor.budget.estimate import estimate
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape, find_shape
from rlhfdoctor.explain.hypotheses import Hypothesis, Seen, configured, generic
from rlhfdoctor.explain.levels import Level, make_levels
from rlhfdoctor.explain.measured import Holder, group
from rlhfdoctor.explain.table import TEN, explain, ranks_of
from rlhfdoctor.explanation import LIKELY, Explanation
from rlhfdoctor.i18n.message import quoted
from rlhfdoctor.vocabulary.run import Component

PAGE = Path(__file__).with_name("EXPLAINED.md")
COUNT = 600
_MODELS = ("Qwen2.5-0.5B", "Qwen2.5-1.5B", "Qwen2.5-3B", "Qwen2.5-7B", "Llama-3-8B", "Qwen2.5-14B", "Qwen2.5-32B", "Qwen2.5-72B")
_NEAR = {"load": "load", "resume": "load", "final_save": "checkpoint"}
GIVEN = ("configuration", "model's name", "nothing")
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class Drawn:
    """A simulated incident: what the table shows, and what is behind it."""

    plan: Plan
    phase: str
    holders: tuple[Holder, ...]
    role: str
    component: Component
    shape: Shape


def draw(rng: random.Random) -> Drawn:
    """One incident."""
    shape = find_shape(rng.choice(_MODELS))
    assert shape is not None
    plan = _hybrid(rng, shape) if rng.random() < 0.4 else _separate(rng, shape)
    found = estimate(plan)
    phase = rng.choice(found.phases)
    noise: dict[str, float] = {}
    rows: list[tuple[str, list[float], Level, float]] = []
    for process in dict.fromkeys(need.process for need in found.needs if need.place == "host"):
        if process in ("kernel", "plasma", "ray", "driver"):
            continue
        levels = make_levels([n for n in found.needs if n.process == process], phase)
        level = rng.choice(levels)
        size, low = level.usual(), levels[level.before].usual()
        if rng.random() < 0.3:
            size = low + rng.random() * (size - low)
        noise[process] = 1 + 0.04 * _student(rng)
        count = max(need.count for need in found.needs if need.process == process)
        base = rng.uniform(0.5, 1.5)
        sizes = [_noisy(rng, size, level, noise[process], base) for _ in range(count)]
        if level.once and rng.random() < 0.8:
            sizes[0] += level.once
        rows.append((process, sizes, level, size))
    leaker = rng.randrange(len(rows)) if rng.random() < 1 / 6 else -1
    holders: list[Holder] = []
    truth: dict[str, tuple[float, Component]] = {}
    split = rng.random() < 0.5
    for number, (process, sizes, level, size) in enumerate(rows):
        leak = size * rng.uniform(0.5, 3) if number == leaker else 0.0
        name = "actor" if process == "worker" else process
        truth[name] = (sum(sizes) + leak * len(sizes), _truth(level, size, leak))
        for one in sizes:
            shmem = round(min(level.pinned * noise[process], one)) if split else None
            word = "ray::WorkerDict" if process == "worker" else f"ray::{name}"
            holders.append(Holder(role=name, name=word, pid=len(holders), bytes=round(one + leak), shmem_bytes=shmem))
    role = max(truth, key=lambda one: truth[one][0])
    if not split and rng.random() < 0.5:
        holders = sorted(holders, key=lambda holder: -holder.bytes)[:10]
    return Drawn(plan, phase, tuple(holders), role, truth[role][1], shape)


def _student(rng: random.Random) -> float:
    """A draw of Student's t with four degrees of freedom."""
    return float(rng.gauss(0, 1) / math.sqrt(sum(rng.gauss(0, 1) ** 2 for _ in range(4)) / 4))


def _noisy(rng: random.Random, size: float, level: Level, noise: float, base: float) -> float:
    """A process: what the model takes with the budget's error, what itself takes as it happens to be."""
    return max((size - level.fixed) * noise * (1 + 0.02 * rng.gauss(0, 1)) + level.fixed * base, 1.0)


def _truth(level: Level, size: float, leak: float) -> Component:
    """The component with most bytes; on the way up, what is made last is partly there."""
    over = level.usual() - size
    sums: dict[Component, float] = {}
    for piece in level.pieces:
        sums[piece.component] = sums.get(piece.component, 0) + piece.bytes
    for name in ("load copy", "resume copy", "save copy", "activations", "optimizer", "gradients", "weights"):
        cut = min(max(over, 0), sums.get(name, 0))  # type: ignore[call-overload]
        sums[name], over = sums.get(name, 0) - cut, over - cut  # type: ignore[index,call-overload]
    process = sums.pop("process", 0)
    if leak > max([process, *sums.values()]):
        return "something else"
    return max(sums, key=lambda name: sums[name]) if sum(sums.values()) > process else "process"


def _separate(rng: random.Random, shape: Shape) -> Plan:
    """Roles with processes of their own, as OpenRLHF has them."""
    stage = rng.choice((2, 2, 3, 3, 3))
    offload = rng.random() < 0.6
    param = stage == 3 and offload and rng.random() < 0.35
    pin = rng.random() < 0.6
    local = rng.choice((1, 2, 4, 8, 8))
    ranks = local * rng.choice((1, 1, 1, 2, 2, 3, 4, 6, 8))
    critic = rng.choice((shape, shape, find_shape("Qwen2.5-7B") or shape))
    common: dict[str, Any] = {"backend": "deepspeed", "ranks": ranks, "local_ranks": local}
    common["version"] = rng.choice((None, "0.13.5", "0.15.4", "0.16.4", "0.18.2"))
    trained = common | {
        "stage": stage,
        "offload_optimizer": offload,
        "offload_param": param,
        "pin_optimizer": offload and pin,
        "pin_param": param and pin,
        "accumulates": rng.random() < 0.3,
        "groups": rng.choice((1, 2)),
    }
    frozen = common | {"stage": 3 if stage == 3 else 0, "offload_param": param}
    models = [Model(role="actor", process="actor", shape=shape, trained=True, **trained)]
    if rng.random() < 0.7:
        models.append(Model(role="critic", process="critic", shape=critic, trained=True, value_head=True, saved=False, **trained))
    models.append(Model(role="reference", process="reference", shape=shape, trained=False, **frozen))
    if rng.random() < 0.5:
        models.append(Model(role="reward", process="reward", shape=critic, trained=False, value_head=True, **frozen))
    return Plan(device="cuda", models=tuple(models), saves=True, saves_hf=True, resumes=True, file_bytes=5 * 10**9)


def _hybrid(rng: random.Random, shape: Shape) -> Plan:
    """All roles and the engine in one process a GPU, as verl has them."""
    local = rng.choice((4, 8, 8))
    ranks = local * rng.choice((1, 1, 2, 3, 4))
    param, optimizer = rng.choice(((False, False), (True, True), (True, True), (False, True)))
    common: dict[str, Any] = {"backend": "fsdp1", "ranks": ranks, "local_ranks": local, "process": "worker", "shape": shape}
    states = {"trained": True, "offload_param": param, "offload_optimizer": optimizer, "width": rng.choice((4, 4, 2))}
    models = [Model(role="actor", **common, **states)]
    models.append(Model(role="reference", trained=False, offload_param=True, width=2, **common))
    if rng.random() < 0.4:
        models.append(Model(role="critic", value_head=True, saved=False, **common, **states))
    swap = rng.choice((0, 0, 4 * GIB))
    engine = Engine(
        shape=shape,
        local_ranks=local,
        tensor_parallel=rng.choice((1, 2, 4)),
        sleep_level=0 if swap else rng.choice((0, 1, 1)),
        swap_bytes=swap,
        process="worker",
    )
    return Plan(device="cuda", models=tuple(models), engine=engine, saves=True, resumes=True, file_bytes=5 * 10**9)


def answer(drawn: Drawn, given: str) -> Explanation | None:
    """The explanation of a simulated table."""
    hypotheses: list[Hypothesis]
    if given == "configuration":
        hypotheses = configured([drawn.plan], frozenset(("offload_optimizer", "offload_optimizer.pin_memory")), also_cpu=False)
    else:
        roles = frozenset(str(holder.role) for holder in drawn.holders)
        ranks = ranks_of(group(drawn.holders), cut=len(drawn.holders) <= TEN)
        hybrid = any("WorkerDict" in holder.name for holder in drawn.holders)
        shape = drawn.shape if given == "model's name" else None
        hypotheses = generic(Seen(roles=roles, ranks=ranks, hybrid=hybrid, shape=shape))
    near = _NEAR.get(drawn.phase, drawn.phase)
    phases = {name: 6.0 if _NEAR.get(name, name) == near else 0.5 for name in estimate(drawn.plan).phases}
    return explain(drawn.holders, hypotheses, phases, basis=quoted("simulated"))


@dataclass
class Tally:
    """Answers and what became of them."""

    said: list[tuple[float, bool]]
    named: list[bool]
    """Of those that named one component."""
    role: list[bool]
    within: list[bool]
    times_s: list[float]

    def row(self, name: str) -> str:
        """A line of the table."""
        first = sum(hit for _, hit in self.said) / len(self.said)
        named = f"{sum(self.named) / len(self.named):.2f} ({len(self.named) / len(self.said):.0%} of all)" if self.named else "-"
        return (
            f"| {name} | {len(self.said)} | {sum(self.role) / len(self.role):.2f} | {first:.2f} | {named} | "
            f"{expected_error(self.said):.2f} | {sum(self.within) / len(self.within):.2f} | {1000 * max(self.times_s):.0f} ms |"
        )


def expected_error(said: Sequence[tuple[float, bool]], bins: int = 10) -> float:
    """Mean distance of what was said from what came true, over ten bins of probability."""
    total = 0.0
    for number in range(bins):
        own = [pair for pair in said if number <= pair[0] * bins < number + 1 or (number == bins - 1 and pair[0] == 1.0)]
        if own:
            total += abs(sum(share for share, _ in own) - sum(hit for _, hit in own))
    return total / len(said)


def simulate(given: str, count: int = COUNT, seed: int = 19) -> Tally:
    """So many incidents."""
    rng = random.Random(seed)
    tally = Tally([], [], [], [], [])
    for _ in range(count):
        drawn = draw(rng)
        begin = time.process_time()
        found = answer(drawn, given)
        tally.times_s.append(time.process_time() - begin)
        assert found is not None
        add(tally, found, drawn.role, drawn.component)
    return tally


def add(tally: Tally, found: Explanation, role: str, component: Component) -> None:
    """One more answer."""
    first = found.suspects[0]
    tally.said.append((first.probability, first.component == component))
    tally.role.append(found.rows[0].role == role)
    if first.probability >= LIKELY:
        tally.named.append(first.component == component)
    tally.within.append(abs(found.rows[0].rest_bytes) <= 0.15 * found.rows[0].bytes)


if __name__ == "__main__":
    for given in GIVEN:
        print(simulate(given, 200).row(given))
