"""Processes by their roles, and how a batch is split over ranks and joined again; no Ray is started."""

from __future__ import annotations

import types
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
pytest.importorskip("omegaconf")
pytest.importorskip("ray")

from trainer import cluster, roles  # noqa: E402

QUICK = settings(max_examples=60, deadline=None, database=None, derandomize=True)


class Call:
    """A method of a fake handle: `remote` runs it at once, and what it makes stands for Ray's reference."""

    def __init__(self, function: Any) -> None:
        self.remote = function


class Handle:
    """A fake handle of one rank; `actor_echo` gives back its share, `actor_who` the rank."""

    def __init__(self, rank: int) -> None:
        self.seen: list[dict[str, Any]] = []
        self.actor_echo = Call(lambda batch: (self.seen.append(batch), batch)[1])
        self.actor_who = Call(lambda *given: (rank, *given))
        self.actor_figures = Call(lambda batch: {"loss": float(rank)})


@pytest.fixture(autouse=True)
def no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ray.get` of fake references: they are the answers."""
    monkeypatch.setattr(cluster, "ray", types.SimpleNamespace(get=lambda jobs: list(jobs)))


def group(ranks: int) -> cluster.Group:
    """The actor's group on that many fake ranks."""
    return cluster.Group("actor", [Handle(rank) for rank in range(ranks)])


# --- processes ---------------------------------------------------------------------------------


def test_process_class_is_named() -> None:
    """The class has the title that Ray shows, and is a Process."""
    made = cluster.process_class("ActorModel", ("actor",))
    assert made.__name__ == "ActorModel"
    assert issubclass(made, cluster.Process)


def test_process_class_has_its_roles_methods() -> None:
    """One method a role and method, and none of roles that it does not hold."""
    made = cluster.process_class("ActorModel", ("critic", "reward"))
    found = {name for name in vars(made) if not name.startswith("__")}
    assert {
        "critic_begin",
        "critic_values",
        "critic_update",
        "critic_save",
        "critic_commit",
        "critic_resume",
        "reward_begin",
        "reward_score",
    } == found
    assert made.critic_update.__name__ == "critic_update"


def test_process_calls_the_role() -> None:
    """Each method goes to its own role, with its arguments."""
    process = cluster.process_class("ActorModel", ("actor", "critic"))()
    process.roles = {
        "actor": types.SimpleNamespace(save=lambda step: ("actor", step)),
        "critic": types.SimpleNamespace(save=lambda step: ("critic", step)),
    }
    assert [process.actor_save(3), process.critic_save(4)] == [("actor", 3), ("critic", 4)]


@pytest.mark.parametrize("role", roles.ROLES)
def test_methods_are_there(role: str) -> None:
    """What the driver may call is a method of the role."""
    assert [name for name in cluster._METHODS[role] if not callable(getattr(roles.ROLES[role], name, None))] == []


@pytest.mark.parametrize("placement", cluster._PLACEMENTS)
def test_every_role_has_one_place(placement: str) -> None:
    """In each placement every role is in exactly one process a rank."""
    placed = [role for names in cluster._PLACEMENTS[placement].values() for role in names]
    assert sorted(roles.ROLES) == sorted(placed)


def test_the_address_can_be_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process names its node's address and a free port."""
    monkeypatch.setattr(
        cluster.ray, "util", types.SimpleNamespace(get_node_ip_address=lambda: "10.0.0.7"), raising=False
    )
    address, port = cluster.Process().address()
    assert address == "10.0.0.7"
    assert 1024 <= port <= 65535


# --- calls -------------------------------------------------------------------------------------


def test_all() -> None:
    """Every rank gets the same arguments, and the answers come by rank."""
    assert group(3).all("who", "x", 2) == [(0, "x", 2), (1, "x", 2), (2, "x", 2)]


def test_split_by_hand() -> None:
    """Five rows on two ranks: two and three, tensors and lists alike."""
    made = group(2)
    batch = {"tokens_BT": torch.arange(10).reshape(5, 2), "answers": ["a", "b", "c", "d", "e"]}
    made.submit("echo", batch)
    shares = [handle.seen[0] for handle in made.handles]
    assert [share["answers"] for share in shares] == [["a", "b"], ["c", "d", "e"]]
    assert [share["tokens_BT"].tolist() for share in shares] == [[[0, 1], [2, 3]], [[4, 5], [6, 7], [8, 9]]]


@QUICK
@given(st.integers(1, 6), st.integers(1, 40))
def test_split_is_even(ranks: int, count: int) -> None:
    """Shares differ by one row at most, so multiples of the ranks are split into equal parts; no row is lost or moved."""
    made = group(ranks)
    joined = made.split("echo", {"row_B": torch.arange(count)})
    sizes = [len(handle.seen[0]["row_B"]) for handle in made.handles]
    assert (True, count) == (max(sizes) - min(sizes) <= 1, sum(sizes))
    assert list(range(count)) == joined["row_B"].tolist()


def test_figures_are_rank_0s() -> None:
    """What is no tensor has been agreed on by the ranks before, and is not joined."""
    assert group(3).split("figures", {"row_B": torch.arange(6)}) == {"loss": 0.0}


def test_submit_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """`submit` returns the references; only `wait` asks Ray for the answers."""
    monkeypatch.setattr(cluster, "ray", None)
    jobs = group(2).submit("echo", {"row_B": torch.arange(4)})
    monkeypatch.setattr(cluster, "ray", types.SimpleNamespace(get=list))
    assert cluster.Group.wait(jobs)["row_B"].tolist() == [0, 1, 2, 3]
