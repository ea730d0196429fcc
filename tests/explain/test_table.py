"""Tables of processes, explained: which part filled the memory, and when the explanation has to stay open."""

from __future__ import annotations

import random

import pytest

from rlhfdoctor.budget.estimate import estimate, host_estimate
from rlhfdoctor.budget.shapes import find_shape
from rlhfdoctor.explain.hypotheses import Seen, configured, generic
from rlhfdoctor.explain.measured import Holder, group
from rlhfdoctor.explain.table import TEN, explain, ranks_of
from rlhfdoctor.i18n.message import quoted
from tests.exam.explained import COUNT, Drawn, answer, draw, simulate

GB = 10**9
HERE = quoted("here")
PHASES = {"load": 0.5, "update": 6.0, "checkpoint": 0.5}


def rows(**sizes: tuple[float, ...]) -> list[Holder]:
    """Processes by role, in GB."""
    return [
        Holder(role=role.replace("_", " "), name=f"ray::{role}", pid=100 * number + place, bytes=int(size * GB))
        for number, (role, many) in enumerate(sizes.items())
        for place, size in enumerate(many)
    ]


@pytest.mark.parametrize("model", ["Qwen2.5-14B", None])
def test_an_offloaded_optimizer_beside_small_frozen_roles(model: str | None) -> None:
    """About 16 bytes a parameter in actor and critic, a twentieth of it in the others: whatever died, it is offload."""
    holders = rows(actor=(80, 79, 79, 78), critic=(75, 75), reference=(4.1,), reward=(4.2,))
    victim = holders[-1].pid
    shape = find_shape(model) if model else None
    seen = Seen(roles=frozenset(("actor", "critic", "reference", "reward")), ranks=4, hybrid=False, shape=shape)
    found = explain(holders, generic(seen), PHASES, basis=HERE, victim=victim)
    assert found is not None
    offloaded = sum(s.probability for s in found.suspects if s.component in ("optimizer", "gradients", "page-lock rounding"))
    assert (found.rows[0].role, offloaded > 0.8, found.victim_ratio is not None and found.victim_ratio < 0.1) == ("actor", True, True)


def test_what_no_configuration_explains_is_something_else() -> None:
    """A reference model of ten times what the budget gives it is not called weights."""
    seen = Seen(roles=frozenset(("actor", "reference")), ranks=2, hybrid=False, shape=find_shape("Qwen2.5-0.5B"))
    found = explain(rows(actor=(3.9, 4.0), reference=(400, 410)), generic(seen), {}, basis=HERE)
    assert found is not None
    assert (found.suspects[0].component, found.rows[0].rest_bytes > 0.9 * found.rows[0].bytes, str(found.assumed)) == (
        "something else",
        True,
        "",
    )


def test_processes_without_a_model_are_not_explained_by_one() -> None:
    """Workers of a reward function and a driver have the memory of processes, the rest stays unexplained."""
    found = explain(rows(reward_worker=(60, 58), driver=(1,)), [], {}, basis=HERE)
    assert found is not None
    assert (found.rows[0].role, found.suspects[0].component, found.is_modelled) == ("reward worker", "something else", False)


def test_nothing_measured() -> None:
    """No processes, no explanation."""
    assert explain([], [], {}, basis=HERE) is None


def test_equally_good_explanations_name_none() -> None:
    """A process that Python and CUDA alone explain as well as a small model names no part at high confidence."""
    found = explain(rows(actor=(9.3, 9.2)), generic(Seen(roles=frozenset(("actor",)), ranks=2, hybrid=False)), {}, basis=HERE)
    assert found is not None
    assert all(one.component in ("process", "something else") for one in found.suspects if one.probability > 0.6)
    assert sum(one.probability for one in found.suspects) == pytest.approx(1.0)


def test_ten_rows_hide_how_many_ranks_there_are() -> None:
    """Ray shows ten processes; of two roles with five each there may be eight."""
    groups = group(rows(actor=(9,) * 5, critic=(8,) * 5))
    assert (ranks_of(groups, cut=True), ranks_of(groups, cut=False), TEN) == (8, 5, 10)


def one(seed: int) -> Drawn:
    return draw(random.Random(seed))


@pytest.mark.parametrize("seed", range(4))
def test_host_estimate_is_the_estimate_in_host_memory(seed: int) -> None:
    """The same needs as the whole estimate, without page tables."""
    plan = one(seed).plan
    whole = [n for n in estimate(plan).needs if n.place == "host" and n.role != "kernel"]
    assert list(host_estimate(plan).needs) == whole


def test_simulated_tables() -> None:
    """Fewer than the page has, and well below its figures: with the configuration, and with the model's name."""
    known, named = simulate("configuration", 40), simulate("model's name", 25)
    assert sum(hit for _, hit in known.said) >= 34
    assert sum(named.named) >= 0.6 * len(named.named)
    assert COUNT >= 300


def test_the_configuration_at_hand_restricts() -> None:
    """With the files there are only their plan and what they leave open."""
    drawn = one(7)
    found = answer(drawn, "configuration")
    plans = configured([drawn.plan], frozenset(), also_cpu=False)
    assert found is not None
    assert (len(plans) <= 4, found.rows[0].role) == (True, drawn.role)
