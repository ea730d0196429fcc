"""The logs of a Ray cluster, each node's scanned where they lie, on one clock."""

from __future__ import annotations

import contextlib
import heapq
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from rlhfdoctor import ray_nodes
from rlhfdoctor.core.file_read import FileRead
from rlhfdoctor.core.node_logs import NodeLogs, NodeOrder, NodePlace
from rlhfdoctor.i18n.message import Message, plural, quoted, say
from rlhfdoctor.logs.open import Source, find_sources
from rlhfdoctor.logs.read import Reading
from rlhfdoctor.logs.remote import RemoteFile, find_remote
from rlhfdoctor.logs.window import ALWAYS, Window
from rlhfdoctor.privacy.secrets import shortened
from rlhfdoctor.types import Event, Gap

_START_S = 120.0
"""Until an actor answers for the first time: Ray starts a worker and unpacks this package."""
_LOOK_S = 5.0
_MOST_EVENTS = 200_000
"""Of all nodes together: a session holds half as many."""
_LEAST_EVENTS = 500
"""Of a node."""
_SHOWN_COUNT = 16
"""Nodes that get a line of their own."""


class _Asked(NamedTuple):
    """A node that reads."""

    name: str
    node_id: str
    offset_s: float
    """Its clock less ours."""
    order: NodeOrder


class Cluster:
    """The nodes of a Ray cluster, as a source of a session."""

    def __init__(
        self, address: str, tell: Callable[[Message], None] = lambda _: None, *, shared: Sequence[str] = ()
    ) -> None:
        """Connects when it is entered.

        Args:
            address: as `ray.init` takes it; `auto` for the cluster of this machine.
            tell: called with a line for each node that was read.
            shared: addresses of a storage that every node reaches; each node reads a part of the files there.
        """
        self.names = (*shared, f"--ray={address}")
        self._address, self._tell, self._shared = address, tell, tuple(shared)
        self._stack = contextlib.ExitStack()
        self._ray: Any = None
        self._failures: tuple[type[BaseException], ...] = ()
        self._actors: list[Any] = []
        """Held, since Ray ends an actor without references."""
        self._gone: list[tuple[dict[str, Any], Message]] = []
        """Nodes that Ray says are dead, with its reason."""
        self._alive: frozenset[str] = frozenset()
        """Addresses of the others."""

    def __enter__(self) -> Cluster:
        """Connects.

        Raises:
            UsageError: no cluster there, or Ray is not installed.
        """
        self._ray = self._stack.enter_context(ray_nodes.connected(self._address))
        self._failures = ray_nodes.failures(self._ray)
        return self

    def __exit__(self, *_error: object) -> None:
        self._actors.clear()
        self._stack.close()

    def read(self, gaps: list[Gap], window: Window = ALWAYS) -> Iterator[tuple[Source, Reading | None]]:
        """Each file of each node, with what was read of it there; None where its text is to be read here.

        Raises:
            SourceError: the shared storage cannot be reached from here.
        """
        rows = self._ray.nodes()
        alive = [row for row in rows if row.get("Alive")]
        self._gone = [(row, _reason(row)) for row in rows if not row.get("Alive")]
        self._alive = frozenset(map(_address, alive))
        files_count = bytes_count = 0
        waiting = self._ask(alive, gaps, window)
        if not waiting:
            yield from ((source, None) for source in find_sources(self._shared, gaps))
        for asked, answer in self._answers(waiting):
            if isinstance(answer, BaseException):
                gaps.append(_unread(asked.name, answer))
                yield from ((source, None) for source in find_sources(asked.order.shared, gaps))
                continue
            logs = [file for file in answer if file.reading.byte_count]
            size = sum(file.reading.byte_count for file in logs)
            files_count, bytes_count = files_count + len(logs), bytes_count + size
            if len(alive) <= _SHOWN_COUNT:
                self._tell(
                    plural(
                        "{node}: {n} file, {size:bytes} (clock {offset:+.0f} ms)",
                        "{node}: {n} files, {size:bytes} (clock {offset:+.0f} ms)",
                        len(logs),
                        node=asked.name,
                        size=size,
                        offset=asked.offset_s * 1000,
                    )
                )
            for file in answer:
                if file.reading.byte_count:
                    yield _source_of(file, asked.offset_s)
                else:
                    gaps.extend(file.reading.gaps)
        if len(alive) > _SHOWN_COUNT:
            every = say(
                "{nodes} nodes: {files} files, {size:bytes}", nodes=len(alive), files=files_count, size=bytes_count
            )
            self._tell(every)

    def _answers(self, waiting: dict[Any, _Asked]) -> Iterator[tuple[_Asked, list[FileRead] | BaseException]]:
        """What each node read, as soon as it did, or why it did not."""
        while waiting:
            ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=_LOOK_S)
            if not ready:
                left = {row["NodeID"] for row in self._ray.nodes() if row.get("Alive")}
                ready = [ref for ref, asked in waiting.items() if asked.node_id not in left]
            for ref in ready:
                asked = waiting.pop(ref)
                try:
                    yield asked, self._ray.get(ref, timeout=_LOOK_S)
                except self._failures as error:
                    yield asked, error

    def _ask(self, rows: list[dict[str, Any]], gaps: list[Gap], window: Window) -> dict[Any, _Asked]:
        """Has every node read what no other reads; its answer to come -> the node."""
        shared = [file for url in self._shared for file in find_remote(url)]
        actors = [(row, ray_nodes.start_actor(self._ray, NodeLogs, row["NodeID"])) for row in rows]
        looks = [(row, actor, actor.look.remote()) for row, actor in actors]
        until = time.monotonic() + _START_S
        found: list[tuple[dict[str, Any], Any, NodePlace, float]] = []
        for row, actor, look in looks:
            try:
                place = self._ray.get(look, timeout=max(until - time.monotonic(), 1.0))
                found.append((row, actor, place, ray_nodes.measure_offset(self._ray, actor)))
            except self._failures as error:
                gaps.append(_unread(ray_nodes.name_of(row), error))
        began_s: dict[str, float] = {}
        for _, _, place, _ in found:
            began_s[place.machine] = min(place.began_s, began_s.get(place.machine, place.began_s))
        shares = deal(shared, len(found)) if found else []
        raylets = Counter(place.machine for _, _, place, _ in found)
        folders: set[tuple[str, int, int]] = set()
        waiting: dict[Any, _Asked] = {}
        for (row, actor, place, offset_s), share in zip(found, shares):
            key = (place.machine, place.device, place.inode)
            order = NodeOrder(
                node=ray_nodes.name_of(row),
                host=_address(row),
                folder=place.folder if key not in folders else None,
                kernel_since_s=began_s.pop(place.machine, None),
                shared=share,
                window=window.moved(offset_s),
                utc_offset_s=place.utc_offset_s,
                cores=max(place.cores // raylets[place.machine], 1),
                most_events=share_of_events(len(found)),
            )
            folders.add(key)
            waiting[actor.read.remote(order)] = _Asked(order.node, row["NodeID"], offset_s, order)
            self._actors.append(actor)
        return waiting

    def missing(self, events: list[Event]) -> Iterator[Gap]:
        """A gap for each node that is gone, with what the others' logs say of it."""
        for row, reason in self._gone:
            address, name = _address(row), ray_nodes.name_of(row)
            names = [re.escape(row["NodeID"])]
            if address not in self._alive:  # else it may be another raylet's, or one that took its place
                names.append(rf"(?<![\d.]){re.escape(address)}(?![\d.])")
            named = re.compile("|".join(names))
            lines = [e for e in events if not e.origin.file.startswith(f"{name}/") and named.search(e.text)]
            said = (
                plural(
                    "{n} line of other nodes names it, the last at {place}",
                    "{n} lines of other nodes name it, the last at {place}",
                    len(lines),
                    place=str(lines[-1].origin),
                )
                if lines
                else say("no line of another node names it")
            )
            why = say("gone ({reason}); its logs were not read: they are on its disk. {said}", reason=reason, said=said)
            yield Gap(what=say("node {address}", address=name), why=why)


def share_of_events(nodes_count: int) -> int:
    """How many events each of so many nodes may send."""
    return max(_MOST_EVENTS // nodes_count, _LEAST_EVENTS)


def deal(files: Sequence[RemoteFile], count: int) -> list[tuple[str, ...]]:
    """The names of files in `count` shares of about the same size, the largest files first."""
    shares: list[list[str]] = [[] for _ in range(count)]
    heap = [(0, number) for number in range(count)]
    for file in sorted(files, key=lambda file: -(file.size_bytes or 0)):
        size, number = heapq.heappop(heap)
        shares[number].append(file.name)
        heapq.heappush(heap, (size + (file.size_bytes or 0), number))
    return [tuple(share) for share in shares]


def _address(row: dict[str, Any]) -> str:
    return str(row.get("NodeManagerAddress") or "?")


def _reason(row: dict[str, Any]) -> Message:
    """Ray's own words for the end of a node."""
    text = str(row.get("DeathReasonMessage") or row.get("DeathReason") or "")
    return quoted(shortened(text, 200)) if text else say("Ray does not say why")


def _unread(name: str, error: BaseException) -> Gap:
    why = say("its logs were not read: {why}", why=ray_nodes.first_line(error))
    return Gap(what=say("node {address}", address=name), why=why)


def _source_of(file: FileRead, offset_s: float) -> tuple[Source, Reading | None]:
    """As a session takes it; times of events are those of our clock."""
    source, reading = file.as_source()
    if reading is not None and offset_s:
        events = [
            event if event.time is None else replace(event, time=event.time - offset_s) for event in reading.events
        ]
        reading = replace(reading, events=events)
    return source, reading
