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
from collections.abc import Sequence
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
from tests.bench.budget import SETS, predict, read

PAGE = Path(__file__).with_name("EXPLAINED.md")
COUNT = 300
_UNSEEN = ("second", "third")
"""Sets of recorded runs that set none of the budget's constants."""
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


def measured(row: dict[str, Any], phase: str) -> list[Holder]:
    """The processes of a recorded run of the budget at their peak in a phase."""
    found = []
    for number, process in enumerate(row["processes"]):
        if phase in process["phases"] and process["role"] in ("actor", "critic", "reference"):
            size = process["phases"][phase]
            shmem = process["shmem"] if size == process["peak"] else None
            name = f"ray::{process['role']}"
            found.append(Holder(role=process["role"], name=name, pid=number, bytes=size, shmem_bytes=shmem))
    return found


def own_shape(words: dict[str, str]) -> Shape:
    """The model of a recorded run, by the trainer's settings (frameworks/rlhfdoctor/layout.py)."""
    layers, hidden, heads, size = (int(words[f"model.{key}"]) for key in ("num_layers", "hidden_size", "num_heads", "vocab_size"))
    return Shape(
        name="the trainer's own",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=max(heads // 2, 1),
        head_dim=hidden // heads,
        intermediate=3 * hidden,
        vocabulary=size,
        tied=True,
        attention_bias=True,
    )


def on_record() -> tuple[Tally, Tally, Tally]:
    """Recorded runs with their configuration; with the model's size alone against what that says; the same without page-locked bytes and phase."""
    tallies = Tally([], [], [], [], []), Tally([], [], [], [], []), Tally([], [], [], [], [])
    for name in _UNSEEN:
        for row in read(SETS[name][0]):
            words = dict(word.split("=", 1) for word in row["words"])
            roles = frozenset(process["role"] for process in row["processes"]) & {"actor", "critic", "reference"}
            if len(roles) < 3:
                continue
            known = predict(row)
            given = [Hypothesis(known, 1.0, quoted("as configured"), cpu=True, from_files=True)]
            hidden = generic(Seen(roles=roles, ranks=int(words["cluster.world_size"]), hybrid=False, shape=own_shape(words), cpu=True))
            for phase in sorted({phase for process in row["processes"] for phase in process["phases"]} & set(known.phases)):
                holders = measured(row, phase)
                phases = {name: 6.0 if name == phase else 0.5 for name in known.phases}
                truth = explain(holders, given, phases, basis=quoted("measured"))
                assert truth is not None
                component = truth.suspects[0].component
                add(tallies[0], truth, truth.rows[0].role, component)
                blind = [replace(holder, shmem_bytes=None) for holder in holders]
                for tally, rows, prior in ((tallies[1], holders, phases), (tallies[2], blind, {})):
                    begin = time.process_time()
                    found = explain(rows, hidden, prior, basis=quoted("measured"))
                    tally.times_s.append(time.process_time() - begin)
                    assert found is not None
                    add(tally, found, truth.rows[0].role, component)
    tallies[0].times_s.append(0)
    return tallies


HEADER = (
    "| what is known | tables | consumer's role | component first | component where one is named | error of the probability | "
    "within 15 % | slowest |",
    "|---|---:|---|---|---|---|---|---:|",
)
HEAD = """# The bytes explained, measured

Written by `python -m tests.exam.explained --write`, which says how tables are simulated. Role and component: shares that were right;
a component is *named* from a probability of 0.6 on. Error of the probability: mean distance of what was said from what came true (ten bins). Within 15 %: the largest row's parts against what was measured,
after the process itself has taken up to half of its constant more or less, so this flatters small processes. Slowest: CPU time of one
explanation, on a busy machine of two cores.

What simulated tables cannot show: they come from the same budget as the explanation. The recorded runs do not, but run on CPUs, and their truth is what their configuration says of the measured bytes: of its row there only
"within 15 %" counts. The consumer's role is who holds most, and tables name it, so 1.00 is no feat.
"""


def page() -> str:
    """The page of results."""
    lines = [HEAD, f"## Simulated, {COUNT} each", "", *HEADER]
    lines += [simulate(given).row(given) for given in GIVEN]
    lines += ["", "## Recorded runs of the budget (its second and third set), each phase", "", *HEADER]
    names = ("configuration", "model's size", "model's size, neither phase nor page-locked bytes")
    lines += [tally.row(name) for name, tally in zip(names, on_record(), strict=True)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    text = page()
    print(text)
    if "--write" in sys.argv:
        PAGE.write_text(text)
