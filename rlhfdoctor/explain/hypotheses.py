"""Configurations that may have run: the one at hand with what it leaves open, else what frameworks can be set to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rlhfdoctor.budget.estimate import host_estimate
from rlhfdoctor.budget.layout_settings import SWAP_GIB
from rlhfdoctor.budget.plan import Engine, Model, Plan
from rlhfdoctor.budget.shapes import Shape, of_size
from rlhfdoctor.budget.types import Estimate, Need
from rlhfdoctor.i18n.message import NOTHING, Message, joined, say, term
from rlhfdoctor.units import GIB

_SIZES_BILLION = (0.5, 1.5, 3, 7, 8, 14, 32, 72)
"""Of published models, tried where the size is unknown."""
_REFERENCE_BILLION = 7.0
_NODES = {1: 0.45, 2: 0.22, 3: 0.08, 4: 0.12, 6: 0.05, 8: 0.08}
"""How many nodes a role's ranks may lie on, and their prior: most runs have few."""
_NODES_HYBRID = {1: 0.5, 2: 0.25, 4: 0.17, 8: 0.08}
_NODES_UNKNOWN = {1: 0.7, 4: 0.3}
"""Where the model's size is tried, too, which shards look alike by."""
_MODELS = ("actor", "critic", "reference", "reward")
_ENGINES = ((0.12, 1, 0, 1), (0.18, 1, 0, 2), (0.1, 1, 0, 4), (0.45, 0, 0, 2), (0.15, 0, SWAP_GIB * GIB, 2))
"""Prior, sleep level, swap blocks and tensor parallelism; verl's default is two GPUs."""
_OPEN = 0.08
"""Prior of another value of what a configuration leaves to the release's default."""


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A configuration that may have run."""

    estimate: Estimate
    prior: float
    says: Message
    """What is assumed of it."""
    scales: tuple[float, ...] = (1.0,)
    """Sizes of the model to try, of the one in the estimate."""
    scale_says: tuple[Message, ...] = field(default=(NOTHING,))
    cpu: bool = False
    """Computes in host memory."""
    from_files: bool = False
    """It is the configuration at hand, or that with something which it leaves open."""


def configured(plans: Sequence[Plan], known: frozenset[str], *, also_cpu: bool) -> list[Hypothesis]:
    """The plans of a configuration at hand, one a kind of node; with what it leaves open set otherwise.

    Args:
        known: canonical names of the settings that the files set.
        also_cpu: it may have run without GPUs.
    """
    found: list[Hypothesis] = []
    for plan in plans:
        devices: tuple[Literal["cuda", "cpu"], ...] = (plan.device, "cpu") if also_cpu else (plan.device,)
        for device in dict.fromkeys(devices):
            for prior, says, other in _left_open(plan, known):
                whole = replace(other, device=device, saves=True, saves_hf=True, saves_at_end="", resumes=True)
                found.append(Hypothesis(host_estimate(whole), prior, says, cpu=device == "cpu", from_files=True))
    return found


def _left_open(plan: Plan, known: frozenset[str]) -> Iterator[tuple[float, Message, Plan]]:
    """The plan; the same under another value of what its files do not set, or with what engines are known to keep."""
    yield 1.0, say("as configured"), plan
    if plan.engine is not None and plan.engine.swap_bytes:
        twice = replace(plan.engine, swap_bytes=2 * plan.engine.swap_bytes)
        yield _OPEN, say("with the swap blocks of an earlier rollout kept"), replace(plan, engine=twice)
    offload = any(model.offload_optimizer for model in plan.models)
    if "offload_optimizer" not in known and not any(m.trained and m.stage == 0 and not _fsdp(m) for m in plan.models):
        words = say("without optimizer offload") if offload else say("with optimizer offload")
        changes = {"offload_optimizer": not offload, "pin_optimizer": not offload}
        yield _OPEN, words, replace(plan, models=tuple(_set(m, **changes) for m in plan.models))
    if offload and "offload_optimizer.pin_memory" not in known and not any(map(_fsdp, plan.models)):
        pinned = any(model.pin_optimizer for model in plan.models)
        words = say("offload buffers not page-locked") if pinned else say("page-locked offload buffers")
        yield _OPEN, words, replace(plan, models=tuple(_set(m, pin_optimizer=not pinned) for m in plan.models))


def _set(model: Model, **changes: Any) -> Model:
    return replace(model, **changes) if model.trained else model


def _fsdp(model: Model) -> bool:
    return model.backend.startswith("fsdp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What is known of a run whose configuration is not at hand."""

    roles: frozenset[str]
    """Roles that have processes of their own on the node."""
    ranks: int
    """Processes of the role with most."""
    hybrid: bool
    """One process a GPU holds all roles and the rollout engine (verl and its forks)."""
    shape: Shape | None = None
    """None if the model's size is unknown."""
    release: str | None = None
    """Of DeepSpeed."""
    cpu: bool = False


def generic(seen: Seen) -> list[Hypothesis]:
    """What frameworks can be set to that makes a difference in host memory, with what is common more likely."""
    shape = seen.shape or of_size(_REFERENCE_BILLION * 1e9)
    scales: tuple[float, ...] = (1.0,)
    words: tuple[Message, ...] = (NOTHING,)
    if seen.shape is None:
        scales = tuple(size / _REFERENCE_BILLION for size in _SIZES_BILLION)
        words = tuple(say("a model of {size}B parameters", size=f"{size:g}") for size in _SIZES_BILLION)
    found: list[Hypothesis] = []
    setups = list(_fsdp_setups() if seen.hybrid else _deepspeed_setups(seen))
    engines = [(prior, _engine_needs(seen, engine)) for prior, engine in _engines(seen, shape)]
    device: Literal["cuda", "cpu"] = "cpu" if seen.cpu else "cuda"
    possible = _NODES_UNKNOWN if seen.shape is None else _NODES_HYBRID if seen.hybrid else _NODES
    for nodes, nodes_prior in possible.items():
        for prior, says, setup in setups:
            models = tuple(_models(seen, shape, seen.ranks * nodes, setup))
            plan = Plan(device=device, models=models, saves=True, saves_hf=True, resumes=True)
            trained = host_estimate(plan)
            whole = joined(says, say("{ranks} ranks", ranks=seen.ranks * nodes), by=", ")
            for engine_prior, needs in engines:
                together = replace(trained, needs=(*trained.needs, *needs))
                found.append(Hypothesis(together, prior * nodes_prior * engine_prior, whole, scales, words, seen.cpu))
    return found


def _engine_needs(seen: Seen, engine: Engine | None) -> tuple[Need, ...]:
    """What an engine adds; in the same processes as the models it adds no process."""
    plan = Plan(device="cpu" if seen.cpu else "cuda", models=(), engine=engine, ray=False)
    return tuple(n for n in host_estimate(plan).needs if not (seen.hybrid and n.component == "process"))


def _engines(seen: Seen, shape: Shape) -> Iterator[tuple[float, Engine | None]]:
    """Rollout engines in the same processes, in processes of their own, or none that were seen."""
    if not seen.hybrid and "rollout engine" not in seen.roles:
        yield 1.0, None
        return
    process, ranks = ("worker", seen.ranks) if seen.hybrid else ("rollout engine", 1)
    for prior, sleep_level, swap, parallel in _ENGINES:
        yield (
            prior,
            Engine(
                shape=shape,
                local_ranks=ranks,
                tensor_parallel=parallel,
                sleep_level=sleep_level,
                swap_bytes=swap,
                process=process,
            ),
        )


_Setup = tuple[float, Message, dict[str, Any]]


def _deepspeed_setups(seen: Seen) -> Iterator[_Setup]:
    """Stage, offload, page-locked or not; priors are judgement, after OpenRLHF's and TRL's examples."""
    for width in (2, 4) if seen.cpu else (2,):
        for stage, by_stage in ((0, 0.05), (1, 0.05), (2, 0.4), (3, 0.5)):
            if stage < 2 and not seen.cpu:
                continue  # on GPUs stage 1 is as 2 in host memory
            common = {"backend": "deepspeed", "stage": stage, "width": width, "version": seen.release}
            prior = by_stage / (2 if seen.cpu else 1)
            yield prior * 0.45, say("ZeRO stage {stage}, no offload", stage=stage), common
            if not stage:
                continue
            for pin, by_pin in ((True, 0.65), (False, 0.35)):
                offload = common | {"offload_optimizer": True, "pin_optimizer": pin}
                locked = say("page-locked") if pin else say("not page-locked")
                words = say("ZeRO stage {stage}, optimizer offload ({locked})", stage=stage, locked=locked)
                yield prior * 0.4 * by_pin, words, offload
                if stage == 3:
                    words = say(
                        "ZeRO stage {stage}, optimizer and weights offloaded ({locked})", stage=3, locked=locked
                    )
                    both = offload | {"offload_param": True, "pin_param": pin}
                    yield prior * 0.15 * by_pin, words, both


def _fsdp_setups() -> Iterator[_Setup]:
    """Offloads between the phases, weights in fp32 (verl) or bf16, a critic or none."""
    for param, optimizer, by_offload in (
        (False, False, 0.4),
        (True, True, 0.4),
        (False, True, 0.1),
        (True, False, 0.1),
    ):
        says = say(
            "FSDP, {weights}, {states}",
            weights=say("weights offloaded") if param else say("weights on the GPUs"),
            states=say("optimizer offloaded") if optimizer else say("optimizer on the GPUs"),
        )
        for width, by_width in ((4, 0.7), (2, 0.3)):
            for critic, by_critic in ((False, 0.6), (True, 0.4)):
                setup = {
                    "backend": "fsdp1",
                    "width": width,
                    "offload_param": param,
                    "offload_optimizer": optimizer,
                    "critic": critic,
                }
                yield by_offload * by_width * by_critic, says, setup


def _models(seen: Seen, shape: Shape, ranks: int, setup: dict[str, Any]) -> Iterator[Model]:
    """The models of the roles that were seen."""
    common = {key: value for key, value in setup.items() if key != "critic"}
    frozen = common | {"offload_optimizer": False, "pin_optimizer": False}
    if setup["backend"] == "deepspeed":
        frozen |= {"stage": 3 if setup["stage"] == 3 else 0}
    else:
        frozen |= {"offload_param": True, "width": 2}
    trained = ("actor", "critic") if setup.get("critic") else ("actor",)
    roles = ("reference", *trained) if seen.hybrid else [role for role in _MODELS if role in seen.roles]
    for role in roles:
        is_trained = role in ("actor", "critic")
        yield Model(
            role=role,
            shape=shape,
            trained=is_trained,
            ranks=ranks,
            local_ranks=seen.ranks,
            value_head=role in ("critic", "reward"),
            saved=role == "actor",
            process="worker" if seen.hybrid else role,
            **(common if is_trained else frozen),
        )


def named(hypothesis: Hypothesis, place: int, phase: str) -> Message:
    """The hypothesis in words, with one of its sizes and a phase."""
    return joined(
        hypothesis.says, hypothesis.scale_says[place], say("in {phase}", phase=term(phase.replace("_", " "))), by=", "
    )
