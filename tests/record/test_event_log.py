"""Each segment can be read alone: it names every process that is still followed."""

from __future__ import annotations

from pathlib import Path

from rlhfdoctor.record.activity import Activity
from rlhfdoctor.record.event_log import EventLog
from rlhfdoctor.record.followed import Followed
from rlhfdoctor.record.job import Job
from rlhfdoctor.record.machine import Machine
from rlhfdoctor.record.target import Target
from rlhfdoctor.trace.read import read_node
from rlhfdoctor.vocabulary import RECORD
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from tests.fake_tree import FakeTree


def test_a_later_segment_names_what_is_still_followed(tmp_path: Path) -> None:
    """With the title of then and the time of its first sight; a process that has gone is not named."""
    tree, folder = FakeTree(tmp_path / "node"), tmp_path / "run"
    folder.mkdir()
    for pid, parent in ((7, 1), (8, 7), (9, 7)):
        tree.add_process(pid, parent)
    target, log = Target(tree.root, pids=[7]), EventLog(str(folder), {"run": "x"})
    machine = Machine(target, log.emit, tree.root)
    followed = Followed(target, machine, Activity(str(folder), target, log.emit), Job(log.emit, set()), log)
    followed.sweep(1, 1.0, every=True)
    first = {event[R.pid]: event for event in read_node(folder).events if event.get(R.kind) == RECORD.process.seen}
    tree.write("proc/8/cmdline", b"ray::Actor.train --hf_token=hf_abcdefghijklmnop1234\0")
    tree.end_process(9)
    for process in followed.sweep(2, 1.0, every=True):
        followed.drop(process)
    followed.look_closer()
    log.store._segment_bytes = 0
    log.store.sample(2, 2, {})
    (folder / "000001.trace").unlink()
    named = {event[R.pid]: event for event in read_node(folder).events if event.get(R.kind) == RECORD.process.seen}
    assert set(named) == {7, 8}
    assert (named[8][R.command], named[8][R.name]) == ("ray::Actor.train --hf_token=[secret]",) * 2
    assert "hf_abc" not in str(named)
    assert [named[pid][R.wall_ns] for pid in (7, 8)] == [first[pid][R.wall_ns] for pid in (7, 8)]
    assert {R.start_ticks, R.ppid} <= named[8].keys()


def test_a_later_segment_does_not_name_what_is_gone(tmp_path: Path) -> None:
    """A cgroup and a limit that were forgotten, as of a task that has ended."""
    log = EventLog(str(tmp_path), {"run": "x"})
    for uid in (1, 2):
        log.emit(RECORD.cgroup.seen, {R.uid: uid, R.path: f"/c{uid}", R.name: f"/c{uid}", R.version: 1, R.own: True})
    log.forget(RECORD.cgroup.seen, [1, 7])
    log.store._segment_bytes = 0
    log.store.sample(2, 2, {})
    (tmp_path / "000001.trace").unlink()
    assert [event[R.uid] for event in read_node(tmp_path).events] == [2]
