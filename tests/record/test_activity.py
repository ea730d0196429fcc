"""Signs of what the run does: marks of trainers, the probe, log lines, the kernel log, Ray's names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rlhfdoctor.record.activity import Activity
from rlhfdoctor.record.job_files import FilesRead
from rlhfdoctor.record.target import Target
from rlhfdoctor.record.wakeups import Notifier
from rlhfdoctor.trace.record import RecordEvent, StoredEvent
from rlhfdoctor.vocabulary import RECORD_FIELD as R
from rlhfdoctor.vocabulary.names import Record
from tests.fake_tree import FakeTree

KILL = "Memory cgroup out of memory: Killed process 8 (python) total-vm:9kB, anon-rss:8kB, file-rss:1kB"


class Desk:
    """Activity of a run whose processes 7 and 8 are followed; `events` are what it stored."""

    def __init__(self, folder: Path, kmsg: str | Path = "/nowhere/kmsg") -> None:
        tree = FakeTree(folder / "tree")
        tree.add_process(7)
        tree.add_process(8, 7)
        self.target = Target(tree.root, pids=[7])
        self.target.discover()
        self.events: list[StoredEvent] = []
        self.run = folder / "run"
        (self.run / "marks").mkdir(parents=True)
        self.activity = Activity(str(self.run), self.target, self.emit, str(kmsg))
        self.activity.aside.patience_s = 60.0
        self.notifier = Notifier()
        self.gaps = self.activity.start(self.notifier)
        self.tick = 0

    def emit(self, kind: Record, fields: RecordEvent) -> RecordEvent:
        """Keeps an event."""
        self.events.append({R.kind: kind, **fields})
        return self.events[-1]

    def write(self, *lines: object, pid: int = 7, folder: Path | None = None) -> None:
        """Lines of a process's marks; what is no text is written as JSON."""
        with ((folder or self.run / "marks") / f"{pid}.jsonl").open("a") as handle:
            handle.writelines(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)

    def read(self) -> list[dict[str, Any]]:
        """One tick; what is stored in it."""
        before = len(self.events)
        self.tick += 1
        list(self.activity.read(self.tick))
        return self.events[before:]

    def of(self, *lines: object, pid: int = 7) -> list[dict[str, Any]]:
        """What is stored of these lines."""
        self.write(*lines, pid=pid)
        return self.read()


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A run without a kernel log."""
    found = Desk(tmp_path)
    yield found
    found.notifier.close()


def test_marks(desk: Desk) -> None:
    """Each mark of a followed process is an event with its process, once."""
    lines = [
        {"step": 4, "at_ns": 11},
        {"phase": "rollout", "step": 4, "edge": "start", "role": "actor", "rank": 3, "at_ns": 12, "note": "x"},
        {"phase": "rollout", "edge": "end"},
    ]
    found = [event for event in desk.of(*lines, pid=8) if event["kind"] == "mark"]
    common = {"kind": "mark", "basis": "trainer", "pid": 8, "uid": 2}
    assert found == [
        {**common, "step": 4, "at_ns": 11},
        {**common, "phase": "rollout", "step": 4, "edge": "start", "role": "actor", "rank": 3, "at_ns": 12},
        {**common, "phase": "rollout", "edge": "end"},
    ]
    assert desk.read() == []


def test_marks_that_are_added(desk: Desk) -> None:
    """Only new lines are read, and an incomplete one when it is complete."""
    first = desk.of({"step": 1})
    with (desk.run / "marks" / "7.jsonl").open("a") as handle:
        handle.write('{"step": 2')
    half = desk.read()
    with (desk.run / "marks" / "7.jsonl").open("a") as handle:
        handle.write("2}\n")
    assert [[event["step"] for event in events] for events in (first, half, desk.read())] == [[1], [], [22]]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "{",
        "not json",
        "[1, 2]",
        "7",
        "null",
        '"step"',
        "{}",
        '{"phase": "lunch"}',
        '{"step": "one"}',
        '{"phase": null}',
        '{"phase": ["rollout"]}',
        "\x00\x01",
        '{"step": 1.5}',
        '{"at_ns": 1}',
    ],
)
def test_garbage(desk: Desk, line: str) -> None:
    """Lines that are no marks are passed over, and those behind them are read."""
    assert [event["step"] for event in desk.of(line, {"step": 5})] == [5]


def test_bytes_that_are_no_text(desk: Desk) -> None:
    """A line that is no UTF-8 takes no other along."""
    (desk.run / "marks" / "7.jsonl").write_bytes(b'\xff\xfe{"step": 1}\n{"step": 2}\n')
    assert [event["step"] for event in desk.read()] == [2]


def test_deep_brackets(desk: Desk) -> None:
    """A line of nothing but brackets is passed over."""
    assert [event["step"] for event in desk.of("[" * 100_000, {"step": 5})] == [5]


def test_endless_line(desk: Desk) -> None:
    """A line of more than 256 KiB is passed over within some ticks."""
    desk.write("x" * 300_000, {"step": 5})
    assert [event["step"] for event in [*desk.read(), *desk.read(), *desk.read()]] == [5]


@pytest.mark.parametrize("phase", [5, ["rollout"], "\x1b[31mlunch"])
def test_phase_beside_a_step(desk: Desk, phase: object) -> None:
    """An unknown phase is left out, also where the line has a step."""
    assert [event.get("phase") for event in desk.of({"step": 1, "phase": phase})] == [None]


@pytest.mark.parametrize("field", [{"at_ns": "now"}, {"at_ns": [1]}, {"step": "one"}, {"rank": {}}], ids=str)
def test_fields_of_the_wrong_type(desk: Desk, field: dict[str, object]) -> None:
    """A field that is no number where it has to be one is left out."""
    assert [set(event) & set(field) for event in desk.of({"phase": "rollout", **field})] == [set()]


@pytest.mark.parametrize("name", ["job.jsonl", "7.txt", "7", "seven.7.jsonl"])
def test_other_files(desk: Desk, name: str) -> None:
    """Only files that are named by a pid hold marks."""
    (desk.run / "marks" / name).write_text('{"step": 1}\n')
    assert desk.read() == []


def test_marks_of_strangers(desk: Desk) -> None:
    """Marks of a process that is not followed are not told."""
    assert desk.of({"step": 1}, pid=99) == []


def test_role(desk: Desk) -> None:
    """A role that a mark tells is the process's from then on; it is stored once."""
    line = {"phase": "update", "role": "critic"}
    found = [event for event in desk.of(line, line) if event["kind"] == "process.named"]
    assert [(event["uid"], event["pid"], event["role"], event["basis"]) for event in found] == [
        (1, 7, "critic", "probe")
    ]
    assert (desk.target.processes[7].role, desk.target.processes[7].basis) == ("critic", "probe")


def test_role_of_marks_module(desk: Desk) -> None:
    """What `marks.role` writes gives the process its role."""
    desk.of({"kind": "role", "role": "reward", "rank": 2, "step": -1})
    assert desk.target.processes[7].role == "reward"


def test_role_stays(desk: Desk) -> None:
    """A role from a mark outlasts a new title of the process."""
    desk.of({"step": 1, "role": "critic"})
    process = desk.target.processes[7]
    process.command = "ray::ActorModelRayActor.fit"
    desk.target.name(process)
    assert process.role == "critic"


@pytest.mark.parametrize("role", [7, None, ["actor"]])
def test_role_that_is_no_text(desk: Desk, role: object) -> None:
    """What is no text is no role."""
    before = desk.target.processes[7].role
    desk.of({"step": 1, "role": role})
    assert desk.target.processes[7].role == before


def test_long_role(desk: Desk) -> None:
    """A role has at most forty characters."""
    desk.of({"step": 1, "role": "r" * 100})
    assert desk.target.processes[7].role == "r" * 39 + "…"


def test_probe(desk: Desk) -> None:
    """What a probe said last is kept by pid, and its role is the process's; it is no mark."""
    events = desk.of({"kind": "probe", "cuda_peak_bytes": 5}, {"kind": "probe", "cuda_peak_bytes": 9, "role": "actor"})
    assert ([event["kind"] for event in events], desk.target.processes[7].role) == (["process.named"], "actor")
    assert {pid: row["cuda_peak_bytes"] for pid, row in desk.activity.probes.items()} == {7: 9}


@pytest.mark.parametrize("value", ["many", [], 1e400, None, 10**30], ids=str)
def test_probe_with_garbage(desk: Desk, value: object) -> None:
    """What cannot be stored as a number is no figure of a probe."""
    desk.of({"kind": "probe", "cuda_peak_bytes": value})
    assert desk.activity.probes.get(7, {}).get("cuda_peak_bytes") is None


def test_snapshot(desk: Desk) -> None:
    """What lines of code hold the GPU is an event of the trace, without a secret and without a control character."""
    frames = [{"frame": "a/train.py:7 loss\x1b[2J", "bytes": 900, "count": 1}, {"frame": "key hf_abcdefghijklmnop", "bytes": 5}]
    (event,) = desk.of({"kind": "snapshot", "why": "out of memory", "held_bytes": 905, "asked_bytes": "x", "frames": frames})
    assert event.pop("kind") == "process.snapshot"
    assert (event["pid"], event["why"], event["held_bytes"], event["sizes"]) == (7, "out of memory", 905, [900, 5])
    assert "asked_bytes" not in event and "hf_abc" not in str(event["lines"]) and "\x1b" not in str(event["lines"])


@pytest.mark.parametrize(
    "frames", [None, "x", 7, [], [7], [{}], [{"frame": 7, "bytes": 7}], [{"frame": "x", "bytes": 1 << 70}], {"frame": "x"}]
)
def test_snapshot_without_a_line(desk: Desk, frames: object) -> None:
    """A snapshot that names no line with its size is dropped."""
    assert desk.of({"kind": "snapshot", "frames": frames}) == []


def test_snapshot_with_many_lines(desk: Desk) -> None:
    """Twenty are kept."""
    (event,) = desk.of({"kind": "snapshot", "frames": [{"frame": "x" * 999, "bytes": 1}] * 200})
    assert (len(event["lines"]), {len(line) for line in event["lines"]}) == (20, {120})


def log(desk: Desk, text: str, name: str = "job.log") -> list[dict[str, Any]]:
    """What is stored of text that the job wrote."""
    with (desk.run / "logs" / name).open("a") as handle:
        handle.write(text)
    return desk.read()


@pytest.mark.parametrize("name", ["job.log", "job.out.log", "job.err.log"])
def test_log_lines(desk: Desk, name: str) -> None:
    """Lines of the job's own output tell step and phase; only changes are stored."""
    events = log(desk, "step:1 - a\nstep:1 - b\ntraining_step\ntraining_step\nmake_experience\nstep:2 - a\n", name)
    assert [(event.get("step"), event.get("phase"), event["basis"], event["file"]) for event in events] == [
        (1, None, "log line", name),
        (None, "update", "log line", name),
        (None, "rollout", "log line", name),
        (2, None, "log line", name),
    ]


def test_last_lines(desk: Desk) -> None:
    """At the end everything that was written last is read, and what could not be read is a gap."""
    (desk.run / "logs" / "job.log").write_text("step:3 - a\n")
    desk.write({"phase": "eval"})
    desk.activity.files.tailer.failed.add("worker.out: Permission denied")
    desk.activity.finish()
    found = [(event["kind"], event.get("step"), event.get("phase"), event.get("why")) for event in desk.events]
    assert found == [
        ("mark", 3, None, None),
        ("mark", None, "eval", None),
        ("gap", None, None, "worker.out: Permission denied"),
    ]


def test_no_kernel_log(desk: Desk) -> None:
    """A kernel log that cannot be read is a gap, and nothing else changes."""
    assert [(str(gap.what), str(gap.why)) for gap in desk.gaps] == [
        ("kernel log", "No such file or directory: kills are known by the kernel's counters only")
    ]
    assert (desk.read(), (desk.run / "logs" / "kernel.log").exists()) == ([], False)


def test_kernel_log_without_an_end(tmp_path: Path) -> None:
    """What cannot be opened at its end, such as a pipe, is no kernel log."""
    os.mkfifo(tmp_path / "kmsg")
    desk = Desk(tmp_path, tmp_path / "kmsg")
    assert [str(gap.why) for gap in desk.gaps] == ["Illegal seek: kills are known by the kernel's counters only"]


@pytest.fixture
def kernel(tmp_path: Path) -> Callable[..., tuple[list[dict[str, Any]], str]]:
    """Writes records one by one into a kernel log of our own; what is stored, and the copy."""
    (tmp_path / "kmsg").write_text("4,1,1,-;Killed process 7 (before our time)\n")

    def write(*lines: str) -> tuple[list[dict[str, Any]], str]:
        desk = Desk(tmp_path, tmp_path / "kmsg")
        for number, line in enumerate(lines):
            with (tmp_path / "kmsg").open("a") as handle:
                handle.write(f"4,{number},12345678,-;{line}\n")
            desk.read()
        copy = desk.run / "logs" / "kernel.log"
        return desk.events, copy.read_text() if copy.exists() else ""

    return write


CHOICE = "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg=/a,task=python,pid=7,uid=0"


def test_kernel_log(kernel: Callable[..., tuple[list[dict[str, Any]], str]]) -> None:
    """New kernel lines are copied with their time, and those of a kill are events; older ones are not read."""
    events, copy = kernel("eth0: link is up", CHOICE, KILL)
    lines = copy.splitlines()
    assert [line.partition("+00:00 ")[2] for line in lines] == ["eth0: link is up", CHOICE, KILL]
    assert [(event["kind"], event["text"], event["pid"]) for event in events] == [
        ("kernel.line", lines[2], 8),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "Memory cgroup stats for /x/Killed process 8 (python): cache:0KB",
        "Memory cgroup stats for /Out of memory: Killed process 8 (python)",
        "Out of memory: Killed process 88888888888888888888888 (x) total-vm:1kB",
        CHOICE,
    ],
)
def test_a_line_that_quotes_is_no_kill(kernel: Callable[..., tuple[list[dict[str, Any]], str]], line: str) -> None:
    """A cgroup's path is its user's, and no pid has so many digits."""
    assert kernel(line)[0] == []


@pytest.mark.parametrize(("host_pids", "kind"), [(True, "kernel.other"), (False, "kernel.line")])
def test_kill_of_a_stranger(
    kernel: Callable[..., tuple[list[dict[str, Any]], str]], monkeypatch: pytest.MonkeyPatch, host_pids: bool, kind: str
) -> None:
    """The kill of a process that was never followed is another job's, where the kernel's pids are ours."""
    monkeypatch.setattr("rlhfdoctor.record.activity.has_host_pids", lambda: host_pids)
    events, _ = kernel(KILL.replace("process 8", "process 42"))
    assert [(event["kind"], event["pid"]) for event in events] == [(kind, 42)]


def test_long_kernel_line(kernel: Callable[..., tuple[list[dict[str, Any]], str]]) -> None:
    """An event holds the beginning of a long line."""
    events, _ = kernel(f"Killed process 7 ({'x' * 2000})")
    assert [len(event["text"]) for event in events] == [1000]


@pytest.mark.live
@pytest.mark.skipif(not os.access("/dev/kmsg", os.R_OK | os.W_OK), reason="needs the right to write to the kernel log")
def test_real_kernel_log(tmp_path: Path) -> None:
    """A line that the kernel logs now is in the copy."""
    desk, text = Desk(tmp_path, "/dev/kmsg"), f"rlhfdoctor: a test says hello ({os.getpid()})"
    Path("/dev/kmsg").write_text(f"<6>{text}\n")
    desk.read()
    assert text in (desk.run / "logs" / "kernel.log").read_text()


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[..., int]]:
    """Starts a process under another name that sleeps; its pid."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*argv: str, **environment: str) -> int:
        line = [argv[0], "-c", "import time; time.sleep(60)", *argv[1:]]
        started.append(subprocess.Popen(line, executable=sys.executable, env=environment))
        while environment and not Path(f"/proc/{started[-1].pid}/environ").read_bytes():
            pass  # Popen returns when the descriptors are closed, before the new program has its environment
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


def meet(desk: Desk, pid: int) -> None:
    """Follows a real process."""
    desk.target = desk.activity._target = desk.activity._marks._target = desk.activity._mark_files._target = Target("", pids=[pid])
    for process in desk.target.discover():
        desk.activity.add_process(process)


def test_folder_of_marks(desk: Desk, tmp_path: Path, child: Callable[..., int]) -> None:
    """A process that was started with a folder for marks is read there."""
    pid = child("python", RLHFDOCTOR_MARKS=str(tmp_path / "own"))
    meet(desk, pid)
    (tmp_path / "own").mkdir()
    desk.write({"step": 9}, pid=pid, folder=tmp_path / "own")
    assert [(event["step"], event["pid"], event["uid"]) for event in desk.read()] == [(9, pid, 1)]


@pytest.mark.parametrize(("empty", "steps"), [(1, [9]), (3, [9]), (4, [])])
def test_environment_of_a_program_that_is_just_starting(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, empty: int, steps: list[int]
) -> None:
    """Right behind exec a process has an empty environment for a moment: it is read again, some times."""
    answers = [b""] * empty + [f"A=1\0RLHFDOCTOR_MARKS={tmp_path / 'own'}\0".encode()]
    monkeypatch.setattr("rlhfdoctor.record.activity.read_file", lambda path, most=0: answers.pop(0))
    (tmp_path / "own").mkdir()
    desk.write({"step": 9}, folder=tmp_path / "own")
    desk.activity.add_process(next(iter(desk.target.processes.values())))
    assert [event["step"] for _ in range(3) for event in desk.read()] == steps


def test_raylet(desk: Desk, tmp_path: Path, child: Callable[..., int]) -> None:
    """A raylet's command line leads to its session: the node is stored, workers have names, their logs are copied."""
    session = tmp_path / "session_1"
    (session / "logs").mkdir(parents=True)
    (session / "logs" / "worker-a-01000000-8.out").write_text(
        ":job_id:01000000\n:actor_name:ActorModelRayActor\nstep:6 - a\n"
    )
    pid = child("/opt/raylet", f"--session_dir={session}", "--node_ip_address=10.0.0.4", "--object_store_memory=9")
    meet(desk, pid)
    assert desk.events == [
        {"kind": "ray.node", "pid": pid, "session": str(session), "address": "10.0.0.4", "store_bytes": 9}
    ]
    assert [event["step"] for event in desk.read()] == [6]
    assert (desk.activity.names, (desk.run / "logs" / "ray" / "worker-a-01000000-8.out").exists()) == (
        {8: "ActorModelRayActor"},
        True,
    )


@pytest.mark.parametrize("same", [True, False], ids=["one file", "two files"])
def test_output_of_an_attached_process(tmp_path: Path, same: bool) -> None:
    """The files behind its standard output and error are followed; no pipe, no deleted file, nothing twice."""
    out, err = tmp_path / "job.out", tmp_path / ("job.out" if same else "job.err")
    with out.open("a") as first, err.open("a") as second:
        child = subprocess.Popen(["sh", "-c", "echo started; read x"], stdin=subprocess.PIPE, stdout=first, stderr=second)
    gone = tmp_path / "gone"
    with gone.open("w") as file:
        other = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file, stderr=subprocess.PIPE)
    gone.unlink()
    try:
        activity = Activity(str(tmp_path / "run"), Target(), lambda kind, fields: fields)
        activity.files.follow_output(child.pid)
        activity.files.follow_output(other.pid)
        activity.files.read(1)
        assert list(activity.files.tailer._followed) == sorted({str(out), str(err)}, reverse=True)
    finally:
        for process in (child, other):
            process.communicate(b"\n", timeout=20)


def test_files_that_hang(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount that does not answer costs marks and lines of logs, with a gap, and nothing else: every tick goes on."""
    go = threading.Event()
    read = desk.activity.files.read

    def hang(tick: int, **more: bool) -> FilesRead:
        go.wait()
        return read(tick, **more)

    monkeypatch.setattr(desk.activity.files, "read", hang)
    monkeypatch.setattr("rlhfdoctor.record.activity._HANG_S", 0.0)
    desk.activity.aside.patience_s = 0.01
    desk.write({"step": 4})
    assert [event["kind"] for _ in range(3) for event in desk.read()] == ["gap"]
    go.set()
    desk.activity.aside.run(lambda: FilesRead([], [], None, None), 60.0)
    desk.activity.aside.patience_s = 60.0
    desk.write({"step": 5})
    assert [event["step"] for event in desk.read()] == [5]


def test_log_that_is_renamed(tmp_path: Path) -> None:
    """A process writes on under the new name of its log, and is read there."""
    log, moved = tmp_path / "train.log", tmp_path / "train.log.1"
    with log.open("a") as output:
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=output, stderr=subprocess.DEVNULL)
    assert child.stdin is not None
    try:
        activity = Activity(str(tmp_path / "run"), Target(), lambda kind, fields: fields)
        activity.files.follow_output(child.pid)
        child.stdin.write(b"step:1 - a\n")
        child.stdin.flush()
        while not log.stat().st_size:
            pass
        activity.files.read(1)
        log.rename(moved)
        before = moved.stat().st_size
        child.stdin.write(b"step:2 - a\n")
        child.stdin.flush()
        while moved.stat().st_size == before:
            pass
        activity.files.read(6)
    finally:
        child.communicate(timeout=20)
    assert (tmp_path / "run" / "logs" / f"{child.pid}.out.log").read_text() == "step:1 - a\nstep:2 - a\n"
