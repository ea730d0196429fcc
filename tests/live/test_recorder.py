"""The recorder as a process: what it wrote is readable however it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rlhfdoctor.errors import UsageError
from rlhfdoctor.record.recorder_config import RecorderConfig
from rlhfdoctor.record.start import restarted, start_recorder
from rlhfdoctor.trace.follow import Follower
from rlhfdoctor.trace.frames import Sample
from rlhfdoctor.trace.node import NodeTrace
from rlhfdoctor.trace.read import read_node
from tests.bench.survive import MEMORY, Outcome, kill_at, kill_by_kernel, limited, running, sequences
from tests.trace.build import fill, kinds, mount, segments

KILLS = 40
CGROUP = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a memory cgroup"),
    pytest.mark.skipif(not (MEMORY / "memory.limit_in_bytes").exists(), reason="needs the cgroup v1 memory controller"),
]


def kill_often(folder: Path) -> list[Outcome]:
    """Recorders that are killed at moments spread over their first 0.7 seconds, four at a time."""
    chance = random.Random(11)
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(kill_at, chance.uniform(0.0, 0.7), folder / str(index)) for index in range(KILLS)]
        return [job.result() for job in jobs]


def start(folder: Path, *command: str, interval_s: float = 0.05) -> subprocess.Popen[bytes]:
    """A recorder of a command."""
    (folder / "marks").mkdir(parents=True)
    return start_recorder(folder, RecorderConfig(name="test", command=command, interval_s=interval_s))


def wait_for_samples(folder: Path, count: int, follower: Follower | None = None) -> list[int]:
    """Waits until a follower has seen so many samples more, or half a minute; their times."""
    seen: list[int] = []
    follower, end = follower or Follower(str(folder)), time.monotonic() + 30
    while len(seen) < count and time.monotonic() < end:
        seen += [item.wall_ns for item, _ in follower.read() if isinstance(item, Sample)]
        time.sleep(0.01)
    return seen


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 256 KiB."""
    yield from mount(tmp_path / "small", "-t", "tmpfs", "-o", "size=256k", "tmpfs")


def job_of(node: NodeTrace) -> int:
    """The pid of the recorded command."""
    return next(int(event["pid"]) for event in node.events if event["kind"] == "job.started")


def last_word(node: NodeTrace) -> str:
    """Why the recorder ended."""
    return str(next(event["why"] for event in node.events if event["kind"] == "recorder.end"))


def test_killed_at_any_moment(tmp_path: Path) -> None:
    """After kill -9 at any moment the trace is readable and at most one sample is lost."""
    found = kill_often(tmp_path)
    assert ([outcome.readable for outcome in found], max(outcome.lost for outcome in found) <= 1) == (
        [True] * KILLS,
        True,
    )
    assert sum(outcome.samples for outcome in found) > KILLS


@pytest.mark.usefixtures("kernel_alone")
@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize(
    "together", [pytest.param(False, marks=CGROUP, id="job"), pytest.param(True, marks=CGROUP, id="both")]
)
def test_killed_by_the_kernel(tmp_path: Path, together: bool, number: int) -> None:
    """The kernel's OOM killer in the recorder's own cgroup leaves a trace that is whole up to the kill."""
    with limited(f"test-{together}-{number}") as cgroup:
        outcome = kill_by_kernel(tmp_path / "run", cgroup, together=together)
    assert (outcome.readable, outcome.survived, outcome.lost <= 1, outcome.samples > 3) == (
        True,
        not together,
        True,
        True,
    )


@pytest.mark.usefixtures("kernel_alone")
@pytest.mark.parametrize("number", [pytest.param(0, marks=CGROUP)])
def test_kill_is_on_record(tmp_path: Path, number: int) -> None:
    """The last samples before an OOM kill show the cgroup near its limit, and the kill is an event with its count."""
    with limited(f"record-{number}") as cgroup:
        kill_by_kernel(tmp_path / "run", cgroup, together=False, rest_bytes=250 << 20)
        level = str(cgroup)
    node = read_node(tmp_path / "run")
    used, most = node.tables["cgroup"].values["used_bytes"], 300 << 20
    assert (max(used) > most * 0.8, max(used) <= most) == (True, True)
    assert [event["count"] for event in node.events if event["kind"] == "oom_kill" and event["level"] == level] == [1]
    assert [event["code"] for event in node.events if event["kind"] == "job.exited"] == [-signal.SIGKILL]


def test_samples_are_numbered_without_a_gap(tmp_path: Path) -> None:
    """Of a command that ends by itself every sample is there, from the first one on."""
    assert start(tmp_path / "run", "sleep", "1").wait(timeout=30) == 0
    numbers = sequences(tmp_path / "run")
    assert (len(numbers) > 10, numbers) == (True, list(range(1, len(numbers) + 1)))


@pytest.mark.parametrize(
    ("command", "code"), [(("true",), 0), (("sh", "-c", "exit 7"), 7), (("sh", "-c", "kill -9 $$"), -9)]
)
def test_end_of_the_command(tmp_path: Path, command: tuple[str, ...], code: int) -> None:
    """The exit status of the command is on record, and why the recording is over."""
    assert start(tmp_path / "run", *command).wait(timeout=30) == 0
    node = read_node(tmp_path / "run")
    assert [event["code"] for event in node.events if event["kind"] == "job.exited"] == [code]
    assert (last_word(node), node.gaps) == ("the command ended", [])


def test_command_that_does_not_exist(tmp_path: Path) -> None:
    """A command that cannot be started is an exit with 127 and the reason."""
    assert start(tmp_path / "run", "/nowhere/train").wait(timeout=30) == 0
    events = [event for event in read_node(tmp_path / "run").events if event["kind"] == "job.exited"]
    assert [(event["code"], event["why"]) for event in events] == [(127, "/nowhere/train: No such file or directory")]


def test_asked_to_stop(tmp_path: Path) -> None:
    """SIGTERM ends the recorder with its last word, and the command lives on."""
    recorder = start(tmp_path / "run", "sleep", "20")
    wait_for_samples(tmp_path / "run", 3)
    recorder.terminate()
    assert recorder.wait(timeout=30) == 0
    node = read_node(tmp_path / "run")
    alive = running(job_of(node))
    os.kill(job_of(node), signal.SIGKILL)
    assert (last_word(node), alive) == ("asked to stop", True)


@pytest.mark.parametrize("sent", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT], ids=lambda sent: sent.name)
def test_signals_of_a_terminal(tmp_path: Path, sent: signal.Signals) -> None:
    """A closed terminal or Ctrl-C does not end the recorder."""
    recorder = start(tmp_path / "run", "sleep", "1")
    wait_for_samples(tmp_path / "run", 3)
    recorder.send_signal(sent)
    assert recorder.wait(timeout=30) == 0
    assert last_word(read_node(tmp_path / "run")) == "the command ended"


def test_command_outlives_its_killed_recorder(tmp_path: Path) -> None:
    """The recorded command goes on when the recorder is killed, and a new recorder goes on where that one ended."""
    recorder = start(tmp_path / "run", "sleep", "30")
    wait_for_samples(tmp_path / "run", 3)
    recorder.kill()
    recorder.wait()
    before = read_node(tmp_path / "run")
    job = job_of(before)
    alive = running(job)
    again = start_recorder(tmp_path / "run", restarted(RecorderConfig(name="test", interval_s=0.05), job))
    wait_for_samples(tmp_path / "run", len(before.times_ns) + 3)
    os.kill(job, signal.SIGKILL)
    assert (alive, again.wait(timeout=30)) == (True, 0)
    node = read_node(tmp_path / "run")
    assert ([path.name for path in segments(tmp_path / "run")], node.gaps) == (["000001.trace", "000002.trace"], [])
    assert (len(node.times_ns) >= len(before.times_ns) + 3, kinds(node).count("recorder.start")) == (True, 2)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, which alone has something to give up")
def test_privileges(tmp_path: Path) -> None:
    """The recorder gives up what it does not need; the command keeps all that we have, and both say so."""

    def capabilities(pid: int | str) -> int:
        return next(int(line.split()[1], 16) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("CapEff"))

    recorder = start(tmp_path / "run", "sleep", "30")
    wait_for_samples(tmp_path / "run", 2)
    node = read_node(tmp_path / "run")
    job = job_of(node)
    found = (capabilities(recorder.pid), capabilities(job))
    recorder.terminate()
    os.kill(job, signal.SIGKILL)
    assert recorder.wait(timeout=30) == 0
    kept = next(event["capabilities"] for event in node.events if event["kind"] == "recorder.start")
    needed = 1 << 2 | 1 << 14 | 1 << 19 | 1 << 24 | 1 << 34
    assert found == (capabilities("self") & needed, capabilities("self"))
    assert ("sys_admin" in kept, "sys_ptrace" in kept) == (False, bool(capabilities("self") & 1 << 19))


def test_second_recorder(tmp_path: Path) -> None:
    """A second recorder in the same folder does not start, and says why; the first one goes on."""
    recorder = start(tmp_path / "run", "sleep", "2")
    with pytest.raises(UsageError, match="another recorder is writing here"):
        start_recorder(tmp_path / "run", RecorderConfig(name="second", pids=(os.getpid(),)))
    assert recorder.wait(timeout=30) == 0
    assert (last_word(read_node(tmp_path / "run")), len(segments(tmp_path / "run"))) == ("the command ended", 1)


def test_full_disk(small: Path) -> None:
    """While the disk is full the samples are seen in the recorder's memory; afterwards all of them are on it."""
    recorder, follower = start(small / "run", "sleep", "30"), Follower(str(small / "run"))
    seen = wait_for_samples(small / "run", 3, follower)
    filler = fill(small)
    seen += wait_for_samples(small / "run", 60, follower)
    in_memory = len(follower._rings())
    filler.unlink()
    recorder.terminate()
    assert recorder.wait(timeout=30) == 0
    node = read_node(small / "run")
    os.kill(job_of(node), signal.SIGKILL)
    told = [(event["why"], event["lost_count"]) for event in node.events if event["kind"] == "store.recovered"]
    assert (in_memory, told) == (1, [("No space left on device", 0)])
    assert (len(seen) >= 63, sorted(set(seen) - set(node.times_ns))) == (True, [])
