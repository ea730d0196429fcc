"""`doctor watch --ray`: one recorder per node, started by a Ray actor; their traces are copied back incrementally.

Ray is the engine: node affinity places the actors, the object store carries the bytes. An actor only
starts the recorder (which detaches from it and outlives actor and raylet) and hands over what was
written. What a node wrote before it was lost is here already; the rest is fetched when it comes back.

    DIR/000001.trace          the cluster's own events: nodes found, lost, back
    DIR/nodes/<node>/         run.json, trace and logs of one node, with its clock offset
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rlhfdoctor import ray_nodes
from rlhfdoctor.errors import DoctorError, UsageError
from rlhfdoctor.files import write
from rlhfdoctor.i18n.message import Message, joined, quoted, say
from rlhfdoctor.record.command import WatchOptions, find_ray_pids
from rlhfdoctor.record.command import watch as watch_here
from rlhfdoctor.record.lines import teller
from rlhfdoctor.record.node_recorder import NodeRecorder, read_files
from rlhfdoctor.record.phrasing import say_event, say_line
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.run_folder import make_folder
from rlhfdoctor.record.start import describe_run
from rlhfdoctor.record.state import State
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.record import RecordEvent, is_a, make_record, said, time_of
from rlhfdoctor.trace.store import Writer
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record

_COLLECT_S = 2.0
_LOOK_S = 10.0
_PATIENCE_S = 15.0
"""A node that does not answer for this long counts as lost."""
_LINE_S = 30.0
_MOST_AGENTS = 20


@dataclass(slots=True)
class Node:
    """One node as the collector sees it."""

    name: str
    node_id: str
    address: str
    actor: Any
    folder: Path
    """Here."""
    remote: str = ""
    """There."""
    host: str = ""
    offsets: dict[str, int] = field(default_factory=dict)
    pending: Any = None
    asked_s: float = 0.0
    lost: bool = False
    follower: Follower | None = None
    state: State = field(default_factory=State)
    reported_ns: int = 0
    agents_count: int = 0


class Collector:
    """Keeps a recorder on every node and copies what they write to this machine."""

    def __init__(self, ray: Any, folder: Path, options: WatchOptions) -> None:
        """`ray` is connected already."""
        self.ray, self.folder, self.options = ray, folder, options
        self.failures = ray_nodes.failures(ray)
        self.nodes: dict[str, Node] = {}
        self.store = Writer(
            str(folder), {"run": folder.name, "node": "cluster", "host": os.uname().nodename, "pid": os.getpid()}
        )
        self._looked_s = -1e9

    def emit(self, kind: Record, fields: RecordEvent) -> None:
        """Stores an event of the cluster."""
        self.store.event(make_record(kind, fields))

    def look(self) -> list[Message]:
        """Starts recorders on nodes that are new or back; what happened, as lines."""
        self._looked_s = time.monotonic()
        lines = []
        alive = {n["NodeID"]: n for n in self.ray.nodes() if n.get("Alive")}
        for node_id, row in alive.items():
            if node_id not in self.nodes:
                lines.append(self._start(node_id, row))
        for node in self.nodes.values():
            if not node.lost and node.node_id not in alive:
                lines.append(self._lose(node, say("Ray says that it is dead")))
        return lines

    def _start(self, node_id: str, row: dict[str, Any]) -> Message:
        name, address = ray_nodes.name_of(row), str(row.get("NodeManagerAddress") or "?")
        before = [n for n in self.nodes.values() if n.address == address and n.lost]
        actor = ray_nodes.start_actor(self.ray, NodeRecorder, node_id)
        node = Node(name, node_id, address, actor, self.folder / "nodes" / name)
        self.nodes[node_id] = node
        try:
            offset = ray_nodes.measure_offset(self.ray, actor)
            started = self.ray.get(
                actor.start.remote(self.folder.name, name, self.options.interval_s, self.options.alert_at_s, offset),
                timeout=60,
            )
        except self.failures as error:  # whatever Ray raises: this node has no recorder, the others go on
            node.lost = True
            why = quoted(ray_nodes.first_line(error))
            self.emit(RECORD.note.gap, said({R.what: say("recorder on {node}", node=name), R.why: why}))
            return say("no recorder on {node}: {why}", node=name, why=why)
        node.remote, node.host = started["folder"], started["host"]
        node.folder.mkdir(parents=True, exist_ok=True)
        node.follower = Follower(str(node.folder))
        self.emit(
            RECORD.node.back if before else RECORD.node.found,
            {R.node: name, R.raylet: started["raylet"], R.clock_offset_s: offset},
        )
        for old in before:
            self._fetch_rest(old, actor)
        return say(
            "recording on {node} (raylet {pid}, clock {offset:+.0f} ms)",
            node=name,
            pid=started["raylet"],
            offset=offset * 1000,
        )

    def _replace(self, node: Node, why: str) -> Message:
        """The agent is gone (Ray's memory monitor takes the newest first); the recorder and its folder are still there.

        If the node is gone too, the new agent never answers, and the node counts as lost after a while.
        """
        node.agents_count += 1
        alive = any(n["NodeID"] == node.node_id and n.get("Alive") for n in self.ray.nodes())
        if not alive or node.agents_count > _MOST_AGENTS:
            return self._lose(node, quoted(why))
        node.actor = ray_nodes.start_actor(self.ray, NodeRecorder, node.node_id)
        self.emit(RECORD.courier.lost, {R.node: node.name, R.why: why})
        return say(
            "the courier on {node} is gone ({why}); the recorder goes on, and another courier was sent",
            node=node.name,
            why=why,
        )

    def collect(self) -> list[Message]:
        """One round: new bytes of every node; what happened, as lines."""
        lines = self.look() if time.monotonic() - self._looked_s >= _LOOK_S else []
        now = time.monotonic()
        for node in self.nodes.values():
            if not node.lost and node.pending is None:
                node.pending, node.asked_s = node.actor.read.remote(node.remote, node.offsets), now
        waiting = {node.pending: node for node in self.nodes.values() if node.pending is not None}
        ready, _ = self.ray.wait(list(waiting), num_returns=len(waiting), timeout=_COLLECT_S) if waiting else ([], [])
        for ref, node in waiting.items():
            if ref in ready:
                node.pending = None
                try:
                    self._keep(node, self.ray.get(ref))
                except self.failures as error:  # the actor died: with its worker, its raylet or its node
                    lines.append(self._replace(node, ray_nodes.first_line(error)))
            elif now - node.asked_s > _PATIENCE_S:
                lines.append(self._lose(node, say("it did not answer for {waited:s}", waited=_PATIENCE_S)))
        for node in self.nodes.values():
            if node.follower is not None:
                for item, columns in node.follower.read():
                    node.state.take(item, columns)
                lines.extend(self._news(node))
        return lines

    def _news(self, node: Node) -> list[Message]:
        """Events of a node that are shown to the user: alerts, kills, gaps."""
        fresh = [event for event in node.state.events if time_of(event) > node.reported_ns]
        node.reported_ns = max([node.reported_ns, *(time_of(event) for event in fresh)])
        return [
            joined(quoted(node.name), says, by=": ")
            for event in fresh
            if (says := say_event(event)[0]) and not is_a(event, RECORD.ray.node)
        ]

    def _keep(self, node: Node, pieces: dict[str, tuple[int, bytes]]) -> None:
        for name, (start, data) in pieces.items():
            path = node.folder / name
            if ".." in path.parts or not path.is_relative_to(node.folder):
                continue  # a node names files of its own folder only
            write.make_folder(path.parent)
            with os.fdopen(write.append(path, real=True), "wb", 0) as file:
                file.truncate(start)
                write.write_all(file.fileno(), data)
            node.offsets[name] = start + len(data)

    def _lose(self, node: Node, why: Message) -> Message:
        node.lost, node.pending = True, None
        self.emit(RECORD.node.lost, {R.node: node.name, **said({R.why: why})})
        if node.host == os.uname().nodename and Path(node.remote).is_dir():  # on this machine its folder is still there
            self._keep(node, read_files(node.remote, node.offsets))
        return say("node {node} is lost: {why}", node=node.name, why=why)

    def _fetch_rest(self, old: Node, actor: Any) -> None:
        """A node is back with its disk: what its earlier recorder wrote after we lost it."""
        try:
            self._keep(old, self.ray.get(actor.read.remote(old.remote, old.offsets), timeout=60))
        except self.failures as error:  # its disk is new: only what was copied before is available
            why = quoted(ray_nodes.first_line(error))
            self.emit(RECORD.note.gap, said({R.what: say("rest of {node}", node=old.name), R.why: why}))

    def finish(self) -> None:
        """Stops the recorders and copies the rest, as far as Ray still works."""
        for node in self.nodes.values():
            if node.lost:
                if node.host == os.uname().nodename and Path(node.remote).is_dir():
                    self._keep(node, read_files(node.remote, node.offsets))
                continue
            try:
                self.ray.get(node.actor.stop.remote(node.remote), timeout=10)
                time.sleep(0.5)
                while pieces := self.ray.get(node.actor.read.remote(node.remote, node.offsets), timeout=30):
                    self._keep(node, pieces)
                self.ray.get(node.actor.clean.remote(node.remote), timeout=10)
            except self.failures as error:  # the cluster is going down
                why = quoted(ray_nodes.first_line(error))
                self.emit(RECORD.note.gap, said({R.what: say("last samples of {node}", node=node.name), R.why: why}))
        self.emit(RECORD.recorder.end, said({R.why: say("the cluster's run ended")}))
        self.store.close()

    def alive(self) -> bool:
        """Whether there is a node left to watch."""
        return any(not node.lost for node in self.nodes.values())


def watch_ray(options: WatchOptions, address: str, verdict: Callable[[Path, bool], int]) -> int:
    """Records a Ray cluster until it ends or Ctrl-C; the exit status.

    Raises:
        UsageError: no cluster there, or Ray is not installed and no raylet runs here.
    """
    if options.command or options.pids or options.cgroup:
        raise UsageError(say("--ray stands alone: it follows everything below the raylets"))
    if options.attach or options.alert_command or options.notify or options.port is not None or options.metrics:
        raise UsageError(say("--ray does not take --attach, --alert-command, --notify, --metrics-port or --engine yet"))
    tell = teller(options.language)
    if find_spec("ray") is None:
        pids = find_ray_pids()
        if not pids:
            raise UsageError(say("--ray: the ray package is not installed beside the doctor, and no raylet runs here"))
        tell(say("the ray package is not installed beside the doctor: only this node is recorded"))
        return watch_here(WatchOptions(**{**asdict(options), "pids": tuple(pids)}), verdict)
    ray = ray_nodes.connect(address)
    folder = make_folder(options.out, "ray")
    describe_run(folder, RecorderConfig(name="ray", node="cluster"), argv=[])
    return run_collector(Collector(ray, folder, options), verdict)


def run_collector(collector: Collector, verdict: Callable[[Path, bool], int]) -> int:
    """Collects until the cluster is gone or the user stops it, then reports what happened."""
    reported_s = time.monotonic()
    tell = teller(collector.options.language)
    tell(say("recording the cluster to {folder}; Ctrl-C ends it", folder=str(collector.folder)))
    before = signal.signal(signal.SIGTERM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    try:
        while True:
            for line in collector.collect():
                tell(line)
            if not collector.alive():
                break
            if time.monotonic() - reported_s > _LINE_S:
                reported_s = time.monotonic()
                for node in collector.nodes.values():
                    name = say("{node} (lost)", node=node.name) if node.lost else quoted(node.name)
                    tell(joined(name, say_line(node.state), by=": "))
            time.sleep(_COLLECT_S)
    except KeyboardInterrupt:
        tell(say("stopping the recorders"))
    except (DoctorError, OSError, RuntimeError) as error:
        tell(say("the cluster does not answer any more ({error})", error=ray_nodes.first_line(error)))
    finally:
        signal.signal(signal.SIGTERM, before)
        collector.finish()
    sys.stderr.flush()
    return verdict(collector.folder, False)
