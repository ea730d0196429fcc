"""Ray processes of the ranks: a placement group, one process a rank of each placement, calls to all ranks at once.

With `placement: fused` one process a rank holds actor, critic, reference and reward (as verl's
create_colocated_worker_cls does, verl/single_controller/ray/base.py); with `separate` actor, critic and reference have
processes of their own (as OpenRLHF's PPORayActorGroup, openrlhf/trainer/ray/launcher.py). The roles do not know which.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from rlhfdoctor import marks
from trainer.config import Config
from trainer.data import find_function

_METHODS = {
    "actor": ("begin", "generate", "logprobs", "update", "weights", "save", "commit", "resume"),
    "critic": ("begin", "values", "update", "save", "commit", "resume"),
    "reference": ("begin", "logprobs"),
    "reward": ("begin", "score"),
}
"""What the driver may call, by role."""
_PLACEMENTS = {
    "fused": {"ActorModel": ("actor", "critic", "reference", "reward")},
    "separate": {"ActorModel": ("actor", "reward"), "CriticModel": ("critic",), "ReferenceModel": ("reference",)},
}
"""Class name of a process (as `ray list actors` and process titles show it) -> its roles."""


class Process:
    """One rank's process. torch and DeepSpeed are imported in `start`, so that an address is there at once."""

    def address(self) -> tuple[str, int]:
        """Where this process can serve as the meeting point of its group."""
        with socket.socket() as probe:
            probe.bind(("", 0))
            return ray.util.get_node_ip_address(), probe.getsockname()[1]

    def start(
        self, config: Config, names: Sequence[str], rank: int, meeting: tuple[str, int], workers: list[Any]
    ) -> int:
        """Joins the group and makes the roles; the process's pid."""
        from rlhfdoctor import probe
        from trainer import engine, roles

        marks.role(names[0], rank=rank)
        probe.start()
        with marks.phase("load", step=0):
            engine.start_distributed(rank, config.cluster.world_size, *meeting, config)
            self.roles = {
                name: roles.ROLES[name](config, rank, *([workers] if name == "reward" else [])) for name in names
            }
        roles.sample_apart(config, rank)
        return os.getpid()


def process_class(title: str, names: Sequence[str]) -> type[Process]:
    """A process with one method `role_method` for each method of its roles, so that titles and logs name them."""

    def forward(role: str, method: str) -> Any:
        def call(self: Process, *arguments: Any) -> Any:
            return getattr(self.roles[role], method)(*arguments)

        call.__name__ = f"{role}_{method}"
        return call

    methods = {f"{role}_{method}": forward(role, method) for role in names for method in _METHODS[role]}
    return type(title, (Process,), methods)


@ray.remote(num_cpus=0)
class RewardWorker:
    """A process that runs the reward function."""

    def __init__(self, function: str, index: int) -> None:
        marks.role("reward worker", rank=index)
        self.function = find_function(function, "reward.function")

    def score(self, response: str, answer: str, length: int) -> float:
        return float(self.function(response, answer, length))


class Group:
    """The ranks of one role."""

    def __init__(self, role: str, handles: list[Any]) -> None:
        self.role, self.handles = role, handles

    def all(self, method: str, *arguments: Any) -> list[Any]:
        """The same call on every rank; their answers, by rank."""
        return ray.get([getattr(handle, f"{self.role}_{method}").remote(*arguments) for handle in self.handles])

    def split(self, method: str, batch: dict[str, Any]) -> dict[str, Any]:
        """The call with each rank's share of the rows, and the answers joined again in the order of the rows."""
        return self.wait(self.submit(method, batch))

    def submit(self, method: str, batch: dict[str, Any]) -> list[Any]:
        """As `split`, without waiting."""
        count = len(next(iter(batch.values())))
        edges = [count * rank // len(self.handles) for rank in range(len(self.handles) + 1)]
        return [
            getattr(handle, f"{self.role}_{method}").remote({name: rows[a:b] for name, rows in batch.items()})
            for handle, a, b in zip(self.handles, edges, edges[1:], strict=False)
        ]

    @staticmethod
    def wait(jobs: list[Any]) -> dict[str, Any]:
        """The answers of `submit`: rows joined, or rank 0's figures (which are already means over the ranks)."""
        import torch

        answers = ray.get(jobs)
        return {
            name: torch.cat([answer[name] for answer in answers]) if isinstance(value, torch.Tensor) else value
            for name, value in answers[0].items()
        }


_START_COUNT = 4
_SLOW_START = "timed out during startup"
"""Ray waits for its raylet for 30 seconds, whatever the machine has to do (ray/_private/node.py at 2.60)."""


def start_ray(config: Config, engines: int) -> None:
    """Joins a cluster, or starts one on this machine that has room for all ranks."""
    address = config.cluster.address or os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address)
        return
    for attempt in range(_START_COUNT):
        try:
            ray.init(
                num_cpus=max(config.cluster.num_cpus or os.cpu_count() or 1, config.cluster.world_size + engines),
                object_store_memory=config.cluster.object_store_memory,
                include_dashboard=False,
            )
            return
        except Exception as error:  # Ray raises no class of its own
            if _SLOW_START not in str(error) or attempt + 1 == _START_COUNT:
                raise
            ray.shutdown()


def start_groups(config: Config, engines: int) -> tuple[dict[str, Group], PlacementGroup]:
    """All roles, ready to be called; one bundle a rank and one an engine."""
    kind = "GPU" if ray.cluster_resources().get("GPU", 0) else "CPU"
    bundle = {"CPU": 1.0, "GPU": 1.0} if kind == "GPU" else {"CPU": 1.0}
    group = placement_group([dict(bundle) for _ in range(config.cluster.world_size + engines)], strategy="PACK")
    ray.get(group.ready())
    workers = [RewardWorker.remote(config.reward.function, index) for index in range(config.reward.num_workers)]
    placement = _PLACEMENTS[config.cluster.placement]
    share = {"num_cpus": 1 / len(placement), **({"num_gpus": 1 / len(placement)} if kind == "GPU" else {})}
    groups: dict[str, Group] = {}
    started = []
    for title, names in placement.items():
        remote = ray.remote(process_class(title, names))
        handles = [
            remote.options(
                **share, scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
            ).remote()
            for rank in range(config.cluster.world_size)
        ]
        meeting = ray.get(handles[0].address.remote())
        started += [handle.start.remote(config, names, rank, meeting, workers) for rank, handle in enumerate(handles)]
        groups |= {name: Group(name, handles) for name in names}
    ray.get(started)
    return groups, group
