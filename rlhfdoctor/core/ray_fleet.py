"""Runs judged by the nodes of a Ray cluster, a core each; the nodes reach them by a shared disk or by addresses."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from rlhfdoctor import ray_nodes
from rlhfdoctor.errors import UsageError
from rlhfdoctor.fleet import FleetRow, unreadable_row
from rlhfdoctor.i18n.message import Message, plural, say
from rlhfdoctor.logs.remote import is_remote

_START_S = 120.0
_MOST_ACTORS = 8
"""On a node."""
_MOST_TRIES = 2
"""An actor may end with its node, or by a run that crashes its reader."""


class Judge:
    """Becomes a Ray actor."""

    def start(self, make: str, reading: dict[str, Any]) -> int:
        """Makes what judges; how many cores this node has.

        Raises:
            ImportError: a package of the doctor is not installed here.
        """
        module, _, name = make.partition(":")
        self._judge = getattr(import_module(module), name)(reading)
        return len(os.sched_getaffinity(0))

    def judge(self, path: str) -> FleetRow:
        """The row of a run."""
        row: FleetRow = self._judge(path, lambda _: None)
        return row


def judge_on_nodes(
    paths: Sequence[str], make: str, reading: dict[str, Any], address: str, tell: Callable[[Message], None]
) -> Iterator[FleetRow]:
    """The rows of these runs, in order, each as soon as it and those before it are known.

    Args:
        paths: as every node knows them; relative ones are taken from the folder of this process.
        make: "module:function"; called with `reading` (plain values) on each node, it gives what judges a path.
        reading: how each is read.
        address: of the cluster, as `ray.init` takes it.
        tell: called with a line about the nodes.

    Raises:
        UsageError: no cluster there, or no node of it has the doctor's packages.
    """
    with ray_nodes.connected(address) as ray:
        pool = _Pool(ray, make, reading, tell)
        found: dict[int, FleetRow] = {}
        given = 0
        for number, row in pool.rows([path if is_remote(path) else str(Path(path).absolute()) for path in paths]):
            found[number] = replace(row, path=paths[number])
            while given in found:
                yield found.pop(given)
                given += 1


class _Pool:
    """Actors on all nodes, a core each."""

    def __init__(self, ray: Any, make: str, reading: dict[str, Any], tell: Callable[[Message], None]) -> None:
        self._ray, self._failures = ray, ray_nodes.failures(ray)
        rows = [row for row in ray.nodes() if row.get("Alive")]
        self._idle: list[Any] = []
        why = ""
        firsts, whys = self._start([(row, 1) for row in rows], make, reading)
        for row, error in whys:
            why = error
            tell(say("{node}: judges no run: {why}", node=ray_nodes.name_of(row), why=why))
        self._start([(row, min(cores, _MOST_ACTORS) - 1) for row, cores in firsts], make, reading)
        if not self._idle:
            raise UsageError(
                say("--each --ray: no node can judge a run ({why}); pip install rlhfdoctor there", why=why)
            )
        tell(plural("{n} core of the cluster judges", "{n} cores of the cluster judge", len(self._idle)))

    def _start(
        self, wanted: Sequence[tuple[Any, int]], make: str, reading: dict[str, Any]
    ) -> tuple[list[tuple[Any, int]], list[tuple[Any, str]]]:
        """So many actors on each node: the nodes with their cores where one judges, or with the reason."""
        actors = [(row, ray_nodes.start_actor(self._ray, Judge, row["NodeID"])) for row, n in wanted for _ in range(n)]
        good: list[tuple[Any, int]] = []
        bad: list[tuple[Any, str]] = []
        for row, actor, cores in [(row, actor, actor.start.remote(make, reading)) for row, actor in actors]:
            try:
                good.append((row, self._ray.get(cores, timeout=_START_S)))
            except self._failures as error:
                bad.append((row, ray_nodes.first_line(error)))
                continue
            self._idle.append(actor)
        return good, bad

    def rows(self, paths: Sequence[str]) -> Iterator[tuple[int, FleetRow]]:
        """Number and row of each run, in the order in which they are done."""
        waiting, tries = deque(range(len(paths))), [0] * len(paths)
        busy: dict[Any, tuple[int, Any]] = {}
        why = ""
        while waiting or busy:
            while waiting and self._idle:
                number, actor = waiting.popleft(), self._idle.pop()
                tries[number] += 1
                busy[actor.judge.remote(paths[number])] = number, actor
            if not busy:  # all actors are gone
                yield from ((number, unreadable_row(paths[number], why)) for number in waiting)
                return
            (ready,), _ = self._ray.wait(list(busy), num_returns=1)
            number, actor = busy.pop(ready)
            try:
                yield number, self._ray.get(ready)
            except self._failures as error:
                why = ray_nodes.first_line(error)
                raised = isinstance(error, self._ray.exceptions.RayTaskError)  # then the actor goes on
                if raised or tries[number] == _MOST_TRIES:
                    yield number, unreadable_row(paths[number], why)
                else:
                    waiting.append(number)
                if not raised:
                    continue
            self._idle.append(actor)
